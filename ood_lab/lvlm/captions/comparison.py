"""How sets, levels of covariate shift, models and runs differ in hallucination."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from functools import partial
from typing import Any

import numpy as np
import pandas as pd

from ood_lab.lvlm.answers.judgements import FAILED, PARSED
from ood_lab.lvlm.captions.caption_scoring import OF_NO, clusters_of
from ood_lab.lvlm.parsers import NO
from ood_lab.lvlm.questions.question_files import GROUPS
from ood_lab.lvlm.scoring.scored_results import POOLED, paired_contrasts
from ood_lab.lvlm.scoring.yes_no_scores import class_counts
from ood_lab.metrics.answer_metrics import CAPTION_METRICS, COUNTS, caption_metrics, yes_no_metrics
from ood_lab.metrics.resampling.clustered_bootstrap import (
    Metrics,
    cluster_sums,
    resampled_sums,
    shares,
)
from ood_lab.metrics.resampling.intervals import percentile_interval
from ood_lab.schema.arrays import Floats, Ints

#: Groups of yes/no questions whose metrics are compared.
COMPARED = ("existence", "attribute", "relation", "all")
#: Those whose change since another run is reported.
_CHANGED = ("existence", "attribute", "all")


def contrasts(
    captions: pd.DataFrame, judgements: pd.DataFrame, by: str, first: Any = None, **resampling: Any
) -> pd.DataFrame:
    """CHAIR, Cover, Hal, Cog and, of groups, accuracy, recall and F1 of no, compared in pairs.

    Scenes are resampled with all that models say about them, in every style and by every model, so
    that styles and models are compared in pairs; criteria have scenes of their own. Failed requests
    are skipped, and an unparsed answer is wrong.

    Args:
        captions: see :func:`ood_lab.lvlm.captions.caption_scoring.caption_table`.
        judgements: see :func:`ood_lab.lvlm.answers.judgements.judge`.
        by: column that tells the groups apart, such as ``split``, ``covariate_level``, ``model``.
        first: compare this group with each other one only; None = all pairs.
        resampling: ``draws`` and ``seed``, see
            :func:`~ood_lab.metrics.resampling.clustered_bootstrap.clustered`.

    Returns:
        See :func:`ood_lab.metrics.resampling.clustered_bootstrap.contrast`.
    """
    names = pd.concat([captions[by], judgements[by]]).drop_duplicates().tolist()
    captions, judgements = (rows[rows["status"] != FAILED] for rows in (captions, judgements))
    sides: list[tuple[pd.DataFrame, Ints, Metrics]] = [
        (captions, captions[list(COUNTS)].to_numpy(np.int64), caption_metrics)
    ]
    for group in COMPARED:
        of_group = judgements[judgements["task"].isin(GROUPS[group])]
        right = of_group["correct"].astype(bool)
        counts = np.stack([right, np.ones(len(right))], axis=1).astype(np.int64)
        sides.append((of_group, counts, partial(shares, [f"{group}_accuracy"])))
        sides.append((of_group, class_counts(of_group, NO), partial(_of_no, group)))
    tables = [pd.DataFrame()]
    tables += [
        paired_contrasts(counts, clusters_of(rows), rows[by], metrics, names, first, **resampling)
        for rows, counts, metrics in sides
        if len(rows)
    ]
    return pd.concat(tables, ignore_index=True)


def _of_no(group: str, counts: Ints) -> Mapping[str, Floats]:
    results = yes_no_metrics(counts)
    return {f"{group}_{metric}": results[metric] for metric in ("recall", "f1")}


def changes(
    before: tuple[pd.DataFrame, pd.DataFrame],
    after: tuple[pd.DataFrame, pd.DataFrame],
    splits: Sequence[str],
    *,
    draws: int = 1000,
    seed: int = 0,
) -> pd.DataFrame:
    """A run minus one before it, with 95% intervals.

    The images are other ones, so that both are resampled on their own.

    Args:
        before: captions, see :func:`ood_lab.lvlm.captions.caption_scoring.caption_table`, and
            answers to yes/no questions, see :func:`ood_lab.lvlm.answers.judgements.judge`.
        after: the same of the later run.
        splits: sets, in order.
        draws: bootstrap resamples.
        seed: of the draws.

    Returns:
        ``split, metric, before, after, change, ci_low, ci_high``; sets that both have, and all of
        them pooled.
    """
    (old_captions, old_judged), (captions, judgements) = before, after
    rng = np.random.default_rng(seed)
    both = [name for name in splits if name in set(old_captions["split"])]
    rows: list[dict[str, Any]] = []
    for split in [*both, POOLED]:
        parts = [_part(table, split, both) for table in (old_captions, captions)]
        sides = [("", CAPTION_METRICS, caption_metrics, [_caption_counts(part) for part in parts])]
        parts = [_part(table, split, both) for table in (old_judged, judgements)]
        sides += [
            (f"{group}_", OF_NO, yes_no_metrics, [_answer_counts(part, group) for part in parts])
            for group in _CHANGED
        ]
        for group, names, metrics, counts in sides:
            if all(map(len, counts)):
                results = _change(counts, metrics, draws, rng)
                rows += [{"split": split, "metric": f"{group}{m}", **results[m]} for m in names]
    return pd.DataFrame(rows)


def _part(table: pd.DataFrame, split: str, both: Sequence[str]) -> pd.DataFrame:
    return table[table["split"].isin(both) if split == POOLED else table["split"] == split]


def _caption_counts(rows: pd.DataFrame) -> Ints:
    kept = rows[rows["status"] == PARSED]
    return cluster_sums(kept[list(COUNTS)].to_numpy(np.int64), clusters_of(kept))


def _answer_counts(rows: pd.DataFrame, group: str) -> Ints:
    kept = rows[rows["task"].isin(GROUPS[group]) & (rows["status"] != FAILED)]
    return cluster_sums(class_counts(kept, NO), clusters_of(kept))


def _change(
    counts: Sequence[Ints], metrics: Metrics, draws: int, rng: np.random.Generator
) -> dict[str, dict[str, float]]:
    """``before, after, change`` and its interval, by metric."""
    before, after = (metrics(item.sum(axis=0)) for item in counts)
    first, second = (metrics(resampled_sums(item, draws, rng)) for item in counts)
    results = {}
    for metric in before:
        ends = percentile_interval(second[metric] - first[metric], min(map(len, counts)))
        old, new, low, high = map(float, (before[metric], after[metric], *ends))
        results[metric] = {"before": old, "after": new, "change": new - old}
        results[metric] |= {"ci_low": low, "ci_high": high}
    return results
