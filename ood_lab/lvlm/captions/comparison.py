"""How sets, levels of covariate shift, and models differ in hallucination."""

from __future__ import annotations

from collections.abc import Mapping
from functools import partial
from typing import Any

import numpy as np
import pandas as pd

from ood_lab.lvlm.answers.judgements import FAILED
from ood_lab.lvlm.captions.caption_scoring import clusters_of
from ood_lab.lvlm.captions.question_kinds import GROUPS
from ood_lab.lvlm.parsers import NO
from ood_lab.lvlm.scoring.scored_results import paired_contrasts
from ood_lab.lvlm.scoring.yes_no_scores import class_counts
from ood_lab.metrics.hallucination import COUNTS, caption_metrics
from ood_lab.metrics.resampling.clustered_bootstrap import Metrics, shares
from ood_lab.metrics.yes_no import yes_no_metrics
from ood_lab.schema.arrays import Floats, Ints

#: Groups of yes/no questions whose metrics are compared.
COMPARED = ("existence", "attribute", "relation", "all")


def contrasts(
    captions: pd.DataFrame,
    judged: pd.DataFrame,
    by: str,
    first: Any = None,
    **resampling: Any,
) -> pd.DataFrame:
    """CHAIR, Cover, Hal, Cog and, of groups, accuracy, recall and F1 of no, compared in pairs.

    Scenes are resampled with all that models say about them, in every style and by every model, so
    that styles and models are compared in pairs; criteria have scenes of their own. Failed requests
    are skipped, and an unparsed answer is wrong.

    Args:
        captions: see :func:`ood_lab.lvlm.captions.caption_scoring.caption_table`.
        judged: see :func:`ood_lab.lvlm.answers.judgements.judge`.
        by: column that tells the groups apart, such as ``split``, ``covariate_level``, ``model``.
        first: compare this group with each other one only; None = all pairs.
        resampling: ``draws`` and ``seed``, see
            :func:`~ood_lab.metrics.resampling.clustered_bootstrap.clustered`.

    Returns:
        See :func:`ood_lab.metrics.resampling.clustered_bootstrap.contrast`.
    """
    names = pd.concat([captions[by], judged[by]]).drop_duplicates().tolist()
    captions, judged = (rows[rows["status"] != FAILED] for rows in (captions, judged))
    sides: list[tuple[pd.DataFrame, Ints, Metrics]] = [
        (captions, captions[list(COUNTS)].to_numpy(np.int64), caption_metrics)
    ]
    for group in COMPARED:
        asked = judged[judged["task"].isin(GROUPS[group])]
        right = asked["correct"].astype(bool)
        counts = np.stack([right, np.ones(len(right))], axis=1).astype(np.int64)
        sides.append((asked, counts, partial(shares, [f"{group}_accuracy"])))
        sides.append((asked, class_counts(asked, NO), partial(_of_no, group)))
    tables = [pd.DataFrame()]
    tables += [
        paired_contrasts(counts, clusters_of(rows), rows[by], metrics, names, first, **resampling)
        for rows, counts, metrics in sides
        if len(rows)
    ]
    return pd.concat(tables, ignore_index=True)


def _of_no(group: str, counts: Ints) -> Mapping[str, Floats]:
    found = yes_no_metrics(counts)
    return {f"{group}_{metric}": found[metric] for metric in ("recall", "f1")}
