"""Is what a benchmark calls OOD in a model's training data? Shares and their bounds."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from functools import cache
from typing import NamedTuple

import scipy  # loads scipy.special when it is used

from ood_lab.lvlm.questions.grammar import english


class Bounds(NamedTuple):
    """Lower and upper end of an interval for a share."""

    low: float
    high: float


class Overlap(NamedTuple):
    """How many pairs a corpus expresses.

    Attributes:
        expressed: H, pairs whose category is named in a text of the same image.
        by_name: those of them whose category is named by its own name or its plural; the others
            are named only by a synonym.
        pairs: C, all pairs.
        share: ``r = H / C``.
        upper: upper end of the Clopper-Pearson interval.
        below: ``upper < epsilon``: the pairs are not in the corpus, but for a share of epsilon.
    """

    expressed: int
    by_name: int
    pairs: int
    share: float
    upper: float
    below: bool


def clopper_pearson(k: int, n: int, level: float = 0.95) -> Bounds:
    """Exact interval of a share: ``BetaInv(a; k, n - k + 1)`` and ``BetaInv(1 - a; k + 1, n - k)``.

    Args:
        k: successes.
        n: trials, at least 1.
        level: coverage; ``a = (1 - level) / 2``.
    """
    tail = (1 - level) / 2
    low = 0.0 if k == 0 else float(scipy.special.betaincinv(k, n - k + 1, tail))
    high = 1.0 if k == n else float(scipy.special.betaincinv(k + 1, n - k, 1 - tail))
    return Bounds(low, high)


def bayes_interval(k: int, n: int, level: float = 0.95) -> Bounds:
    """Equal-tailed interval under the prior Beta(1, 1): quantiles of ``Beta(k + 1, n - k + 1)``."""
    tail = (1 - level) / 2
    low, high = scipy.special.betaincinv(k + 1, n - k + 1, [tail, 1 - tail])
    return Bounds(float(low), float(high))


def semantic_overlap(
    pairs: Iterable[tuple[str, str]],
    texts: Mapping[str, Iterable[str]],
    epsilon: float,
    synonyms: Mapping[str, Iterable[str]] | None = None,
) -> Overlap:
    """Share of pairs whose category is expressed in any training text of the same image.

    Expressed: the name or a given synonym, or the plural of one, as whole words, whatever the case.
    The pairs are those of a *training* split that was divided by the same rule: a validation split
    would give false zeros.

    Args:
        pairs: image and category.
        texts: captions and annotations of a model's corpus, by image.
        epsilon: largest share that is negligible.
        synonyms: other names of a category.
    """
    found, by_name = [], 0
    for image, category in pairs:
        known = texts.get(image, ())
        by_own = _named((category,), known)
        by_name += by_own
        found.append(by_own or _named(tuple((synonyms or {}).get(category, ())), known))
    upper = clopper_pearson(sum(found), len(found)).high
    share = sum(found) / len(found)
    return Overlap(sum(found), by_name, len(found), share, upper, upper < epsilon)


@cache
def naming(names: tuple[str, ...]) -> re.Pattern[str]:
    """Finds a name or the plural of one, as whole words, whatever the case; longest first."""
    every = {*names, *(str(english().plural_noun(name) or name) for name in names)}
    words = "|".join(re.escape(name) for name in sorted(every, key=lambda n: (-len(n), n)))
    return re.compile(rf"(?<!\w)(?:{words})(?!\w)", re.IGNORECASE)


def _named(names: tuple[str, ...], texts: Iterable[str]) -> bool:
    return bool(names) and any(naming(names).search(text) for text in texts)
