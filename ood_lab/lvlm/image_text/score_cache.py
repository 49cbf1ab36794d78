"""Scores of image-text models, computed once for the same model, images and labels."""

from __future__ import annotations

import hashlib
import json
import os
from collections.abc import Sequence
from pathlib import Path

import pandas as pd

from ood_lab.common.files import read_table, write_table
from ood_lab.lvlm.annotations import Annotations
from ood_lab.lvlm.image_text.base import ImageTextModel, Scores


def cached_scores(model: ImageTextModel, annotations: Annotations, folder: Path) -> Scores:
    """Scores of every image and category, ``[N, n]``, from ``folder`` where they are known.

    Args:
        model: computes missing scores.
        annotations: images and label space.
        folder: of all such files; one is named by a hash of the model, the labels and the names,
            sizes and times of the images' files.
    """
    images = [annotations.root / file for file in annotations.images["file"]]
    path = folder / f"{_key(model, images, annotations.categories)}.parquet"
    columns = [str(number) for number in range(len(annotations.categories))]
    if path.exists():
        return read_table(path)[columns].to_numpy("float32")
    found = model.scores(images, annotations.categories)
    write_table(pd.DataFrame(found, columns=columns), path)
    return found


def _key(model: ImageTextModel, images: Sequence[Path], categories: Sequence[str]) -> str:
    digest = hashlib.sha256(json.dumps([dict(model.made_with), list(categories)]).encode())
    for image in images:
        facts = os.stat(image)
        digest.update(f"{image.absolute()}\0{facts.st_size}\0{facts.st_mtime_ns}\n".encode())
    return digest.hexdigest()[:32]
