"""Scores and features of images, computed once for the same model, images and labels."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Callable, Sequence
from functools import partial
from pathlib import Path

import numpy as np
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
    scores = partial(model.scores, images, annotations.categories)
    return computed_once(known, images, folder, scores)


def computed_once(
    known: str, images: Sequence[Path], folder: Path, compute: Callable[[], Scores]
) -> Scores:
    """Numbers of images, ``[N, D]``, from ``folder`` where they are known.

    Args:
        known: whatever a number depends on but for the images, as a text.
        images: N files.
        folder: of all such files; one is named by a hash of the text and of the content of the
            images in order.
        compute: the numbers.
    """
    digest, paths = hashlib.sha256(known.encode()), [str(image.absolute()) for image in images]
    for path, content in zip(paths, content_hashes(paths, folder), strict=True):
        digest.update(f"{content or path}\n".encode("utf-8", "surrogateescape"))
    file = folder / f"{digest.hexdigest()[:32]}.parquet"
    if file.exists():
        return read_table(file).to_numpy(np.float32)
    found = compute()
    columns = [str(number) for number in range(found.shape[1])]
    write_table(pd.DataFrame(found, columns=columns), file)
    return found
