"""Which pairs of an image and a category become questions."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Annotated, Literal

import numpy as np
import pandas as pd
from annotated_types import Interval
from numpy.typing import ArrayLike

from ood_lab.common.arguments import Count, Share
from ood_lab.common.errors import UserError
from ood_lab.lvlm.annotations.image_contents import ImageLabels
from ood_lab.lvlm.benchmarks.oodbench.division import ID, UNCUT
from ood_lab.schema.arrays import Bools, Floats, Ints

IdPairing = Literal["any", "present", "balanced"]
#: A cell with more than 6,000 questions is cut to 6,000: two a pair.
MOST_PAIRS = 3000


@dataclass(frozen=True, kw_only=True)
class Pairing:
    """How the pairs of the three splits are drawn.

    Attributes:
        id_pairing: ID pairs are drawn from categories that are ``present`` in the image, as those
            of OOD pairs are, from ``any``, annotated or not (nearly all are absent, as most
            categories are; the paper's demonstrations), or ``balanced``, half and half.
        id_pairs: number of ID pairs; None = as many as the larger of the OOD splits.
        most_pairs: a split with more pairs is cut to so many at random; None = none is.
        uncut: the pairs that are cut are drawn, too, with a ``split`` of their own, see
            :data:`~ood_lab.lvlm.benchmarks.oodbench.division.UNCUT`.
    """

    id_pairing: IdPairing = "present"
    id_pairs: Count | None = None
    most_pairs: Count | None = MOST_PAIRS
    uncut: bool = False

    def draw(self, division: pd.DataFrame, labels: ImageLabels, seed: int) -> pd.DataFrame:
        """The pairs to ask about.

        ID pairs are drawn without replacement from those that are in no OOD split, whatever
        has been cut from it. An annotated pair that the division lacks was rejected and is in no
        split.

        Args:
            division: see :func:`~ood_lab.lvlm.benchmarks.oodbench.division.divide`, without
                rejected pairs.
            labels: what is annotated.
            seed: of all draws.

        Returns:
            ``image, category, split, present`` and the columns of the division, where it has the
            pair; splits in the order ID, OOD-S, OOD-H, then what was cut; pairs in the order of
            the images.
        """
        rng = np.random.default_rng(seed)
        whole = [division[division["split"] == split] for split, _ in UNCUT.values()]
        parts = [self._cut(pairs, rng) for pairs in whole]
        wanted = self.id_pairs or max(len(part) for part in parts)
        if self.most_pairs is not None:
            wanted = min(wanted, self.most_pairs)
        sample = [self._id_pairs(division, labels, wanted, rng), *parts]
        if self.uncut:
            for pairs, kept, (_, rest) in zip(whole, parts, UNCUT.values(), strict=True):
                sample.append(pairs.drop(index=kept.index).assign(present=True, split=rest))
        return pd.concat(sample, ignore_index=True)

    def _cut(self, pairs: pd.DataFrame, rng: np.random.Generator) -> pd.DataFrame:
        if self.most_pairs is not None and len(pairs) > self.most_pairs:
            pairs = pairs.iloc[np.sort(rng.choice(len(pairs), self.most_pairs, replace=False))]
        return pairs.assign(present=True)

    def _id_pairs(
        self, division: pd.DataFrame, labels: ImageLabels, wanted: int, rng: np.random.Generator
    ) -> pd.DataFrame:
        """ID pairs with what the models say of them, where they are annotated."""
        free = labels.absent.copy()
        free[labels.places(division[division["split"] == ID])] = True
        chosen = np.sort(self._choice(free, labels.present, wanted, rng))
        images, categories = np.unravel_index(chosen, free.shape)
        pairs = pd.DataFrame(
            {
                "image": [labels.images[row] for row in images],
                "category": [labels.categories[column] for column in categories],
                "present": labels.present.flat[chosen],
            }
        )
        known = division.drop(columns="split")
        return pairs.merge(known, on=["image", "category"], how="left").assign(split=ID)

    def _choice(self, free: Bools, present: Bools, wanted: int, rng: np.random.Generator) -> Ints:
        """Positions in the flattened ``[N, n]``."""
        there, elsewhere = np.flatnonzero(free & present), np.flatnonzero(free & ~present)
        pools = {
            "any": [(np.concatenate([there, elsewhere]), wanted)],
            "present": [(there, wanted)],
            "balanced": [(there, wanted // 2), (elsewhere, wanted - wanted // 2)],
        }[self.id_pairing]
        sample = [rng.choice(pool, min(count, len(pool)), replace=False) for pool, count in pools]
        return np.concatenate(sample)


#: ``split`` of the questions about them.
HARD = "hard"


Gamma = Annotated[float, Interval(ge=0, le=10)]


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

    gamma: Gamma = 2.0
    per_image: Count = 1
    share: Share = 0.1

    def mine(self, proposals: pd.DataFrame, labels: ImageLabels) -> pd.DataFrame:
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
        results = table.assign(split=HARD, present=labels.present[labels.places(table)])
        results = results.sort_values(
            ["category", "hardness"], ascending=[True, False], ignore_index=True
        )
        return results[["image", "category", "split", "present", "p", "hardness"]]
