"""Rendered images behind the dataset contract."""

from __future__ import annotations

import hashlib
from abc import abstractmethod
from collections.abc import Mapping, Sequence

import numpy as np
import pandas as pd
from numpy.typing import NDArray
from PIL import Image

from ood_lab.builtin.vessels.captions import caption
from ood_lab.builtin.vessels.drawings.signed_distances import SIZE
from ood_lab.builtin.vessels.scene import RENDERER, Scene, generator, mask, render
from ood_lab.common.errors import UserError
from ood_lab.data.dataset import UNKNOWN, ImageDataset
from ood_lab.data.sources.pixel_cache import KeptImages
from ood_lab.schema.arrays import Bools
from ood_lab.schema.shift_axes import LEVELS


def check_counts(dataset: str, kind: str = "vessels", **counts: int) -> None:
    """Rejects numbers that no data set of a kind of images can have.

    Raises:
        UserError: a count is below 1, or the seed below 0.
    """
    for key, value in counts.items():
        least = 0 if key == "seed" else 1
        if value < least:
            raise UserError(f"{kind} '{dataset}': {key}={value}; give {key} >= {least}")


class RenderedImages(ImageDataset):
    """Images rendered on demand, and perhaps kept after their first use, see ``KeptImages``."""

    _kept: KeptImages | None

    @abstractmethod
    def _render(self, index: int) -> NDArray[np.uint8]:
        """The pixels of row ``index``, ``[H, W, 3]``."""

    def load_image(self, index: int) -> Image.Image:
        """Returns row ``index`` as an RGB image."""
        if self._kept is None:
            return Image.fromarray(self._render(index))
        return Image.fromarray(self._kept.get(index, lambda: self._render(index)))


class SceneDataset(RenderedImages):
    """Images rendered on demand and kept (12 KiB each) after their first use.

    Pixels depend only on ``(seed, index, stream)``. ``identity`` covers the renderer's version,
    the stream, the seed, and every drawn parameter and label of every scene.

    Args:
        name: see ``ImageDataset``.
        scenes: one per image.
        columns: table columns in addition to ``path``, ``noun``, ``style`` and ``caption``.
        classes: see ``ImageDataset``.
        seed: base seed.
        stream: name of the random stream, different for every data set of an experiment.
        names: see ``ImageDataset``.
    """

    def __init__(
        self,
        name: str,
        scenes: Sequence[Scene],
        columns: pd.DataFrame,
        classes: list[str],
        seed: int,
        stream: str,
        names: Mapping[str, Sequence[str]] | None = None,
    ) -> None:
        self._scenes = scenes
        self._seed = seed
        self._stream = stream
        self._kept = KeptImages(len(scenes), SIZE, SIZE)
        described = pd.DataFrame(
            {
                "path": [f"vessels://{name}/{i}" for i in range(len(scenes))],
                "noun": [scene.noun for scene in scenes],
                "style": [scene.style for scene in scenes],
                "caption": [
                    caption(scene, generator(seed, i, f"{stream}/caption"))
                    for i, scene in enumerate(scenes)
                ],
            }
        )
        digest = hashlib.sha256(repr((RENDERER, stream, seed, classes)).encode())
        digest.update(repr(scenes).encode())
        digest.update(columns.to_csv().encode())
        table = pd.concat([described, columns], axis=1)
        super().__init__(name, table, classes, digest.hexdigest(), names)

    def _render(self, index: int) -> NDArray[np.uint8]:
        texture = generator(self._seed, index, f"{self._stream}/texture")
        return render(self._scenes[index], texture)

    def load_mask(self, index: int) -> Bools:
        """Returns the foreground of row ``index``, ``[64, 64] bool``."""
        return mask(self._scenes[index])


def undated_columns(scenes: Sequence[Scene], prefix: str | None = None) -> pd.DataFrame:
    """Columns of images outside the ID classes: label -1, and what the object is, if a bronze.

    ``category`` (0 ding, 1 gui, -1 neither) and ``period`` (0 to 10, -1 none). With a ``prefix``
    the levels of shift, too, whose names begin with it.
    """
    bronzes = [scene.bronze for scene in scenes]
    found = {
        "label": UNKNOWN,
        "category": [b.category if b else UNKNOWN for b in bronzes],
        "period": [b.period if b else UNKNOWN for b in bronzes],
    }
    if prefix is not None:
        found |= {f"{prefix}{name}": [getattr(s, name) for s in scenes] for name in LEVELS}
    return pd.DataFrame(found)
