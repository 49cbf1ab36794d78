"""What the splits are made of: categories, places and data sets of the pairs of the questions."""

from __future__ import annotations

from collections.abc import Iterator

import pandas as pd

from ood_lab.lvlm.benchmarks.oodbench.division import SPLITS
from ood_lab.lvlm.scoring.yes_no_scores import YES_NO

#: Column of the answers, and what it is called.
BY = {"dataset": "data set", "place": "place", "category": "category"}
COLUMNS = ("dataset", "split", "by", "value", "pairs", "share")


def distribution_of(judged: pd.DataFrame) -> pd.DataFrame:
    """How many pairs of every split are of which category, place and data set.

    Args:
        judged: see :func:`ood_lab.lvlm.answers.judgements.judge`; ``place`` and ``dataset``
            where known.

    Returns:
        ``dataset`` ("" where there is but one, and of rows by data set), ``split``, ``by`` (a key
        of :data:`BY`), ``value``, ``pairs``, and ``share`` of the pairs of that split and data set;
        most frequent first.
    """
    rows = judged[judged["task"] == YES_NO]
    keys = [name for name in ("dataset", "split", "image", "category") if name in rows]
    pairs = rows.drop_duplicates(keys)
    found = list(_counts(pairs, ""))
    if "dataset" in pairs:
        parts = pairs.groupby("dataset", sort=False)
        found = [f for f in found if (f["by"] == "dataset").all()]
        found += [
            f for name, part in parts for f in _counts(part.drop(columns="dataset"), str(name))
        ]
    table = pd.concat(found, ignore_index=True) if found else pd.DataFrame(columns=list(COLUMNS))
    return table[list(COLUMNS)]


def _counts(pairs: pd.DataFrame, dataset: str) -> Iterator[pd.DataFrame]:
    for by in BY:
        if by not in pairs or pairs[by].isna().all():
            continue
        for split in SPLITS:
            values = pairs.loc[pairs["split"] == split, by].dropna().astype(str)
            counts = values.value_counts()
            table = counts.rename_axis("value").reset_index(name="pairs")
            yield table.assign(
                dataset=dataset, split=split, by=by, share=table["pairs"] / max(len(values), 1)
            )
