"""The number of images of each ID class."""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np
import pandas as pd

from ood_lab.data.datamodules.splits import ID_SPLITS
from ood_lab.data.dataset import ImageDataset


def count_by_class(data: ImageDataset) -> np.ndarray | None:
    """Images of every class of a set, ``[C]``; None where it has no classes."""
    if not data.classes:
        return None
    labels = data.labels.numpy()
    return np.bincount(labels[labels >= 0], minlength=len(data.classes))


def class_table(splits: Mapping[str, ImageDataset]) -> pd.DataFrame:
    """One row per ID class, in the order of the labels: ``label, class, train, val, test``.

    Empty where ID has no classes.
    """
    classes = splits["train"].classes
    table = pd.DataFrame({"label": range(len(classes)), "class": classes})
    for name in (n for n in ID_SPLITS if n in splits):
        counts = count_by_class(splits[name])
        table[name] = np.zeros(len(classes), int) if counts is None else counts
    return table
