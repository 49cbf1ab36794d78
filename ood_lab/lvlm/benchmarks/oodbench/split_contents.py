"""What the splits are made of: categories, fields, places and data sets of their pairs."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from functools import wraps
from typing import Any, Concatenate, ParamSpec

import pandas as pd

from ood_lab.lvlm.benchmarks.oodbench.division import SPLITS, TOGETHER, UNCUT
from ood_lab.lvlm.scoring.yes_no_scores import YES_NO

#: Column of the answers, and what it is called.
BY = {"dataset": "data set"} | {each: each for each in ("domain", "place", "field", "category")}
COLUMNS = ("dataset", "split", "by", "value", "field", "pairs", "share")

_Options = ParamSpec("_Options")
_TableOf = Callable[Concatenate[pd.DataFrame, _Options], pd.DataFrame]


def with_uncut(table_of: _TableOf[_Options]) -> _TableOf[_Options]:
    """Adds the uncut splits to a table over splits, where there are answers about their rest.

    All other rows are those of the cut benchmark. The rows of an uncut split are those of its split
    in the table of the uncut benchmark, so that no row counts a question twice.

    Args:
        table_of: from answers with ``split`` to a table with ``split``.
    """

    @wraps(table_of)
    def both(
        judged: pd.DataFrame, /, *args: _Options.args, **options: _Options.kwargs
    ) -> pd.DataFrame:
        cut = table_of(without_rest(judged), *args, **options)
        split = judged["split"]
        parts = {name: parts for name, parts in UNCUT.items() if (split == parts[1]).any()}
        if not parts:
            return cut
        joined = judged.assign(split=split.replace({rest: of for of, rest in parts.values()}))
        every = table_of(joined, *args, **options)
        uncut = [every[every["split"] == of].assign(split=name) for name, (of, _) in parts.items()]
        last = cut["split"] == TOGETHER
        return pd.concat([cut[~last], *uncut, cut[last]], ignore_index=True)

    return both


def without_rest(judged: pd.DataFrame) -> pd.DataFrame:
    """The answers about the cut splits."""
    return judged[~judged["split"].isin([rest for _, rest in UNCUT.values()])]


def with_fields(judged: pd.DataFrame, manifest: Mapping[str, Any]) -> pd.DataFrame:
    """Answers with the ``field`` of their category and the ``domain`` of their images, if known.

    Args:
        judged: see :func:`ood_lab.lvlm.answers.judgements.judge`.
        manifest: of the run, whose ``annotations`` or ``datasets`` name them.
    """
    runs = manifest.get("datasets") or {"": manifest}
    noted = {name: about.get("annotations", {}) for name, about in runs.items()}
    fields = {(name, of[0]): of[1] for name in noted for of in noted[name].get("fields", ())}
    names = judged["dataset"] if "dataset" in judged else pd.Series("", judged.index)
    pairs = zip(names, judged.get("category", names), strict=True)
    field = pd.Series([fields.get(pair) for pair in pairs], judged.index, dtype=object)
    domain = names.map({name: about.get("domain") or None for name, about in noted.items()})
    return judged.assign(field=field, domain=domain)


@with_uncut
def distribution_of(judged: pd.DataFrame) -> pd.DataFrame:
    """How many pairs of every split are of which category, field, place, domain and data set.

    Args:
        judged: see :func:`with_fields`; ``place`` and ``dataset`` where known.

    Returns:
        ``dataset`` ("" where there is but one, and of rows by data set), ``split``, ``by`` (a key
        of :data:`BY`), ``value``, ``field`` of a category, if known, ``pairs``, and
        ``share`` of the pairs of that split and data set; most frequent first.
    """
    rows = judged[judged["task"] == YES_NO]
    keys = [name for name in ("dataset", "split", "image", "category") if name in rows]
    pairs = rows.drop_duplicates(keys)
    found = list(_counts(pairs, ""))
    if "dataset" in pairs:
        parts = pairs.groupby("dataset", sort=False)
        found = [f for f in found if f["by"].isin(["dataset", "domain"]).all()]
        own = pairs.columns.difference(["dataset", "domain"])
        found += [f for name, part in parts for f in _counts(part[own], str(name))]
    table = pd.concat(found, ignore_index=True) if found else pd.DataFrame(columns=list(COLUMNS))
    return table.reindex(columns=list(COLUMNS))


def _counts(pairs: pd.DataFrame, dataset: str) -> Iterator[pd.DataFrame]:
    for by in BY:
        if by not in pairs or pairs[by].isna().all():
            continue
        for split in SPLITS:
            values = pairs.loc[pairs["split"] == split, by].dropna().astype(str)
            counts = values.value_counts()
            table = counts.rename_axis("value").reset_index(name="pairs")
            if by == "category" and "field" in pairs:
                fields = pairs.drop_duplicates("category").set_index("category")["field"]
                table["field"] = table["value"].map(fields)
            yield table.assign(
                dataset=dataset, split=split, by=by, share=table["pairs"] / max(len(values), 1)
            )
