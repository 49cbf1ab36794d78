"""The results of ORIC and of the sets that it is held against."""

from __future__ import annotations

from typing import Any

import pandas as pd

from ood_lab.lvlm.scoring.scored_results import question_kind
from ood_lab.lvlm.scoring.wording_scores import contrasts, wording_rows

KIND = question_kind("oric", "image", "n_items", "p_holm")
#: Sets of ORIC's construction with random samplers in place of both, one or none of its own.
CONSTRUCTIONS = ("uniform", "pos_only", "neg_only", "oric")


def results_of(
    judged: pd.DataFrame, model: str, min_count: int = 10, **resampling: Any
) -> pd.DataFrame:
    """Everything that is reported, a table of :data:`KIND`.

    Args:
        judged: see :func:`ood_lab.lvlm.scoring.wording_scores.wording_rows`.
        model: its name.
        min_count: levels and cells with fewer images are missing.
        resampling: ``draws`` and ``seed``, see
            :func:`~ood_lab.metrics.resampling.clustered_bootstrap.clustered`.
    """
    rows = wording_rows(judged, min_count, **resampling)
    return KIND.table(rows, model=model, seed=resampling.get("seed", 0))


def drops(judged: pd.DataFrame, **resampling: Any) -> pd.DataFrame:
    """What ORIC's samplers cost against random ones: ``uniform`` minus each other construction.

    Returns:
        See :func:`ood_lab.lvlm.scoring.wording_scores.contrasts`; empty unless both have answers.
    """
    order = [name for name in CONSTRUCTIONS if (judged["split"] == name).any()]
    if order[:1] != ["uniform"] or len(order) == 1:
        return pd.DataFrame()
    rows = pd.concat([judged[judged["split"] == name] for name in order])
    return contrasts(rows, "split", first="uniform", **resampling)
