"""POPE's questions from any annotations."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal, get_args

import numpy as np
import pandas as pd

from ood_lab.common.arguments import Count
from ood_lab.common.errors import UserError
from ood_lab.lvlm.annotations.cooccurrence import pair_counts
from ood_lab.lvlm.annotations.image_contents import Contents
from ood_lab.lvlm.parsers import NO, YES
from ood_lab.schema.arrays import Ints

Sampling = Literal["random", "popular", "adversarial"]
SAMPLINGS: tuple[Sampling, ...] = get_args(Sampling)
_STREAM = 2


@dataclass(frozen=True, kw_only=True)
class Pope:
    """How POPE draws its questions.

    Of images with at least ``per_image`` categories, the first ``per_image`` get a question, each
    followed by one that is absent: any (``random``), the most frequent one (``popular``), or the
    one that occurs most often with the object before it (``adversarial``); any, where none occurs.
    No absent object is repeated within an image.

    Frequencies are those in the drawn images, as POPE counts them. A random absent object may be of
    any category; POPE takes only those that some drawn image has.

    Attributes:
        images: to draw.
        per_image: objects of an image.
    """

    images: Count = 500
    per_image: Count = 3

    def build(self, contents: Contents, sampling: Sampling, seed: int) -> pd.DataFrame:
        """The questions, yes and no in turn: ``pair, row, object, label``; ``pair`` is an image.

        The images are the same for each kind of sampling.

        Args:
            contents: what is in N images.
            sampling: of the absent objects.
            seed: of all draws.

        Raises:
            UserError: no image has enough categories, or enough absent ones.
        """
        sizes, absent = np.diff(contents.starts), (~contents.present).sum(axis=1)
        eligible = np.flatnonzero((sizes >= self.per_image) & (absent >= self.per_image))
        if not len(eligible):
            raise UserError(
                f"POPE's questions need images with {self.per_image} categories and as many that "
                "are absent; there is none: set task.pope=[]"
            )
        order = np.random.default_rng([seed, _STREAM]).permutation(eligible)[: self.images]
        together = pair_counts(contents.present[order]).astype(np.int64)
        rows = []
        for pair, row in enumerate(order.tolist()):
            rng = np.random.default_rng([seed, row, _STREAM])
            free = np.flatnonzero(~contents.present[row])
            for code in contents.codes[contents.entries(row)][: self.per_image].tolist():
                chosen = _absent(code, free, together, sampling, rng)
                free = free[free != chosen]
                for each, label in ((code, YES), (chosen, NO)):
                    rows.append((pair, row, contents.categories[each], label))
        return pd.DataFrame(rows, columns=["pair", "row", "object", "label"])


def _absent(
    code: int, free: Ints, together: Ints, sampling: Sampling, rng: np.random.Generator
) -> int:
    """The absent object that goes with an object; of equals the first category."""
    if sampling == "popular" and np.diag(together)[free].any():
        return int(free[np.argmax(np.diag(together)[free])])
    if sampling == "adversarial" and together[code, free].any():
        return int(free[np.argmax(together[code, free])])
    return int(rng.choice(free))
