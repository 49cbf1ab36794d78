"""Groups of answers compared in pairs: sets, criteria, levels of shift, models."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from itertools import combinations
from typing import Any

import numpy as np
import pandas as pd

from ood_lab.errors import UserError
from ood_lab.metrics.intervals import percentile_interval
from ood_lab.metrics.ood import Floats
from ood_lab.metrics.significance import bootstrap_p_values, holm


def pairwise(
    names: Sequence[Any],
    values: Mapping[str, Floats],
    drawn: Mapping[str, Floats],
    n: int,
    first: Any = None,
) -> pd.DataFrame:
    """How groups differ. The p-values are two-sided, Holm-corrected over the pairs of a metric.

    They are a normal approximation with the bootstrap's standard error, see
    :func:`~ood_lab.metrics.significance.bootstrap_p_values`. Its tails are not known from B draws,
    so that none is below ``1 / (B + 1)`` before the correction.

    Args:
        names: of the M groups.
        values: by metric, ``[M]``.
        drawn: by metric, ``[M, B]``, of resamples that all groups share.
        n: clusters that were resampled.
        first: compare this group with each other one only; None = all pairs.

    Returns:
        ``a, b, metric, value_a, value_b, difference, ci_low, ci_high, p_value, p_holm``.
    """
    pairs = [(a, b) for a, b in combinations(range(len(names)), 2) if first in (None, names[a])]
    rows: list[dict[str, Any]] = []
    for metric, value in values.items():
        p_values = bootstrap_p_values(value, drawn[metric])
        least = 1 / (drawn[metric].shape[1] + 1)
        # NaN, where there is no test, stays NaN.
        raw = [float(np.maximum(p_values[a, b], least)) for a, b in pairs]
        for (a, b), p, adjusted in zip(pairs, raw, holm(raw).tolist(), strict=True):
            low, high = percentile_interval(drawn[metric][a] - drawn[metric][b], n)
            rows.append(
                {
                    "a": names[a],
                    "b": names[b],
                    "metric": metric,
                    "value_a": float(value[a]),
                    "value_b": float(value[b]),
                    "difference": float(value[a] - value[b]),
                    "ci_low": float(low),
                    "ci_high": float(high),
                    "p_value": p,
                    "p_holm": adjusted,
                }
            )
    return pd.DataFrame(rows)


def same_questions(judged: Mapping[str, pd.DataFrame]) -> pd.DataFrame:
    """Answers of several models to the same questions, with a column ``model``.

    Raises:
        UserError: they were not asked the same.
    """
    wanted: set[tuple[str, str, str]] | None = None
    for name, table in judged.items():
        found = set(zip(table["question_id"], table["text"], table["truth"], strict=True))
        if wanted is not None and found != wanted:
            missing = len(wanted ^ found)
            raise UserError(
                f"{name} was asked other questions ({missing:,} differ): only answers to the same "
                "questions can be compared"
            )
        wanted = found
    return pd.concat([table.assign(model=name) for name, table in judged.items()])
