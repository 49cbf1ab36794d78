"""Which labels are annotated in each image, and which are known to be absent."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import pandas as pd

from ood_lab.common.errors import UserError
from ood_lab.lvlm.annotations import Annotations
from ood_lab.schema.arrays import Bools, Ints


@dataclass(frozen=True)
class ImageLabels:
    """What is annotated in N images over a label space of n names.

    Attributes:
        images: ids of the images, ``N``.
        categories: the label space, ``n``.
        present: ``[N, n] bool``, annotated labels.
        absent: ``[N, n] bool``, labels known to be absent.
    """

    images: tuple[int | str, ...]
    categories: tuple[str, ...]
    present: Bools
    absent: Bools

    def places(self, pairs: pd.DataFrame) -> tuple[Ints, Ints]:
        """Rows and columns of pairs, ``image, category``; -1 where there is none."""
        axes = ((self.images, pairs["image"]), (self.categories, pairs["category"]))
        rows, columns = (pd.Index(labels).get_indexer(pd.Index(wanted)) for labels, wanted in axes)
        return rows, columns


def labels_of(annotations: Annotations, verified_only: bool = False) -> ImageLabels:
    """What the annotations say of each image.

    Args:
        annotations: of N images.
        verified_only: of federated data (LVIS), take only labels that were verified to be absent
            as absent; else every label that is not annotated.

    Raises:
        UserError: ``verified_only`` of data that does not say what was verified.
    """
    images, categories = list(annotations.images["image"]), annotations.categories
    present = np.zeros((len(images), len(categories)), bool)
    rows = pd.Index(images).get_indexer(pd.Index(annotations.objects["image"]))
    codes = annotations.objects["category"].cat.codes.to_numpy()
    present[rows, codes] = True
    absent = ~present
    if verified_only:
        if "absent" not in annotations.images:
            raise UserError(
                f"{annotations.name} does not say which labels were verified to be absent: leave "
                "task.verified_only at false"
            )
        place = {name: column for column, name in enumerate(categories)}
        absent = np.zeros_like(present)
        for row, names in enumerate(annotations.images["absent"]):
            absent[row, [place[name] for name in names]] = True
        absent &= ~present
    return ImageLabels(tuple(images), categories, present, absent)
