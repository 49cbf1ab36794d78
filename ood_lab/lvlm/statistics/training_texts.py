"""Appendix B: which OOD pairs the texts of a model's training data name."""

from __future__ import annotations

import re
from collections.abc import Collection, Iterable, Mapping, Sequence
from functools import cache
from pathlib import Path
from typing import NamedTuple

import pandas as pd

from ood_lab.common.arguments import Fields
from ood_lab.common.errors import UserError
from ood_lab.common.file_records import file_sha256
from ood_lab.common.files import read_texts
from ood_lab.common.grouping import distinct, grouped
from ood_lab.common.hints import check_known
from ood_lab.lvlm.parsers.base import english
from ood_lab.lvlm.statistics.statistic_tables import Findings
from ood_lab.metrics.resampling.intervals import bayes_interval, clopper_pearson

_COLUMNS = ("category", "synonym")


def read_synonyms(path: Path, categories: Iterable[str]) -> dict[str, list[str]]:
    """Other names of the categories.

    Args:
        path: a CSV with the columns ``category`` and ``synonym``; others are not read.
        categories: those that there are.

    Raises:
        UserError: the file is missing, of another layout, names a category that there is not, or
            has an empty synonym.
    """
    if not path.is_file():
        raise UserError(f"task.synonyms={path}: there is no such file")
    table = read_texts(path, _COLUMNS, f"task.synonyms={path}")
    problem = f"task.synonyms={path} names the category '{{name}}'"
    check_known(table["category"], sorted(set(categories)), problem)
    pairs = list(zip(table["category"], table["synonym"].str.strip(), strict=True))
    for place, (category, synonym) in enumerate(pairs, 1):
        if not synonym:
            raise UserError(f"task.synonyms={path}: synonym {place} (of '{category}') is empty")
    return grouped(distinct(pairs))


class CorpusOverlap(NamedTuple):
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
    synonyms: Mapping[str, Iterable[str]],
) -> CorpusOverlap:
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
    results, by_name = [], 0
    for image, category in pairs:
        known = texts.get(image, ())
        by_own = _named((category,), known)
        by_name += by_own
        results.append(by_own or _named(tuple(synonyms.get(category, ())), known))
    _, upper = clopper_pearson(sum(results), len(results))
    share = sum(results) / len(results)
    return CorpusOverlap(sum(results), by_name, len(results), share, upper, upper < epsilon)


@cache
def naming(names: tuple[str, ...]) -> re.Pattern[str]:
    """Finds a name or the plural of one, as whole words, whatever the case; longest first."""
    every = {*names, *(str(english().plural_noun(name) or name) for name in names)}
    words = "|".join(re.escape(name) for name in sorted(every, key=lambda n: (-len(n), n)))
    return re.compile(rf"(?<!\w)(?:{words})(?!\w)", re.IGNORECASE)


def _named(names: tuple[str, ...], texts: Iterable[str]) -> bool:
    return bool(names) and any(naming(names).search(text) for text in texts)


def add_overlap(
    into: Findings,
    files: Mapping[str, str],
    pairs: Sequence[tuple[str, str]],
    synonyms: str | None,
    categories: Collection[str],
    *,
    epsilon: float,
) -> Fields:
    """``overlap``, a row per model, and ``screening``: how many of them know few of the pairs.

    Args:
        into: where the tables go.
        files: model → CSV with ``image`` and ``text`` of its training data.
        pairs: image and category, which are looked for in the texts.
        synonyms: a file of them.
        categories: that synonyms may be of; not all of them need have a pair.
        epsilon: largest share that is negligible.

    Returns:
        What counts as a name, for the manifest.

    Raises:
        UserError: a file is missing, damaged or lacks a column; see also
            :func:`~ood_lab.lvlm.statistics.training_texts.read_synonyms`.
    """
    known = {} if synonyms is None else read_synonyms(Path(synonyms), categories)
    rows = []
    for model, file in files.items():
        texts = read_texts(Path(file), ("image", "text"), f"task.corpora.{model}={file}")
        by_image = {str(i): list(part) for i, part in texts.groupby("image")["text"]}
        rows.append({"model": model, **semantic_overlap(pairs, by_image, epsilon, known)._asdict()})
    table = pd.DataFrame(rows)
    below, n = int(table["below"].sum()), len(table)
    bounds = {"clopper_pearson": clopper_pearson(below, n), "bayes": bayes_interval(below, n)}
    shares = [(name, n, below, *ends) for name, ends in bounds.items()]
    screening = pd.DataFrame(shares, columns=["interval", "models", "below", "low", "high"])
    into.tables |= {"overlap": table, "screening": screening.assign(epsilon=epsilon)}
    if synonyms is None:
        into.notes["overlap"] = [
            "A text names a category only by its name or its plural: synonyms count once they are "
            "given (task.synonyms=FILE)."
        ]
        return {"named_by": "its name or its plural"}
    into.notes["overlap"] = [
        f"A text names a category by its name, its plural, or one of "
        f"{sum(map(len, known.values())):,} synonyms of {len(known):,} categories "
        f"({Path(synonyms).name})."
    ]
    return {
        "named_by": "its name, a synonym, or the plural of one",
        "synonyms": synonyms,
        "synonyms_sha256": file_sha256(synonyms),
        "synonyms_of": known,
    }
