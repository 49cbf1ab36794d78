"""How new images differ from ID images: as a group, and one by one."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import pandas as pd

from ood_lab.common.english import listed
from ood_lab.evaluation.shift.statistics_column import statistics_of, statistics_of_sets
from ood_lab.features.bank import FeatureBank
from ood_lab.metrics import causes_of
from ood_lab.schema.arrays import Floats
from ood_lab.schema.image_groups import MADE_OF
from ood_lab.schema.image_statistics import PIXELS, words_of


@dataclass(frozen=True, eq=False)
class IDRange:
    """Range of each statistic over the ID images.

    Attributes:
        least: the smallest of each, see :func:`~ood_lab.shift.image_statistics`, ``[11]``.
        most: the largest of each, ``[11]``.
    """

    least: Floats
    most: Floats

    @classmethod
    def of(cls, bank: FeatureBank) -> IDRange:
        """That of the images of a bank."""
        values = statistics_of(bank)
        return cls(values.min(axis=0), values.max(axis=0))

    def beyond(self, bank: FeatureBank) -> list[str]:
        """What each image is more than all ID images ("darker and noisier"); "" = in their range.

        One image that is like n ID images is beyond a statistic with probability 2 / (n + 1).
        """
        x = statistics_of(bank)
        words = [words_of(name) for name in PIXELS]
        sides = np.stack([x < self.least, x > self.most], axis=2)
        return [
            listed([words[place][side] for place, side in np.argwhere(row)]) if row.any() else ""
            for row in sides
        ]


def group_causes(of_id: FeatureBank, images: FeatureBank, *, seed: int) -> pd.DataFrame:
    """Statistics that tell new ``images`` from ID, see :func:`ood_lab.metrics.causes_of`."""
    table = statistics_of_sets({"test": of_id, "images": images})
    if of_id.groups is not None:
        names = [f"group {code}" for code in of_id.groups.tolist()]
        table[MADE_OF] = [*names, *(f"image {row}" for row in range(len(images)))]
    return causes_of(table, list(PIXELS), seed=seed)
