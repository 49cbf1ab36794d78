"""Hard samples: what a trained object detector is least sure of (algorithm 1 of OODBench).

``h = (1 - p)^gamma (-ln p)`` with ``p`` the probability of the predicted class of a proposal and
``gamma = 2``: it falls as p rises. Of each image and predicted class the k hardest proposals are
kept, of each class the hardest q percent of those; proposals of one class in one image are then one
pair.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Annotated

import numpy as np
import pandas as pd
from annotated_types import Interval
from numpy.typing import ArrayLike

from ood_lab.common.arguments import Count, Share
from ood_lab.common.errors import UserError
from ood_lab.lvlm.annotations.image_labels import Labels
from ood_lab.schema.arrays import Floats

#: ``split`` of the questions about them.
HARD = "hard"


def hardness(p: ArrayLike, gamma: float = 2.0) -> Floats:
    """``(1 - p)^gamma (-ln p)``: .1733 at .5 and .00105 at .9."""
    chance = np.clip(np.asarray(p, np.float64), np.finfo(float).tiny, 1.0)
    return (1.0 - chance) ** gamma * -np.log(chance)


@dataclass(frozen=True, kw_only=True)
class HardSamples:
    """Which proposals are hard samples; the paper gives neither k nor q.

    Attributes:
        gamma: exponent.
        per_image: k, kept of each image and predicted class.
        share: q, kept of each class, at least one.
    """

    gamma: Annotated[float, Interval(ge=0, le=10)] = 2.0
    per_image: Count = 1
    share: Share = 0.1

    def mine(self, proposals: pd.DataFrame, labels: Labels) -> pd.DataFrame:
        """The hard pairs.

        Args:
            proposals: ``image, category, p``, one row a proposal of the detector.
            labels: what is annotated; says whether the predicted class is there.

        Returns:
            ``image, category, split, present, p, hardness``, the hardest of each class first.

        Raises:
            UserError: the detector knows none of the categories.
        """
        known = proposals[proposals["category"].isin(labels.categories)]
        if known.empty:
            raise UserError(
                "the object detector names none of the annotated categories: "
                f"{', '.join(sorted(proposals['category'].unique())[:5]) or 'it finds nothing'}"
            )
        table = known.assign(hardness=hardness(known["p"], self.gamma))
        table = table.sort_values("hardness", ascending=False, kind="stable")
        table = table.groupby(["image", "category"], sort=False).head(self.per_image)
        rank = table.groupby("category").cumcount()
        size = table.groupby("category")["p"].transform("size")
        table = table[rank < np.maximum(np.ceil(self.share * size), 1)]
        # Several hard proposals of a class are one pair, of the hardest of them.
        table = table.drop_duplicates(["image", "category"])
        found = table.assign(split=HARD, present=labels.present[labels.places(table)])
        return found.sort_values(["category", "hardness"], ascending=[True, False]).reset_index(
            drop=True
        )[["image", "category", "split", "present", "p", "hardness"]]
