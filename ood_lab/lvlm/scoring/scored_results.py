"""What the results of all question benchmarks have in common."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any, NamedTuple

import pandas as pd

from ood_lab.lvlm.answers.judgements import PARSED, SIZES, sizes_of
from ood_lab.metrics.resampling.clustered_bootstrap import Estimate
from ood_lab.schema.results import PART, Kind
from ood_lab.schema.shift_axes import LEVELS

#: ``split`` of all sets together: pooled counts, not a mean of the sets.
POOLED = "pooled"


def question_kind(name: str, unit: str, *more: str) -> Kind:
    """The kind of a question benchmark: its rows are of one ``split``.

    Args:
        name: of the benchmark.
        unit: what is resampled.
        more: keys and counts that only this benchmark has.
    """
    return Kind(name, unit, ("split", PART, *more, *SIZES))


class Place(NamedTuple):
    """Where a group of answers belongs, as columns of the results, and its rows."""

    keys: Mapping[str, Any]
    rows: pd.DataFrame


def places(
    rows: pd.DataFrame,
    splits: Sequence[str],
    unit: str,
    min_count: int,
    finer: Sequence[str] = (),
    every: str = POOLED,
) -> Iterator[Place]:
    """Whole sets, then every known level of shift, every cell of two, and every other part.

    Args:
        rows: with ``split``; levels and finer keys as far as they are known.
        splits: in order; ``every`` = all rows.
        unit: column that tells apart what is resampled.
        min_count: levels, cells and finer parts with fewer units are missing.
        finer: further columns by which each set is divided; name and value are the part.
        every: what all rows together are called.
    """
    if not len(rows):
        return
    parts = {s: rows if s == every else rows[rows["split"] == s] for s in splits}
    parts = {split: part for split, part in parts.items() if len(part)}
    for split, part in parts.items():
        yield Place({"split": split}, part)
    known = [name for name in LEVELS if name in rows]
    keys = [[name] for name in known] + ([known] if len(known) == 2 else [])
    for split, part in parts.items():
        for names in keys:
            for values, cell in part.groupby(names, sort=True):
                if cell[unit].nunique() >= min_count:
                    yield Place({"split": split, **dict(zip(names, values, strict=True))}, cell)
        for name in finer:
            for value, cell in part.groupby(name, sort=True) if name in part else ():
                if cell[unit].nunique() >= min_count:
                    shown = f"{value:g}" if isinstance(value, int | float) else str(value)
                    yield Place({"split": split, PART: f"{name} {shown}"}, cell)


def estimate_rows(
    place: Mapping[str, Any], found: Mapping[str, Estimate], n: int, asked: pd.DataFrame
) -> list[dict[str, Any]]:
    """Rows of a results table.

    Args:
        place: keys of the rows.
        found: estimates by metric.
        n: units that were resampled.
        asked: the questions behind them, answered or not; see
            :func:`ood_lab.lvlm.answers.judgements.judge`.
    """
    common = {**place, "n": n, **sizes_of(asked)}
    return [
        {**common, "metric": metric, "value": e.value, "ci_low": e.low, "ci_high": e.high}
        for metric, e in found.items()
    ]


def any_read(rows: pd.DataFrame) -> bool:
    """Whether any answer could be read.

    Where none was, to be wrong everywhere would say more of the parser than of the model.
    """
    return bool((rows["status"] == PARSED).any())
