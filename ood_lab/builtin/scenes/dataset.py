"""Rendered scenes behind the dataset contract."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

import numpy as np
import pandas as pd

from ood_lab.builtin.scenes.covariate_styles import STYLES, STYLES_OF_LEVEL
from ood_lab.builtin.scenes.places import PLACES
from ood_lab.builtin.scenes.rendering import Visible, render, visible
from ood_lab.builtin.scenes.scene import RENDERER, Scene
from ood_lab.builtin.scenes.scene_sampling import check_size, sample_scene
from ood_lab.builtin.vessels.datasets import GRID, RenderedImages
from ood_lab.builtin.vessels.scene import generator, pick
from ood_lab.common.file_records import text_sha256
from ood_lab.data.dataset import UNKNOWN
from ood_lab.data.sources.pixel_cache import KeptImages
from ood_lab.schema.arrays import Bools, PixelArray
from ood_lab.schema.image_columns import LEVELS

_PLACES = tuple(PLACES)
#: OOD sets: familiar objects where they are not expected; archaic vessels and patterns where
#: something else is; and what is expected, in other light, materials and drawings.
SHIFTS = {
    "out_of_place": ((1, 0), (2, 0), (3, 0)),
    "unfamiliar": ((4, 0), (5, 0)),
    "restyled": ((0, 1), (0, 2), (0, 3), (0, 4), (0, 5)),
}


class _Row(NamedTuple):
    """What is decided about an image before its objects are."""

    place: str
    style: str
    semantic_level: int


class RenderedScenes(RenderedImages):
    """Scenes drawn and rendered on demand and kept (27 KiB each at 96 pixels).

    The table has ``place``, ``style`` and the levels of every row; which objects there are is
    sampled at the first access to row ``i`` (:meth:`scene`, :meth:`objects`), only
    from ``(seed, index, name)``. ``identity`` covers the renderer's version, the name, the seed,
    the size and the table.

    Args:
        name: see ``ImageDataset``; also names the random stream.
        rows: one per image.
        classes: the places; empty = every label is -1.
        seed: base seed.
        size: height and width of the images, pixels.
        prefix: of the names of the two columns of levels.
    """

    def __init__(
        self,
        name: str,
        rows: Sequence[_Row],
        classes: list[str],
        seed: int,
        size: int,
        prefix: str = "",
    ) -> None:
        check_size(size)
        self.size = size
        self.seed = seed
        self._rows = rows
        self._stream = f"scenes/{name}"
        self._kept = KeptImages(len(rows), size, size)
        semantic, covariate = (f"{prefix}{level}" for level in LEVELS)
        table = pd.DataFrame(
            {
                "path": [f"scenes://{name}/{i}" for i in range(len(rows))],
                "label": [classes.index(row.place) if classes else UNKNOWN for row in rows],
                "place": [row.place for row in rows],
                "style": [row.style for row in rows],
                semantic: [row.semantic_level for row in rows],
                covariate: [STYLES[row.style].level for row in rows],
            }
        )
        settings = repr((RENDERER, self._stream, seed, size))
        super().__init__(name, table, classes, text_sha256(settings + table.to_csv()))

    def scene(self, index: int) -> Scene:
        """Everything that row ``index`` shows."""
        row = self._rows[index]
        return sample_scene(
            generator(self.seed, index, f"{self._stream}/scene"),
            size=self.size,
            place=row.place,
            style=row.style,
            semantic_level=row.semantic_level,
        )

    def objects(self, index: int) -> list[Visible]:
        """What can be seen of every object of row ``index``."""
        return visible(self.scene(index))

    def paint(self, index: int, scene: Scene) -> PixelArray:
        """The pixels of row ``index``, for those who have its scene already."""
        return render(scene, self.texture(index))

    def _render(self, index: int) -> PixelArray:
        return self.paint(index, self.scene(index))

    def load_mask(self, index: int) -> Bools:
        """Returns the pixels of all objects of row ``index``, ``[size, size] bool``."""
        masks = [seen.mask for seen in self.objects(index)]
        return np.logical_or.reduce(masks)


class ScenesDataset(RenderedScenes):
    """Scenes of all places in turn; the class (``label``) is the place.

    By default every object is one that its place's prior expects, in a clear photo: levels 0.
    Row ``i`` does not depend on ``n``.

    Args:
        name: ``train``, ``val`` or ``test``: also names the random stream, so that splits of
            one seed share nothing.
        n: number of images.
        seed: base seed, >= 0.
        size: height and width of the images, pixels: a multiple of 4 from 64 to 256.
        breaks: share of scenes of semantic levels 1 to 5, all equally likely.
        restyled: share of scenes of covariate levels 1 to 5, all equally likely.

    Raises:
        UserError: a size that no style can paint.
    """

    def __init__(
        self,
        name: str,
        n: int,
        seed: int,
        size: int = 96,
        breaks: float = 0.0,
        restyled: float = 0.0,
    ) -> None:
        rows = []
        for index in range(n):
            rng = generator(seed, index, f"scenes/{name}/row")
            first, second = rng.random(2).tolist()
            semantic, covariate = rng.integers(1, 6, 2).tolist()
            style = pick(rng, STYLES_OF_LEVEL[covariate if second < restyled else 0])
            place = _PLACES[index % len(_PLACES)]
            rows.append(_Row(place, style, semantic if first < breaks else 0))
        super().__init__(name, rows, list(_PLACES), seed, size)


class ScenesGrid(RenderedScenes):
    """Scenes of given cells of the grid of levels, in turn; labels are -1.

    Row ``i`` does not depend on ``n``: it is of cell ``i mod C`` and place ``i // C`` in turn.

    Args:
        name: name of the set, also names the random stream.
        n: number of images.
        seed: base seed, >= 0.
        size: height and width of the images, pixels.
        cells: pairs of semantic and covariate level.
        prefix: see ``RenderedScenes``.

    Raises:
        UserError: a size that no style can paint.
    """

    def __init__(
        self,
        name: str,
        n: int,
        seed: int,
        size: int = 96,
        cells: Sequence[tuple[int, int]] = GRID,
        prefix: str = "",
    ) -> None:
        rows = []
        for index in range(n):
            semantic, covariate = cells[index % len(cells)]
            style = pick(generator(seed, index, f"scenes/{name}/row"), STYLES_OF_LEVEL[covariate])
            rows.append(_Row(_PLACES[index // len(cells) % len(_PLACES)], style, semantic))
        super().__init__(name, rows, [], seed, size, prefix)


class ShiftedScenes(ScenesGrid):
    """One of the OOD sets of ``SHIFTS``; every label is -1.

    The table has ``true_semantic_level`` and ``true_covariate_level``: these sets are read as a
    whole, not by level, hence not under the names of the grid.

    Args:
        kind: one of ``SHIFTS``, also the name of the set.
        n: number of images.
        seed: base seed, >= 0.
        size: height and width of the images, pixels.

    Raises:
        UserError: a size that no style can paint.
    """

    def __init__(self, kind: str, n: int, seed: int, size: int = 96) -> None:
        super().__init__(kind, n, seed, size, SHIFTS[kind], "true_")
