"""How new images differ from ID images: as a group, and one by one."""

from __future__ import annotations

from dataclasses import dataclass, field

import numpy as np
import pandas as pd

from ood_lab.common.english import listed
from ood_lab.evaluation.shift.statistics_column import statistics_of
from ood_lab.features.bank import FeatureBank
from ood_lab.metrics import causes_of
from ood_lab.metrics.ood import Floats
from ood_lab.schema.image_statistics import PIXELS, words_of

#: Name of the new images among the datasets of causes.
NEW = "images"


@dataclass(frozen=True, eq=False)
class IDStatistics:
    """Statistics of the ID images that new ones are compared with.

    Attributes:
        values: see :func:`~ood_lab.shift.image_statistics`, ``[n, 11]``.
        least: the smallest of each, ``[11]``.
        most: the largest of each, ``[11]``.
    """

    values: Floats
    least: Floats = field(init=False)
    most: Floats = field(init=False)

    def __post_init__(self) -> None:
        object.__setattr__(self, "least", self.values.min(axis=0))
        object.__setattr__(self, "most", self.values.max(axis=0))

    @classmethod
    def of(cls, bank: FeatureBank) -> IDStatistics:
        """Those of the images of a bank."""
        return cls(statistics_of(bank))

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

    def causes(self, bank: FeatureBank, *, seed: int) -> pd.DataFrame:
        """Which statistics tell all images of a bank, :data:`NEW`, from ID, ``test``.

        See :func:`ood_lab.metrics.causes_of`.
        """
        columns = list(PIXELS)
        both = [
            pd.DataFrame(values, columns=columns).assign(dataset=name)
            for name, values in (("test", self.values), (NEW, statistics_of(bank)))
        ]
        return causes_of(pd.concat(both, ignore_index=True), columns, seed=seed)
