"""Masks that a segmenter makes, once for every image, kept as files."""

from __future__ import annotations

import hashlib
import os
from pathlib import Path
from typing import Protocol

import numpy as np
from lightning.pytorch.utilities import rank_zero_only
from PIL import Image
from rich.progress import track

from ood_lab.common.errors import UserError
from ood_lab.common.files import StrPath, replaced
from ood_lab.data.sources.image_files import FileDataset


class Segmenter(Protocol):
    """Tells the object from what is behind it."""

    @property
    def identity(self) -> str:
        """Model and version."""

    def __call__(self, image: Image.Image) -> np.ndarray:
        """Share of the object in every pixel, ``[H, W]`` in [0, 1]; all 0 where none is found."""


def segmented_masks(
    data: FileDataset, segmenter: Segmenter, cache_dir: StrPath | None
) -> list[str]:
    """The files of the masks of all images; those of an earlier call are used again.

    They are in ``<cache_dir>/masks/<hash of the segmenter>/<sha256 of the image>.png``.

    Raises:
        UserError: there is no place for them.
    """
    if cache_dir is None:
        raise UserError("data/segmenter needs a place for its masks: set data.cache_dir=DIR")
    key = hashlib.sha256(segmenter.identity.encode()).hexdigest()[:16]
    folder = Path(cache_dir) / "masks" / key
    folder.mkdir(parents=True, exist_ok=True)
    hashes = data.content_hashes()
    files = [str(folder / f"{name}.png") for name in hashes]
    todo = {file: row for row, file in enumerate(files) if not os.path.exists(file)}
    silent = getattr(rank_zero_only, "rank", 0) != 0 or not todo
    for file, row in track(
        todo.items(), "Segmenting images", total=len(todo), transient=True, disable=silent
    ):
        mask = (np.clip(segmenter(data.load_image(row)), 0.0, 1.0) * 255).round().astype(np.uint8)
        # Several processes may make the same mask.
        with replaced(file) as part:
            Image.fromarray(mask).save(part, format="png")
    return files
