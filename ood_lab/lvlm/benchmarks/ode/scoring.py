"""The results of ODE: by criterion, kind of pair, shift, and distance in the graph."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import pandas as pd

from ood_lab.lvlm.captions.caption_scoring import caption_kind, result_rows

KIND = caption_kind("ode")
#: Numbers and words by which sets are divided: edges between the two concepts in the graph (0 =
#: not connected), whether both are entities (ee) or the second an environment (ev), and the
#: criterion where the sets are origins.
DISTANCE, PAIR_KIND, CRITERION = "distance", "kind", "criterion"


def results_of(
    captions: pd.DataFrame,
    judged: pd.DataFrame,
    model: str,
    splits: Sequence[str],
    *,
    seed: int = 0,
    **options: Any,
) -> pd.DataFrame:
    """Everything that is reported, a table of :data:`KIND`.

    Args:
        captions: see :func:`ood_lab.lvlm.captions.caption_scoring.caption_table`.
        judged: see :func:`ood_lab.lvlm.answers.judgements.judge`, of the yes/no questions.
        model: its name.
        splits: names of the criteria, in order.
        seed: of the draws.
        options: of :func:`ood_lab.lvlm.captions.caption_scoring.result_rows`.
    """
    finer = (DISTANCE, PAIR_KIND, CRITERION)
    rows = result_rows(captions, judged, splits, finer=finer, seed=seed, **options)
    return KIND.table(rows, model=model, seed=seed)
