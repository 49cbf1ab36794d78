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

from ood_lab.data.filefacts import content_hashes
from ood_lab.data.files import FileDataset, load_rgb
from ood_lab.errors import UserError
from ood_lab.io import replaced


class Segmenter(Protocol):
    """Tells the object from what is behind it."""

    @property
    def identity(self) -> str:
        """Model and version."""

    def __call__(self, image: Image.Image) -> np.ndarray:
        """Share of the object in every pixel, ``[H, W]`` in [0, 1]; all 0 where none is found."""


def segmented_masks(
    data: FileDataset, segmenter: Segmenter, cache_dir: str | os.PathLike[str] | None
) -> list[str]:
    """The files of the masks of all images; those of an earlier call are used again.

    They lie in ``<cache_dir>/masks/<hash of the segmenter>/<sha256 of the image>.png``.

    Raises:
        UserError: there is no place for them.
    """
    if cache_dir is None:
        raise UserError("data/segmenter needs a place for its masks: set data.cache_dir=DIR")
    key = hashlib.sha256(segmenter.identity.encode()).hexdigest()[:16]
    folder = Path(cache_dir) / "masks" / key
    folder.mkdir(parents=True, exist_ok=True)
    hashes = content_hashes(data.paths, data.cache_dir)
    files = [str(folder / f"{name}.png") for name in hashes]
    pairs = zip(files, data.paths, strict=True)
    todo = {file: path for file, path in pairs if not os.path.exists(file)}
    silent = getattr(rank_zero_only, "rank", 0) != 0 or not todo
    for file, path in track(
        todo.items(), "Segmenting images", total=len(todo), transient=True, disable=silent
    ):
        mask = (np.clip(segmenter(load_rgb(path)), 0.0, 1.0) * 255).round().astype(np.uint8)
        # Several processes may make the same mask.
        with replaced(file) as part:
            Image.fromarray(mask).save(part, format="png")
    return files
