"""Is what a benchmark calls OOD in a model's training data? Shares and their bounds."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from functools import cache
from typing import NamedTuple

from ood_lab.lvlm.questions.grammar import english
from ood_lab.metrics.resampling.intervals import clopper_pearson


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
    _, upper = clopper_pearson(sum(found), len(found))
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
