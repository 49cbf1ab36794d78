"""How right answers are by how expected, and by how large, the object is."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np
import pandas as pd

from ood_lab.lvlm.answers.judgements import FAILED
from ood_lab.lvlm.object_questions.object_facts import TIERS
from ood_lab.lvlm.object_questions.question_sets import SUBSET
from ood_lab.lvlm.object_questions.set_analyses import TIER_SHARES
from ood_lab.lvlm.parsers import YES
from ood_lab.lvlm.scoring.scored_results import columns_of
from ood_lab.lvlm.scoring.wording_scores import scored
from ood_lab.schema.results import NamedTables


def context_tables(judged: pd.DataFrame, bins: int, **resampling: Any) -> NamedTables:
    """``context`` and ``tiers``, of what is known of the questions.

    Args:
        judged: answers of all sets.
        bins: see :func:`curve_of`, which skips the sets that are drawn from others.
        resampling: ``draws`` and ``seed``, see
            :func:`~ood_lab.metrics.resampling.clustered_bootstrap.clustered`.
    """
    if "p_context" in judged:
        whole = judged[~judged["split"].str.endswith(SUBSET)]
        yield "context", curve_of(whole, bins, **resampling)
    if "tier" in judged:
        yield "tiers", by_tier(judged, **resampling)


def curve_of(judged: pd.DataFrame, bins: int = 6, **resampling: Any) -> pd.DataFrame:
    """How often answers are right, by how expected the object is: ``P(object | context)``.

    The questions of all sets together are cut at quantiles of ``p_context``, once for each right
    answer: what is present is missed more often where it is not expected, what is absent is seen
    more often where it is. Intervals resample images.

    Args:
        judged: with ``p_context``; of sets that share no questions.
        bins: of each curve, at most (equal quantiles fall together).
        resampling: ``draws`` and ``seed``, see
            :func:`~ood_lab.metrics.resampling.clustered_bootstrap.clustered`.

    Returns:
        ``split, truth, low, high, p_context`` (mean in the bin), ``n, n_images, accuracy, ci_low,
        ci_high``; ``split`` is "all" or the name of a set.
    """
    rows: list[dict[str, Any]] = []
    known = judged[judged["p_context"].notna() & (judged["status"] != FAILED)]
    for truth, part in known.groupby("truth", sort=True):
        edges = np.unique(np.quantile(part["p_context"], np.linspace(0, 1, bins + 1)))
        place = np.clip(np.searchsorted(edges, part["p_context"], side="right") - 1, 0, None)
        cut = part.assign(bin=np.minimum(place, max(len(edges) - 2, 0)))
        groups = [("all", cut), *cut.groupby("split", sort=False)]
        for split, table in groups:
            for number, cell in table.groupby("bin", sort=True):
                low = float(edges[int(number)])
                high = float(edges[min(int(number) + 1, len(edges) - 1)])
                about = {"split": split, "truth": truth, "low": low, "high": high}
                rows.append(about | _accuracy(cell, resampling))
    columns = ["split", "truth", "low", "high", "p_context", "n", "n_images"]
    return pd.DataFrame(rows).reindex(columns=[*columns, "accuracy", "ci_low", "ci_high"])


def by_tier(judged: pd.DataFrame, **resampling: Any) -> pd.DataFrame:
    """Share of the objects that are seen (recall of "yes"), by tier of size and set.

    Returns:
        ``split, edges, tier, n, n_images, accuracy, ci_low, ci_high``; ``edges`` is ``tier`` or
        ``coco_tier``: the column that says which tier.
    """
    rows = [
        {"split": split, "edges": column, "tier": tier} | _accuracy(cell, resampling)
        for column in TIER_SHARES.values()
        if column in judged
        for split, part in judged[judged["status"] != FAILED].groupby("split", sort=False)
        for tier in TIERS
        if len(cell := part[(part["truth"] == YES) & (part[column] == tier)])
    ]
    columns = ["split", "edges", "tier", "n", "n_images", "accuracy", "ci_low", "ci_high"]
    return pd.DataFrame(rows).reindex(columns=columns)


def _accuracy(rows: pd.DataFrame, resampling: Mapping[str, Any]) -> dict[str, Any]:
    found = columns_of(scored(rows, **resampling).estimates()["accuracy"])
    return {
        "p_context": float(rows["p_context"].mean()),
        "n": int(rows["question_id"].nunique()),
        "n_images": int(rows["pair_id"].nunique()),
        "accuracy": found.pop("value"),
        **found,
    }
