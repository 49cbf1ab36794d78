"""Objects of interest and their background: what is smaller than the median of its image."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import pandas as pd

from ood_lab.lvlm.annotations.cooccurrence import Cooccurrence
from ood_lab.lvlm.annotations.image_contents import Contents
from ood_lab.schema.arrays import Bools, Floats, Ints


@dataclass(frozen=True)
class Regions:
    """Which entries of ``Contents`` are objects of interest.

    ``ROI = {i: A_i < median(A)}`` and ``nonROI = {i: A_i >= median(A)}`` over the categories of an
    image, with the areas ``A_i`` of the unions of their boxes.

    Attributes:
        contents: of all images.
        interest: ``[E] bool``.
        expected: ``P(i | nonROI)`` of every entry, ``[E]``; see
            :mod:`ood_lab.lvlm.annotations.cooccurrence`.
        rank: of ``expected`` among the objects of interest of all eligible images: the share of
            them that is less expected, ``[E]``.
    """

    contents: Contents
    interest: Bools
    expected: Floats
    rank: Floats

    def background(self, row: int) -> list[str]:
        """Names of the nonROI categories of an image."""
        where = self.contents.entries(row)
        return self.contents.names(self.contents.codes[where][~self.interest[where]])


def regions_of(contents: Contents, eligible: Ints) -> Regions:
    """Objects of interest of all images.

    Args:
        contents: of all images.
        eligible: images among whose objects of interest ``rank`` is taken.
    """
    sizes, rows = np.diff(contents.starts), contents.rows
    areas = pd.Series(contents.areas)
    interest = np.asarray(areas < areas.groupby(rows).transform("median"))
    background = np.zeros_like(contents.present)
    background[rows[~interest], contents.codes[~interest]] = True
    every = Cooccurrence(contents.present).expected(np.arange(len(contents)), background)
    expected = every[rows, contents.codes]
    among = np.zeros(len(sizes), bool)
    among[eligible] = True
    pool = np.sort(expected[interest & among[rows]])
    rank = np.searchsorted(pool, expected, side="left") / max(len(pool), 1)
    return Regions(contents, interest, expected, rank)
