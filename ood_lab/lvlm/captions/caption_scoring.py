"""Results of captions and yes/no answers about the same images: AMBER's metrics, by set."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from functools import partial
from typing import Any, Literal

import numpy as np
import pandas as pd

from ood_lab.common.arguments import Fields
from ood_lab.common.grouping import distinct, without_keys
from ood_lab.common.random_streams import Resampling
from ood_lab.lvlm.answers.answer_files import NOT_ASKED, Answers
from ood_lab.lvlm.answers.judgements import FAILED, PARSED, UNPARSED
from ood_lab.lvlm.captions.caption_rules import CaptionRules
from ood_lab.lvlm.captions.nouns import NounExtractor
from ood_lab.lvlm.parsers import NO, YES
from ood_lab.lvlm.parsers.reply_text import is_cut, without_reasoning
from ood_lab.lvlm.questions.question_files import EXISTENCE, GENERATIVE, GROUPS, Questions
from ood_lab.lvlm.scoring.scored_results import (
    POOLED,
    estimate_rows,
    of_set,
    paired_contrasts,
    places,
    question_kind,
)
from ood_lab.lvlm.scoring.yes_no_scores import class_counts
from ood_lab.metrics.answer_metrics import (
    CAPTION_METRICS,
    COUNTS,
    EXISTENCE_EPSILON,
    amber_caption_metrics,
    amber_yes_no_metrics,
    caption_metrics,
    yes_no_metrics,
)
from ood_lab.metrics.resampling.clustered_bootstrap import (
    Metrics,
    cluster_sums,
    clustered,
    resampled_sums,
    shares,
    with_ones,
)
from ood_lab.metrics.resampling.intervals import percentile_interval
from ood_lab.schema.arrays import Ints, MetricValues
from ood_lab.schema.results import Kind, Names, Row

#: Column of what is resampled in place of images: a pair of concepts that several show.
PAIR = "pair"
#: What becomes of an answer that cannot be read: it is wrong, and neither yes nor no, so that
#: accuracy and recall count it, and precision does not; or it is left out.
Unparsed = Literal["wrong", "drop"]
WAYS: tuple[Unparsed, ...] = ("wrong", "drop")
_COLUMNS = ["question_id", "file", "split", "status", "reply", "cut", "error", "flagged_nouns"]
_COLUMNS += COUNTS
#: Metrics of a group with "no" as the positive class, as AMBER and ODE have it.
OF_NO = ("accuracy", "precision", "recall", "f1")
#: Metrics of existence questions with "yes" as the positive class, as POPE has it.
OF_YES = ("precision", "recall", "f1", "yes_rate")


def caption_table(
    questions: Questions,
    answers: Answers,
    rules: CaptionRules,
    nouns: NounExtractor,
) -> pd.DataFrame:
    """What every caption names.

    Args:
        questions: those that were sent; captions are read.
        answers: by the id of the question.
        rules: judge the nouns.
        nouns: finds them.

    Returns:
        One row a caption: ``question_id, picture, file, status, reply`` (without its reasoning),
        ``cut, error, named, flagged_nouns, marked_words`` (lists), the counts of
        :data:`ood_lab.metrics.answer_metrics.COUNTS`, and what is in ``meta``; counts of a failed
        request are 0. A caption that was cut is read as far as it goes; one without a word, as
        of a model that declined, or in the middle of a thought, is unparsed.
    """
    rows = []
    for question in questions:
        if question.task != GENERATIVE:
            continue
        answer = answers.get(question.question_id, NOT_ASKED)
        error = answer.error
        reply = without_reasoning("" if error else answer.response)
        status = FAILED if error else PARSED if reply.strip() else UNPARSED
        truth, hallu = list(question.meta["truth"]), list(question.meta["hallu"])
        verdict = rules.judge(nouns(reply, rules.vocabulary), truth, hallu)
        counts = [0] * len(COUNTS) if status != PARSED else verdict.counts(len(truth), len(hallu))
        rows.append(
            {
                "question_id": question.question_id,
                "file": question.image,
                "status": status,
                "reply": reply,
                "cut": not error and is_cut(answer.finish_reason),
                "error": error,
                "named": verdict.nouns,
                "flagged_nouns": verdict.flagged,
                "marked_words": [hallu[place] for place in sorted(verdict.marked)],
                **dict(zip(COUNTS, counts, strict=True)),
                **without_keys(question.meta, COUNTS),
                "truth_words": truth,
                "hallu_words": hallu,
            }
        )
    return pd.DataFrame(rows, columns=None if rows else _COLUMNS)


def caption_kind(name: str) -> Kind:
    """The kind of results of a benchmark that asks for captions and for yes or no."""
    return question_kind(name, "image", "unparsed", "n_images")


def result_rows(
    captions: pd.DataFrame,
    judgements: pd.DataFrame,
    splits: Sequence[str],
    *,
    finer: Sequence[str] = (),
    min_count: int = 10,
    unparsed: Unparsed = "wrong",
    resampling: Resampling,
) -> list[Row]:
    """Everything that is reported, as rows of :func:`caption_kind`.

    Captions: CHAIR, Cover, Hal, Cog (see :mod:`ood_lab.metrics.answer_metrics`). Yes/no questions:
    ``<group>_<metric>`` with "no" as the positive class, and ``pope_<metric>`` of existence
    questions with "yes", where it is ever right, unparsed answers treated both ways. Of every
    set, of all pooled, and of every level of shift, cell of the two and finer part. Intervals
    resample images, or what :func:`clusters_of` holds together. Values are missing where no answer
    could be read.

    Args:
        captions: see :func:`caption_table`.
        judgements: see :func:`ood_lab.lvlm.answers.judgements.judge`, of the yes/no questions.
        splits: names of the sets, in order.
        finer: columns by which each set is divided further.
        min_count: levels, cells and distances with fewer images are missing.
        unparsed: the way of treating unparsed answers that comes first.
        resampling: of the bootstrap.
    """
    rows: list[Row] = []
    for place, part in places(captions, splits, "file", min_count, finer):
        kept = part[part["status"] == PARSED]
        counts = kept[list(COUNTS)].to_numpy(np.int64)
        rows += _rows(place, counts, kept, caption_metrics, {}, part, resampling)
    for place, part in places(judgements, splits, "file", min_count, finer):
        for way in distinct([unparsed, *WAYS]):
            for group, tasks in GROUPS.items():
                of_group = part[part["task"].isin(tasks)]
                if len(of_group):
                    rows += _answer_rows({**place, "unparsed": way}, group, of_group, resampling)
    return rows


def amber_table(
    captions: pd.DataFrame,
    judgements: pd.DataFrame,
    splits: Sequence[str],
    epsilons: Mapping[str, float] | None = None,
) -> pd.DataFrame:
    """The metrics as AMBER's and ODE's scripts print them: percent, rounded to one decimal.

    An unparsed answer is neither yes nor no and wrong.

    Args:
        captions: see :func:`caption_table`.
        judgements: see :func:`ood_lab.lvlm.answers.judgements.judge`, of the yes/no questions.
        splits: names of the sets, in order.
        epsilons: of F1, by group; others have ODE's, 0.001.

    Returns:
        One row a set and one for all: ``split, chair, cover, hal, cog`` and
        ``<group>_accuracy, _precision, _recall, _f1`` of the groups with questions.
    """
    rows = []
    groups = {g: tasks for g, tasks in GROUPS.items() if judgements["task"].isin(tasks).any()}
    for split in [*splits, POOLED]:
        texts, of_split = (of_set(table, split) for table in (captions, judgements))
        row: Fields = {"split": split}
        if len(captions):
            row |= amber_caption_metrics(texts[list(COUNTS)].to_numpy(np.int64).sum(axis=0))
        for group, tasks in groups.items():
            part = of_split[of_split["task"].isin(tasks) & (of_split["status"] != FAILED)]
            tp, fp, tn, fn, unread_no, unread_yes = class_counts(part, NO).sum(axis=0)
            epsilon = (epsilons or {}).get(group, EXISTENCE_EPSILON)
            results = amber_yes_no_metrics([tp, fp, tn, fn + unread_no], int(unread_yes), epsilon)
            row |= {f"{group}_{metric}": value for metric, value in results.items()}
        rows.append(row)
    return pd.DataFrame(rows)


def clusters_of(rows: pd.DataFrame) -> pd.Series:
    """What belongs together: the rows of one image, of one scene, or of one pair of concepts."""
    return rows[_cluster(rows)]


def _cluster(rows: pd.DataFrame) -> str:
    return next((name for name in (PAIR, "scene") if name in rows), "file")


def _answer_rows(
    place: Mapping[str, Any], group: str, asked: pd.DataFrame, resampling: Resampling
) -> list[Row]:
    kept = asked[asked["status"] != FAILED]
    read = kept[kept["status"] == PARSED]
    kept = read if place["unparsed"] == "drop" or not len(read) else kept
    counts, names = class_counts(kept, NO), {m: f"{group}_{m}" for m in OF_NO}
    rows = _rows(place, counts, kept, yes_no_metrics, names, asked, resampling)
    if group == EXISTENCE and (asked["truth"] == YES).any():
        counts, names = class_counts(kept, YES), {m: f"pope_{m}" for m in OF_YES}
        rows += _rows(place, counts, kept, yes_no_metrics, names, asked, resampling)
    return rows


def _rows(
    place: Mapping[str, Any],
    counts: Ints,
    kept: pd.DataFrame,
    metrics: Metrics,
    names: Names,
    asked: pd.DataFrame,
    resampling: Resampling,
) -> list[Row]:
    """Rows of the metrics of what is ``kept`` of the questions, under their ``names``; {}: all."""
    results = clustered(counts, metrics, clusters_of(kept), resampling=resampling).estimates()
    results = {names[m]: results[m] for m in names} or results
    unit = {"file": "image"}.get(_cluster(kept), _cluster(kept))
    keys = {**place, "unit": unit, "n_images": kept["file"].nunique()}
    return estimate_rows(keys, results, clusters_of(kept).nunique(), asked)


#: Groups of yes/no questions whose metrics are compared.
COMPARED = ("existence", "attribute", "relation", "all")
#: Those whose change since another run is reported.
_CHANGED = ("existence", "attribute", "all")


def contrasts(
    captions: pd.DataFrame,
    judgements: pd.DataFrame,
    by: str,
    first: Any = None,
    *,
    resampling: Resampling,
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
        resampling: of the bootstrap.

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
        counts = with_ones(of_group["correct"].astype(bool))
        sides.append((of_group, counts, partial(shares, [f"{group}_accuracy"])))
        sides.append((of_group, class_counts(of_group, NO), partial(_of_no, group)))
    tables = [pd.DataFrame()]
    tables += [
        paired_contrasts(
            counts, clusters_of(rows), rows[by], metrics, names, first, resampling=resampling
        )
        for rows, counts, metrics in sides
        if len(rows)
    ]
    return pd.concat(tables, ignore_index=True)


def _of_no(group: str, counts: Ints) -> MetricValues:
    results = yes_no_metrics(counts)
    return {f"{group}_{metric}": results[metric] for metric in ("recall", "f1")}


def changes(
    before: tuple[pd.DataFrame, pd.DataFrame],
    after: tuple[pd.DataFrame, pd.DataFrame],
    splits: Sequence[str],
    resampling: Resampling,
) -> pd.DataFrame:
    """A run minus one before it, with 95% intervals.

    The images are other ones, so that both are resampled on their own.

    Args:
        before: captions, see :func:`ood_lab.lvlm.captions.caption_scoring.caption_table`, and
            answers to yes/no questions, see :func:`ood_lab.lvlm.answers.judgements.judge`.
        after: the same of the later run.
        splits: sets, in order.
        resampling: of the bootstrap.

    Returns:
        ``split, metric, before, after, change, ci_low, ci_high``; sets that both have, and all of
        them pooled.
    """
    rng = np.random.default_rng(resampling.seed)
    both = [name for name in splits if name in set(before[0]["split"])]
    tables = [[t[t["split"].isin(both)] for t in pair] for pair in zip(before, after, strict=True)]
    rows: list[Row] = []
    for split in [*both, POOLED]:
        texts, answers = ([of_set(table, split) for table in pair] for pair in tables)
        sides = [("", CAPTION_METRICS, caption_metrics, [_caption_counts(part) for part in texts])]
        sides += [
            (f"{group}_", OF_NO, yes_no_metrics, [_answer_counts(part, group) for part in answers])
            for group in _CHANGED
        ]
        for group, names, metrics, counts in sides:
            if not all(map(len, counts)):
                continue
            old, new = (metrics(item.sum(axis=0)) for item in counts)
            first, second = (metrics(resampled_sums(c, resampling.draws, rng)) for c in counts)
            for metric in names:
                draws = second[metric] - first[metric]
                low, high = percentile_interval(draws, min(map(len, counts)))
                rows.append(
                    {
                        "split": split,
                        "metric": f"{group}{metric}",
                        "before": float(old[metric]),
                        "after": float(new[metric]),
                        "change": float(new[metric] - old[metric]),
                        "ci_low": float(low),
                        "ci_high": float(high),
                    }
                )
    return pd.DataFrame(rows)


def _caption_counts(rows: pd.DataFrame) -> Ints:
    kept = rows[rows["status"] == PARSED]
    return cluster_sums(kept[list(COUNTS)].to_numpy(np.int64), clusters_of(kept))


def _answer_counts(rows: pd.DataFrame, group: str) -> Ints:
    kept = rows[rows["task"].isin(GROUPS[group]) & (rows["status"] != FAILED)]
    return cluster_sums(class_counts(kept, NO), clusters_of(kept))
