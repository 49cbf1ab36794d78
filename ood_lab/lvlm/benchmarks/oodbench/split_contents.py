"""What the splits are made of: categories, fields, places and data sets of their pairs."""

from __future__ import annotations

from collections.abc import Callable
from functools import wraps
from typing import Concatenate, ParamSpec

import pandas as pd

from ood_lab.lvlm.benchmarks.oodbench.division import SPLITS, TOGETHER, UNCUT
from ood_lab.lvlm.object_questions.pair_distribution import distribution
from ood_lab.lvlm.scoring.yes_no_scores import YES_NO
from ood_lab.schema.run_record import RunRecord

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


def with_fields(judged: pd.DataFrame, record: RunRecord) -> pd.DataFrame:
    """Answers with the ``field`` of their category and the ``domain`` of their images, if known.

    Args:
        judged: see :func:`ood_lab.lvlm.answers.judgements.judge`.
        record: of the run, whose ``annotations`` or ``datasets`` name them.
    """
    noted = {name: about.get("annotations", {}) for name, about in record.datasets.items()}
    noted = noted or {"": record.annotations}
    fields = {(name, of[0]): of[1] for name in noted for of in noted[name].get("fields", ())}
    names = judged["dataset"] if "dataset" in judged else pd.Series("", judged.index)
    pairs = zip(names, judged.get("category", names), strict=True)
    field = pd.Series([fields.get(pair) for pair in pairs], judged.index, dtype=object)
    domain = names.map({name: about.get("domain") or None for name, about in noted.items()})
    return judged.assign(field=field, domain=domain)


@with_uncut
def distribution_of(judged: pd.DataFrame) -> pd.DataFrame:
    """See :func:`ood_lab.lvlm.object_questions.pair_distribution.distribution`.

    Args:
        judged: see :func:`with_fields`.
    """
    return distribution(judged[judged["task"] == YES_NO], SPLITS)
