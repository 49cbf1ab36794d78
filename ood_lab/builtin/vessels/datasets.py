"""Rendered vessels behind the dataset contract: ID sets, shifted OOD sets, a grid of levels."""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from itertools import product

import numpy as np
import pandas as pd
import torch
from PIL import Image

from ood_lab.builtin.vessels.covariate_styles import STYLES_OF_LEVEL
from ood_lab.builtin.vessels.drawings.bronzes import SHAPES, sample_bronze
from ood_lab.builtin.vessels.drawings.signed_distances import SIZE
from ood_lab.builtin.vessels.nouns import CONTAINERS, NOUNS_OF_LEVEL
from ood_lab.builtin.vessels.periods import CATEGORIES, CLASSES, DYNASTIES, PERIODS, PRIORS
from ood_lab.builtin.vessels.scene import (
    RENDERER,
    VesselScene,
    generator,
    mask,
    pick,
    render,
    sample_vessel_scene,
)
from ood_lab.common.errors import UserError
from ood_lab.common.file_records import text_sha256
from ood_lab.common.hints import check_known
from ood_lab.common.random_streams import RandomStream
from ood_lab.data.dataset import UNKNOWN, ImageDataset, ValueNames
from ood_lab.data.sources.pixel_cache import KeptImages
from ood_lab.schema.arrays import Bools, PixelArray
from ood_lab.schema.image_columns import LEVELS

#: Pairs of semantic and covariate level but (0, 0), which is in distribution.
GRID = tuple(product(range(6), range(6)))[1:]


class RenderedImages(ImageDataset):
    """Images rendered on demand and kept after their first use, see ``KeptImages``.

    Attributes:
        seed: base seed.
    """

    seed: int
    _stream: str
    _kept: KeptImages

    def texture(self, index: int) -> RandomStream:
        """What gives row ``index`` its fine texture."""
        return generator(self.seed, index, f"{self._stream}/texture")

    @abstractmethod
    def _render(self, index: int) -> PixelArray:
        """The pixels of row ``index``, ``[H, W, 3]``."""

    def load_image(self, index: int) -> Image.Image:
        """Returns row ``index`` as an RGB image."""
        return Image.fromarray(self._kept.get(index, lambda: self._render(index)))


class RenderedVessels(RenderedImages):
    """Images rendered on demand and kept (12 KiB each) after their first use.

    Pixels depend only on ``(seed, index, stream)``. ``identity`` covers the renderer's version,
    the stream, the seed, and every drawn parameter and label of every scene.

    Args:
        name: see ``ImageDataset``.
        scenes: one per image.
        columns: table columns in addition to ``path``, ``noun`` and ``style``.
        classes: see ``ImageDataset``.
        seed: base seed.
        stream: name of the random stream, different for every data set of an experiment.
        names: see ``ImageDataset``.
    """

    def __init__(
        self,
        name: str,
        scenes: Sequence[VesselScene],
        columns: Mapping[str, object],
        classes: list[str],
        seed: int,
        stream: str,
        names: ValueNames,
    ) -> None:
        self._scenes = scenes
        self.seed = seed
        self._stream = stream
        self._kept = KeptImages(len(scenes), SIZE, SIZE)
        described = {
            "path": [f"vessels://{name}/{i}" for i in range(len(scenes))],
            "noun": [scene.noun for scene in scenes],
            "style": [scene.style for scene in scenes],
        }
        settings = repr((RENDERER, stream, seed, classes))
        identity = text_sha256(settings + repr(scenes) + pd.DataFrame(columns).to_csv())
        table = pd.DataFrame({**described, **columns})
        super().__init__(name, table, classes, identity, names)

    def _render(self, index: int) -> PixelArray:
        return render(self._scenes[index], self.texture(index))

    def load_mask(self, index: int) -> Bools:
        """Returns the foreground of row ``index``, ``[64, 64] bool``."""
        return mask(self._scenes[index])


@dataclass(frozen=True)
class _Shift:
    """Nouns (none: dated ding and gui), styles, and backgrounds (none: those of the style)."""

    nouns: Sequence[str]
    styles: Sequence[str]
    backgrounds: Sequence[str] = ()

    def sample(self, rng: RandomStream, index: int) -> VesselScene:
        """A scene; dated vessels visit all 22 pairs of category and period in turn."""
        if not self.nouns:
            category, period = _cycle(index)
            bronze = sample_bronze(rng, category, period)
            return sample_vessel_scene(rng, bronze, pick(rng, self.styles))
        noun, style = pick(rng, self.nouns), pick(rng, self.styles)
        background = pick(rng, self.backgrounds) if self.backgrounds else None
        return sample_vessel_scene(rng, noun, style, background)


