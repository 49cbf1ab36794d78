"""How sets, levels of covariate shift, and models differ in hallucination."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from functools import partial
from typing import Any

import numpy as np
import pandas as pd
from numpy.typing import NDArray

from ood_lab.lvlm.answers.judgements import FAILED
from ood_lab.lvlm.captions.caption_scoring import clusters_of
from ood_lab.lvlm.captions.question_kinds import GROUPS
from ood_lab.lvlm.parsers import NO
from ood_lab.lvlm.scoring.yes_no_scores import class_counts
from ood_lab.metrics.hallucination import COUNTS, caption_metrics
from ood_lab.metrics.ood import Floats
from ood_lab.metrics.resampling.clustered_bootstrap import (
    Metrics,
    cluster_sums,
    clustered,
    contrast,
    shares,
)
from ood_lab.metrics.yes_no import yes_no_metrics

#: Groups of yes/no questions whose metrics are compared.
COMPARED = ("existence", "attribute", "relation", "all")
_OUTCOMES = ["tp", "fp", "tn", "fn"]


def contrasts(
    captions: pd.DataFrame,
    judged: pd.DataFrame,
    by: str,
    *,
    draws: int = 1000,
    seed: int = 0,
    first: Any = None,
) -> pd.DataFrame:
    """CHAIR, Cover, Hal, Cog and, of groups, accuracy, recall and F1 of no, compared in pairs.

    Scenes are resampled with all that models say about them, in every style and by every model, so
    that styles and models are compared in pairs; criteria have scenes of their own. Failed requests
    are skipped, and an unparsed answer is wrong.

    Args:
        captions: see :func:`ood_lab.lvlm.captions.caption_scoring.caption_table`.
        judged: see :func:`ood_lab.lvlm.answers.judgements.judge`.
        by: column that tells the groups apart, such as ``split``, ``covariate_level``, ``model``.
        draws: bootstrap resamples.
        seed: of the draws.
        first: compare this group with each other one only; None = all pairs.

    Returns:
        See :func:`ood_lab.metrics.resampling.clustered_bootstrap.contrast`.
    """
    names = pd.concat([captions[by], judged[by]]).drop_duplicates().tolist()
    options = {"draws": draws, "seed": seed}
    tables = [_pairs(captions, COUNTS, caption_metrics, by, names, first, options)]
    for group in COMPARED:
        asked = judged[judged["task"].isin(GROUPS[group])]
        asked = asked.assign(right=asked["correct"].astype(bool).astype(int), asked=1)
        accuracy = partial(shares, [f"{group}_accuracy"])
        tables.append(_pairs(asked, ["right", "asked"], accuracy, by, names, first, options))
        counts = pd.DataFrame(class_counts(asked, NO), asked.index, columns=_OUTCOMES)
        of_no = partial(_of_no, group)
        tables.append(_pairs(asked.join(counts), _OUTCOMES, of_no, by, names, first, options))
    return pd.concat(tables, ignore_index=True)


def _of_no(group: str, counts: NDArray[np.int64]) -> Mapping[str, Floats]:
    found = yes_no_metrics(counts)
    return {f"{group}_{metric}": found[metric] for metric in ("recall", "f1")}


def _pairs(
    rows: pd.DataFrame,
    columns: Sequence[str],
    metrics: Metrics,
    by: str,
    names: Sequence[Any],
    first: Any,
    options: Mapping[str, int],
) -> pd.DataFrame:
    rows = rows[rows["status"] != FAILED]
    if not len(rows):
        return pd.DataFrame()
    group = pd.Index(names).get_indexer(rows[by])
    counts = rows[list(columns)].to_numpy(np.int64)
    sums = cluster_sums(counts, clusters_of(rows), group, len(names))
    return contrast(names, clustered(sums, metrics, **options), first)
