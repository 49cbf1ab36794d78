"""Images and labels in the space of a CLIP."""

from __future__ import annotations

import hashlib
import json
import os
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import pandas as pd
import torch
from numpy.typing import NDArray

from ood_lab.clip import ClipModel
from ood_lab.io import read_table, write_table
from ood_lab.lvlm.annotations import Annotations
from ood_lab.lvlm.image_text.base import texts_of
from ood_lab.lvlm.image_text.encoder import clip_features
from ood_lab.neighbours import nearest_rows

Floats = NDArray[np.float32]


@dataclass(frozen=True)
class Space:
    """Unit features of N images and of n labels.

    Attributes:
        images: ``[N, d] float32``.
        labels: ``[n, d] float32``, of texts such as ``an image contains dog``.
        scale: logit scale of the CLIP, which only a softmax needs.
    """

    images: Floats
    labels: Floats
    scale: float = 100.0

    def cosines(self, rows: Sequence[int] | NDArray[np.int64]) -> Floats:
        """``cos(f_x, g_o)`` of some images with every label, ``[B, n]``."""
        found: Floats = self.images[rows] @ self.labels.T
        return found

    def nearest(self, rows: NDArray[np.int64], pool: NDArray[np.int64]) -> NDArray[np.int64]:
        """The image of ``pool`` that is nearest to each, never the image itself.

        Args:
            rows: images.
            pool: images in ascending order.
        """
        whole = len(pool) == len(self.images)
        bank = torch.from_numpy(self.images if whole else self.images[pool])
        own = np.searchsorted(pool, rows)
        inside = (own < len(pool)) & (pool[np.minimum(own, len(pool) - 1)] == rows)
        queries = torch.from_numpy(self.images[rows])
        excluded = torch.from_numpy(np.where(inside, own, -1))
        return pool[nearest_rows(queries, bank, excluded).numpy()]


def space_of(clip: ClipModel, annotations: Annotations, template: str, folder: Path) -> Space:
    """Features of all images and labels; those of images are computed once.

    Args:
        clip: the model.
        annotations: images and label space.
        template: text with ``{}`` for the label.
        folder: of the files in which features of images are kept.

    Raises:
        UserError: an image cannot be read.
    """
    paths = [annotations.root / file for file in annotations.images["file"]]
    file = folder / f"{_key(clip, paths)}.parquet"
    if file.exists():
        images = read_table(file).to_numpy(np.float32)
    else:
        images = clip_features(clip, paths)
        columns = [str(number) for number in range(images.shape[1])]
        write_table(pd.DataFrame(images, columns=columns), file)
    texts = texts_of(annotations.categories, template)
    labels = clip.encode_text(texts).float().cpu().numpy()
    return Space(np.ascontiguousarray(images), labels, clip.logit_scale)


def _key(clip: ClipModel, images: Sequence[Path]) -> str:
    digest = hashlib.sha256(json.dumps(clip.identity, sort_keys=True, default=str).encode())
    for image in images:
        facts = os.stat(image)
        digest.update(f"{image.absolute()}\0{facts.st_size}\0{facts.st_mtime_ns}\n".encode())
    return digest.hexdigest()[:32]
