"""Takes validation and test images off the training images, by class."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import pandas as pd

from ood_lab.common.errors import UserError

#: Images below which a larger share becomes test: intervals rest on their number.
_FEW = 2000


def default_shares(images: int) -> tuple[float, float, float]:
    """Shares of train, val and test for so many images: 30% test below 2,000, else 10%."""
    return (0.6, 0.1, 0.3) if images < _FEW else (0.8, 0.1, 0.1)


def check_shares(shares: Sequence[float]) -> None:
    """Raises :class:`UserError` unless they are three, of train, val and test, with sum 1."""
    if len(shares) != 3 or abs(sum(shares) - 1) > 1e-6:
        raise UserError(f"data.split={shares}: give the shares of train, val, test, sum 1")


def stratified_split(
    labels: np.ndarray, fractions: Sequence[float], seed: int, groups: np.ndarray | None = None
) -> list[np.ndarray]:
    """Divides rows into parts with the same share of every label.

    Where images belong together, groups are divided, and each goes into one part as a whole. Each
    label's rows are shuffled by ``default_rng([seed, label])`` and cut at the rounded
    fractions, so the parts of one class do not depend on the other classes. A part never takes
    the last row of a class from the first part.

    Args:
        labels: ``[N] int64``; -1 (unknown) is treated as one more class.
        fractions: share of the second, third, ... part; the first part keeps the rest.
        seed: the same seed gives the same parts on every machine.
        groups: ``[N]``, equal for rows of one group; None = each row is its own.

    Returns:
        Sorted row numbers of the first part and of one part a fraction.

    Raises:
        UserError: the fractions leave nothing, or a part stays empty.
    """
    if any(f <= 0 for f in fractions) or sum(fractions) >= 1:
        raise UserError(f"data.split: shares {list(fractions)} of train must be > 0 with sum < 1")
    if groups is not None:
        codes, names = pd.factorize(groups)
        of_groups = np.full(len(names), labels.min())
        np.maximum.at(of_groups, codes, labels)
        divided = stratified_split(of_groups, fractions, seed)
        return [np.flatnonzero(np.isin(codes, part)) for part in divided]
    parts: list[list[np.ndarray]] = [[] for _ in range(len(fractions) + 1)]
    for label in np.unique(labels):
        rows = np.flatnonzero(labels == label)
        size = len(rows)
        rows = np.random.default_rng([seed, int(label) + 1]).permutation(rows)
        for part, fraction in enumerate(fractions, start=1):
            count = min(max(1, round(fraction * size)), len(rows) - 1)
            parts[part].append(rows[:count])
            rows = rows[count:]
        parts[0].append(rows)
    chosen = [np.sort(np.concatenate(rows)) for rows in parts]
    if any(len(rows) == 0 for rows in chosen):
        raise UserError(
            f"{len(labels):,} images or groups cannot be split: give val and test their own "
            "folders (data.id.val=DIR data.id.test=DIR)"
        )
    return chosen
