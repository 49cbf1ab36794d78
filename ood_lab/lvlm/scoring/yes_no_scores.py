"""Yes/no questions, scored in pairs: metrics of every set, and how models differ."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from functools import partial
from typing import Any, Literal

import numpy as np
import pandas as pd
from numpy.typing import NDArray

from ood_lab.common.arguments import Fields
from ood_lab.common.grouping import distinct
from ood_lab.common.random_streams import Resampling
from ood_lab.lvlm.answers.judgements import FAILED, PARSED, UNPARSED, sizes_of
from ood_lab.lvlm.parsers import PARSERS, YES, parser_named
from ood_lab.lvlm.questions.question_files import RESAMPLED, YES_NO
from ood_lab.lvlm.scoring.scored_results import (
    POOLED,
    any_read,
    columns_of,
    estimate_rows,
    paired_contrasts,
    places,
)
from ood_lab.metrics.answer_metrics import outcome_counts, yes_no_metrics
from ood_lab.metrics.resampling.clustered_bootstrap import (
    Metrics,
    cluster_sums,
    clustered,
    clustered_mean,
)
from ood_lab.metrics.resampling.intervals import Estimate
from ood_lab.schema.arrays import Floats, Ints
from ood_lab.schema.image_columns import LEVELS
from ood_lab.schema.results import Row

#: What becomes of an answer that cannot be read: its pair is left out, or it counts as wrong.
Unparsed = Literal["drop_pair", "wrong"]
WAYS: tuple[Unparsed, ...] = ("wrong", "drop_pair")
COUNTS = ["tp", "fp", "tn", "fn", "unread_yes", "unread_no"]
#: Metric, and what it is called in tables; in this order.
METRICS = {
    "accuracy": "Acc",
    "precision": "P",
    "recall": "R",
    "f1": "F1",
    "mcc": "MCC",
    "yes_rate": "yes-rate",
}


#: The sum of :func:`score_rows`, as :data:`METRICS`.
SCORE = {"score": "score"}


def yes_no_rows(
    judgements: pd.DataFrame,
    splits: Sequence[str],
    first: Unparsed,
    *,
    groups: Mapping[str, str] | None = None,
    finer: Sequence[str] = (),
    every: str = POOLED,
    min_count: int = 10,
    resampling: Resampling,
) -> Iterator[Row]:
    """Rows of a results table.

    The metrics of :mod:`ood_lab.metrics.answer_metrics` of each set, of all together, and of every
    known level of shift and every cell of the two, with unparsed answers treated both ways. A
    failed request removes its pair either way. Intervals resample pairs, or what
    :data:`RESAMPLED` names. Values are missing where no answer could be read.

    Args:
        judgements: see :func:`ood_lab.lvlm.answers.judgements.judge`.
        splits: names of the sets, in order.
        first: the way of treating unparsed answers that comes first.
        groups: metric → column: the share of the column's groups all of whose questions are right.
            Intervals resample groups.
        finer: columns whose values are parts of each set.
        every: what all sets together are called; "" = they are skipped.
        min_count: levels and cells with fewer pairs are missing.
        resampling: of the bootstrap.
    """
    rows = judgements[judgements["task"] == YES_NO]
    for keys, part, kept, read in by_place(rows, splits, first, min_count, finer, every):
        counts, clusters = class_counts(read), clusters_of(read)
        results = clustered(counts, metrics_of(rows), clusters, resampling=resampling)
        units = _units(cluster_sums(counts, clusters))
        yield from estimate_rows(
            keys, results.estimates(), clusters_of(kept).nunique(), part, units
        )
        for metric, column in (groups or {}).items():
            estimate, n = whole_groups(read, column, resampling)
            yield from estimate_rows(keys, {metric: estimate}, n, part)


def score_rows(
    judgements: pd.DataFrame,
    totals: Mapping[str, Sequence[str]],
    column: str,
    first: Unparsed,
    resampling: Resampling,
) -> Iterator[Row]:
    """Rows of ``score``: accuracy plus the share of groups all of whose questions are right.

    ``sum over sets of (right / questions + groups all right / groups)``, which is 2 at most for
    each set: a hundredth of the score of MME (arXiv 2306.13394). Intervals resample groups.

    Args:
        judgements: see :func:`ood_lab.lvlm.answers.judgements.judge`.
        totals: name of a sum → its sets; those without a question add nothing.
        column: tells the groups apart.
        first: the way of treating unparsed answers that comes first.
        resampling: of the bootstrap.
    """
    rows = judgements[judgements["task"] == YES_NO]
    for way in distinct([first, *WAYS]):
        for name, sets in totals.items():
            part = rows[rows["split"].isin(sets)]
            read = part[kept_rows(part, way)]
            groups = read.assign(correct=read["correct"].astype(int)).groupby(column, sort=False)
            counts = groups["correct"].agg(["sum", "size", "min"]).assign(groups=1)
            codes, present = pd.factorize(groups["split"].first())
            by_set = np.zeros((len(counts), len(present), counts.shape[1]), np.int64)
            by_set[np.arange(len(counts)), codes] = counts
            results = clustered(by_set, _score, resampling=resampling).estimates()["score"]
            keys = {"split": name, "unparsed": way, "metric": "score", "n": len(counts)}
            if len(part):
                yield {**keys, **sizes_of(part), **columns_of(results)}


def _score(counts: NDArray[Any]) -> dict[str, Floats]:
    """Of right questions, questions, groups all right and groups of each set, ``[..., K, 4]``."""
    right, questions, whole_right, groups = np.moveaxis(counts.astype(float), -1, 0)
    with np.errstate(invalid="ignore"):  # a set of which no group was drawn adds nothing
        score = np.nan_to_num(right / questions) + np.nan_to_num(whole_right / groups)
    return {"score": score.sum(-1)}


def by_place(
    rows: pd.DataFrame,
    splits: Sequence[str],
    first: Unparsed,
    min_count: int,
    finer: Sequence[str],
    every: str = POOLED,
) -> Iterator[tuple[Fields, pd.DataFrame, pd.DataFrame, pd.DataFrame]]:
    """Every set, level and part, under both treatments of unparsed answers.

    Yields:
        The keys of its rows in a results table; its questions; those that count; and, where any of
        these could be read, the same again, else none.
    """
    for way in distinct([first, *WAYS]):
        for place, part in places(rows, splits, "pair_id", min_count, finer, every):
            kept = part[kept_rows(part, way)]
            read = kept if any_read(kept) else kept.iloc[:0]
            yield {**place, "unparsed": way}, part, kept, read


def whole_groups(read: pd.DataFrame, column: str, resampling: Resampling) -> tuple[Estimate, int]:
    """Share of the groups of a column all of whose questions are right; how many there are."""
    right = read["correct"].astype(bool).groupby(read[column], sort=False).all()
    results = clustered_mean(right, resampling=resampling)
    return results.estimates()["mean"], results.n


def clusters_of(rows: pd.DataFrame) -> pd.Series:
    """What is resampled whole, by row: the pair, or what :data:`RESAMPLED` names."""
    pairs = rows["pair_id"]
    return rows[RESAMPLED].fillna(pairs) if RESAMPLED in rows else pairs


def _units(sums: Ints) -> dict[str, int]:
    """How many clusters precision, recall and F1 rest on: those with a count in the denominator."""
    tp, fp, _, fn, lost, _ = (sums > 0).T
    said, true = int((tp | fp).sum()), int((tp | fn | lost).sum())
    known = {"precision": said, "recall": true, "f1": min(said, true)}
    return {metric: n for metric, n in known.items() if n}


def metrics_of(rows: pd.DataFrame) -> Metrics:
    """:func:`~ood_lab.metrics.answer_metrics.yes_no_metrics`, its recall that of the parsers."""
    parsers = {parser_named(name).recall_of for name in rows["parser"].unique() if name in PARSERS}
    return partial(yes_no_metrics, recall_of="answered" if parsers == {"answered"} else "asked")


def class_counts(rows: pd.DataFrame, positive: str = YES) -> Ints:
    """Outcomes ``[N, 6]``, see :func:`~ood_lab.metrics.answer_metrics.outcome_counts`.

    What is not read is wrong, and neither a yes nor a no.
    """
    truth, right = (rows["truth"] == positive).to_numpy(), rows["correct"].to_numpy(bool)
    read = right | (rows["status"] == PARSED).to_numpy()
    said = truth == right
    return outcome_counts(truth, said & read, ~said & read)


def pair_table(judgements: pd.DataFrame, unparsed: Unparsed) -> pd.DataFrame:
    """Counts of every question pair.

    Args:
        judgements: see :func:`ood_lab.lvlm.answers.judgements.judge`.
        unparsed: what becomes of an answer that cannot be read.

    Returns:
        One row per pair: ``pair_id, split, category, image`` and the levels, where
        these are known, ``kept`` and :data:`COUNTS`; those of a pair that is not ``kept`` are 0.
    """
    rows = judgements[judgements["task"] == YES_NO]
    kept = kept_rows(rows, unparsed)
    sums = cluster_sums(class_counts(rows) * kept.to_numpy()[:, None], rows["pair_id"])
    first = rows.assign(kept=kept).drop_duplicates("pair_id").reset_index(drop=True)
    known = ["pair_id", "split", "category", "image", *LEVELS, "kept"]
    return first[[name for name in known if name in first]].join(pd.DataFrame(sums, columns=COUNTS))


def model_contrasts(judgements: pd.DataFrame, *, resampling: Resampling) -> pd.DataFrame:
    """How models differ on the same yes/no questions, all of them together.

    Pairs of which any model lacks an answer (a failed request) are skipped; an unparsed answer is
    wrong. See :func:`~ood_lab.lvlm.scoring.scored_results.paired_contrasts`.

    Args:
        judgements: the answers of all models, with ``model``.
        resampling: of the bootstrap.
    """
    rows = judgements[judgements["task"] == YES_NO]
    rows = rows[kept_rows(rows, "wrong")]
    return paired_contrasts(
        class_counts(rows),
        clusters_of(rows),
        rows["model"],
        metrics_of(rows),
        resampling=resampling,
    )


def kept_rows(rows: pd.DataFrame, unparsed: Unparsed) -> pd.Series:
    """Which answers count, by row: whole pairs."""
    lost = rows["status"] == FAILED
    if unparsed == "drop_pair":
        lost |= rows["status"] == UNPARSED
    return ~lost.groupby(rows["pair_id"]).transform("any")
