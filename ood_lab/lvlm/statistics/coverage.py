"""Is what a benchmark calls OOD in a model's training data? Shares and their bounds."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from functools import cache
from typing import NamedTuple

import inflect
from scipy.stats import beta


class Bounds(NamedTuple):
    """Lower and upper end of an interval for a share."""

    low: float
    high: float


class Overlap(NamedTuple):
    """How many pairs a corpus expresses.

    Attributes:
        expressed: H, pairs whose category is named in a text of the same image.
        pairs: C, all pairs.
        share: ``r = H / C``.
        upper: upper end of the Clopper-Pearson interval.
        below: ``upper < epsilon``: the pairs are not in the corpus, but for a share of epsilon.
    """

    expressed: int
    pairs: int
    share: float
    upper: float
    below: bool


def clopper_pearson(k: int, n: int, level: float = 0.95) -> Bounds:
    """Exact interval of a share: ``BetaInv(a; k, n - k + 1)`` and ``BetaInv(1 - a; k + 1, n - k)``.

    Args:
        k: successes.
        n: trials.
        level: coverage; ``a = (1 - level) / 2``.

    Raises:
        ValueError: not ``0 <= k <= n`` with n > 0.
    """
    _check(k, n)
    tail = (1 - level) / 2
    low = 0.0 if k == 0 else float(beta.ppf(tail, k, n - k + 1))
    high = 1.0 if k == n else float(beta.ppf(1 - tail, k + 1, n - k))
    return Bounds(low, high)


def bayes_interval(k: int, n: int, level: float = 0.95) -> Bounds:
    """Equal-tailed interval under the prior Beta(1, 1): quantiles of ``Beta(k + 1, n - k + 1)``.

    Raises:
        ValueError: not ``0 <= k <= n`` with n > 0.
    """
    _check(k, n)
    tail = (1 - level) / 2
    low, high = beta.ppf([tail, 1 - tail], k + 1, n - k + 1)
    return Bounds(float(low), float(high))


def semantic_overlap(
    pairs: Iterable[tuple[str, str]], texts: Mapping[str, Iterable[str]], epsilon: float
) -> Overlap:
    """Share of pairs whose category is expressed in any training text of the same image.

    Expressed: the name, or its plural, as whole words, whatever the case. The pairs are those of a
    *training* split that was divided by the same rule: a validation split would give false zeros.

    Args:
        pairs: image and category.
        texts: captions and annotations of a model's corpus, by image.
        epsilon: largest share that is negligible.

    Raises:
        ValueError: there is no pair.
    """
    found = [_named(category, texts.get(image, ())) for image, category in pairs]
    upper = clopper_pearson(sum(found), len(found)).high
    share = sum(found) / len(found)
    return Overlap(sum(found), len(found), share, upper, upper < epsilon)


def _named(category: str, texts: Iterable[str]) -> bool:
    return any(_pattern(category).search(text) for text in texts)


@cache
def _pattern(category: str) -> re.Pattern[str]:
    plural = inflect.engine().plural_noun(category) or category
    names = "|".join(re.escape(name) for name in {category, str(plural)})
    return re.compile(rf"(?<!\w)(?:{names})(?!\w)", re.IGNORECASE)


def _check(k: int, n: int) -> None:
    if not 0 <= k <= n or n < 1:
        raise ValueError(f"expected k of n > 0 trials, got {k} of {n}")
