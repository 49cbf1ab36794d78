"""Scores of image-text models, computed once for the same model, images and labels."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Sequence
from pathlib import Path

import pandas as pd

from ood_lab.common.files import read_table, write_table
from ood_lab.data.sources.file_facts import content_hashes
from ood_lab.lvlm.annotations import Annotations
from ood_lab.lvlm.image_text.base import ImageTextModel, Scores


def cached_scores(model: ImageTextModel, annotations: Annotations, folder: Path) -> Scores:
    """Scores of every image and category, ``[N, n]``, from ``folder`` where they are known.

    Args:
        model: computes missing scores.
        annotations: images and label space.
        folder: of all such files; one is named by a hash of the model, the labels and the
            content of the images, so that a copy of them finds it.
    """
    images = [annotations.root / file for file in annotations.images["file"]]
    known = json.dumps([dict(model.made_with), list(annotations.categories)])
    path = folder / f"{key_of(known, images, folder)}.parquet"
    columns = [str(number) for number in range(len(annotations.categories))]
    if path.exists():
        return read_table(path)[columns].to_numpy("float32")
    found = model.scores(images, annotations.categories)
    write_table(pd.DataFrame(found, columns=columns), path)
    return found


def key_of(model: str, images: Sequence[Path], folder: Path) -> str:
    """A hash of what stands for a model, and of the images in order.

    Args:
        model: whatever a number depends on, as a text.
        images: files, which are hashed once as long as they stay the same.
        folder: remembers their hashes.
    """
    digest = hashlib.sha256(model.encode())
    paths = [str(image.absolute()) for image in images]
    for path, content in zip(paths, content_hashes(paths, folder), strict=True):
        digest.update(f"{content or path}\n".encode("utf-8", "surrogateescape"))
    return digest.hexdigest()[:32]