def _cycle(index: int) -> tuple[int, int]:
    """(category, period) of a row that visits all 22 in turn."""
    return (index // len(PERIODS)) % len(CATEGORIES), index % len(PERIODS)


class VesselsDataset(RenderedVessels):
    """Bronze ding and gui photographed in a studio or a museum, 64 x 64 RGB.

    The class (``label``, ``level_1``) is the period, ``level_0`` the dynasty, ``category`` 0 for
    a ding and 1 for a gui, ``shape`` an index into ``SHAPES``, ``attribute_<name>`` 0/1
    characteristics. Row ``i`` does not depend on ``n``.

    Args:
        name: ``train``, ``val`` or ``test``: also names the random stream, so that splits of
            one seed share nothing.
        n: number of images.
        seed: base seed, >= 0.
        prior: ``balanced`` visits the 22 (category, period) pairs in turn; ``paper`` draws them
            from a long tail of about 45 to 1, as excavated bronzes have it.
        min_per_class: under a long-tailed prior the first ``11 * min_per_class`` rows visit the
            periods in turn, so that none is missing.

    Raises:
        UserError: an unknown prior, or too few images.
    """

    def __init__(
        self,
        name: str,
        n: int,
        seed: int,
        prior: str = "balanced",
        min_per_class: int = 20,
    ) -> None:
        check_known([prior], PRIORS, f"vessels '{name}': prior={{name}}")
        weights, in_turn = PRIORS[prior], min_per_class * len(PERIODS)
        if weights is not None and n < in_turn:
            raise UserError(
                f"vessels '{name}': n={n} holds no {min_per_class} images of each of "
                f"{len(PERIODS)} periods; raise n or lower min_per_class"
            )
        cumulative = None if weights is None else np.cumsum(np.ravel(weights)) / np.sum(weights)
        stream = f"id/{name}"
        bronzes, scenes = [], []
        for index in range(n):
            rng = generator(seed, index, f"{stream}/scene")
            category, period = _cycle(index)
            if cumulative is not None and index >= in_turn:
                cell = int(np.searchsorted(cumulative, rng.random(), side="right"))
                category, period = divmod(cell, len(PERIODS))
            bronzes.append(sample_bronze(rng, category, period))
            scenes.append(sample_vessel_scene(rng, bronzes[-1], pick(rng, STYLES_OF_LEVEL[0])))
        attributes = pd.DataFrame([bronze.attributes() for bronze in bronzes])
        columns = {
            "label": [bronze.period for bronze in bronzes],
            "level_0": [PERIODS[bronze.period].dynasty for bronze in bronzes],
            "level_1": [bronze.period for bronze in bronzes],
            "category": [bronze.category for bronze in bronzes],
            "shape": [bronze.shape for bronze in bronzes],
            **dict.fromkeys(LEVELS, 0),
            **attributes.add_prefix("attribute_"),
        }
        names = {"level_0": DYNASTIES, "level_1": CLASSES, "category": CATEGORIES, "shape": SHAPES}
        super().__init__(name, scenes, columns, list(CLASSES), seed, stream, names)


class _OodVessels(RenderedVessels):
    """Scenes of shifts in turn; every label is -1.

    ``category`` (0 ding, 1 gui, -1 neither) and ``period`` (0 to 10, -1 none) say what the
    object is, and two columns, whose names begin with ``prefix``, the levels of shift.
    """

    def __init__(
        self,
        name: str,
        n: int,
        seed: int,
        shifts: Sequence[_Shift],
        stream: str,
        prefix: str,
    ) -> None:
        scenes = [
            shifts[index % len(shifts)].sample(
                generator(seed, index, f"{stream}/scene"), index // len(shifts)
            )
            for index in range(n)
        ]
        bronzes = [scene.bronze for scene in scenes]
        semantic, covariate = (f"{prefix}{level}" for level in LEVELS)
        columns = {
            "label": UNKNOWN,
            "category": [bronze.category if bronze else UNKNOWN for bronze in bronzes],
            "period": [bronze.period if bronze else UNKNOWN for bronze in bronzes],
            semantic: [scene.semantic_level for scene in scenes],
            covariate: [scene.covariate_level for scene in scenes],
        }
        super().__init__(name, scenes, columns, [], seed, stream, {"category": CATEGORIES})


_SCENES = ("indoor", "outdoor", "colourful")
_MATERIALS = STYLES_OF_LEVEL[3]
_FAR = tuple(noun for level in (3, 4, 5) for noun in NOUNS_OF_LEVEL[level])

#: The five OOD sets, in the declared order of growing shift.
SHIFTS = {
    "transferred_bronze": _Shift((), ("indoor", "outdoor")),
    "transferred_container": _Shift(CONTAINERS, STYLES_OF_LEVEL[0]),
    "sketch_rubbing": _Shift((), ("sketch", "rubbing")),
    "container": _Shift(CONTAINERS, _MATERIALS, _SCENES),
    "general": _Shift(_FAR, _MATERIALS, _SCENES),
}


class ShiftedVessels(_OodVessels):
    """One of the five OOD sets; every label is -1.

    ``transferred_bronze``: the ID vessels before new backgrounds; ``transferred_container``:
    household containers in the ID styles; ``sketch_rubbing``: drawings of the ID vessels;
    ``container``: containers of other materials before new backgrounds; ``general``: tools,
    natural things and patterns, the same way.

    The table has ``true_semantic_level`` and ``true_covariate_level`` (by construction): these
    sets are read as a whole, not by level, hence not under the names of the grid.

    Args:
        kind: one of ``SHIFTS``, also the name of the set.
        n: number of images.
        seed: base seed, >= 0.
    """

    def __init__(self, kind: str, n: int, seed: int) -> None:
        super().__init__(kind, n, seed, [SHIFTS[kind]], f"shift/{kind}/{kind}", "true_")


class VesselsGrid(_OodVessels):
    """Every pair of semantic level 0..5 and covariate level 0..5 but (0, 0); labels are -1.

    The cell (0, 0) would be in-distribution: the test split stands for it. Rows go round the 35
    cells in turn, so that row ``i`` does not depend on ``per_cell``. Columns ``semantic_level``,
    ``covariate_level`` and, for the dated vessels of semantic level 0, ``category``, ``period``.

    Args:
        name: name of the set, also names the random stream.
        per_cell: images in each cell.
        seed: base seed, >= 0.
    """

    def __init__(self, name: str, per_cell: int, seed: int) -> None:
        shifts = [_Shift(NOUNS_OF_LEVEL.get(s, ()), STYLES_OF_LEVEL[c]) for s, c in GRID]
        n = per_cell * len(GRID)
        super().__init__(name, n, seed, shifts, f"grid/{name}", "")


@dataclass
class LightAugment:
    """Mirror, small shift, light photometric change and occasional noise; PIL to PIL.

    ``x' = (x - mean) * (1 + c) + mean + b + t`` with contrast ``c``, brightness ``b`` and a tint
    ``t`` a channel, uniform within plus or minus their limits, pixel values in [0, 1]. Without
    the photometric part a small network is over-confident on noise and drawings.

    Draws come from torch's generator, which data loaders seed in every worker.

    Args:
        flip: chance to mirror left and right.
        shift: largest shift in pixels, the border is repeated.
        contrast: limit of the relative change of contrast.
        brightness: limit of the change of brightness.
        tint: limit of the change of each colour channel.
        noise: chance of white noise, with a standard deviation up to 0.1.
    """

    flip: float = 0.5
    shift: int = 3
    contrast: float = 0.12
    brightness: float = 0.15
    tint: float = 0.05
    noise: float = 0.1

    def __call__(self, image: Image.Image) -> Image.Image:
        """Returns a changed copy of an RGB image of any size."""
        rng = np.random.default_rng(int(torch.randint(2**62, ())))
        pixels = np.asarray(image)
        mirrored = rng.random() < self.flip
        rows, columns = (
            (np.arange(size) - rng.integers(-self.shift, self.shift + 1)).clip(0, size - 1)
            for size in pixels.shape[:2]
        )
        if mirrored:
            columns = pixels.shape[1] - 1 - columns
        pixels = pixels.take(columns, 1).take(rows, 0)
        gain = 1.0 + rng.uniform(-self.contrast, self.contrast)
        offset = 255.0 * (
            rng.uniform(-self.brightness, self.brightness) + rng.uniform(-self.tint, self.tint, 3)
        )
        # One table look-up a channel does the affine change and the rounding.
        mean = pixels.mean()
        values = (np.arange(256) - mean) * gain + mean
        table = np.clip(values[:, None] + offset + 0.5, 0, 255).astype(np.uint8)
        changed = np.stack([table[:, k].take(pixels[..., k]) for k in range(3)], -1)
        if rng.random() < self.noise:
            spread = 255.0 * rng.uniform(0.0, 0.1)
            noise = spread * rng.standard_normal(changed.shape, np.float32)
            changed = np.clip(changed + noise, 0, 255).astype(np.uint8)
        return Image.fromarray(changed)
