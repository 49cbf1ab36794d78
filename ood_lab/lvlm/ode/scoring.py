"""The results of ODE: hallucination in captions and answers, by criterion, shift and distance."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any, Literal

import numpy as np
import pandas as pd
from numpy.typing import NDArray

from ood_lab.axes import LEVELS
from ood_lab.lvlm.answers import Answers
from ood_lab.lvlm.judged import FAILED, FOUND, PARSED, SIZES, UNPARSED, sizes_of
from ood_lab.lvlm.ode.captions import Rules
from ood_lab.lvlm.ode.nouns import NounExtractor
from ood_lab.lvlm.ode.queries import ACTION, EXISTENCE, GENERATIVE, NUMBER, STATE
from ood_lab.lvlm.parsers import NO, YES
from ood_lab.lvlm.questions import Question
from ood_lab.lvlm.replies import is_cut, without_reasoning
from ood_lab.metrics.hallucination import (
    CAPTION_METRICS,
    COUNTS,
    amber_caption_metrics,
    amber_yes_no_metrics,
    caption_intervals,
)
from ood_lab.metrics.yes_no import outcome_counts, yes_no_intervals

#: What becomes of an answer that cannot be read: it is wrong, or left out.
Unparsed = Literal["wrong", "drop"]
WAYS: tuple[Unparsed, ...] = ("wrong", "drop")
#: ``split`` of all criteria together: pooled counts.
POOLED = "pooled"
#: Column of the distance between the two concepts in the graph; 0 = not connected.
DISTANCE = "distance"
#: Groups of yes/no questions, each with metrics of its own.
GROUPS: Mapping[str, tuple[str, ...]] = {
    "existence": (EXISTENCE,),
    "attribute": (STATE, ACTION, NUMBER),
    "state": (STATE,),
    "action": (ACTION,),
    "number": (NUMBER,),
    "all": (EXISTENCE, STATE, ACTION, NUMBER),
}
#: Metrics of a group with "no" as the positive class, as AMBER and ODE have it.
OF_NO = ("accuracy", "precision", "recall", "f1")
#: Metrics of existence questions with "yes" as the positive class, as POPE has it.
OF_YES = ("precision", "recall", "f1", "yes_rate")
COLUMNS = ["model", "split", *LEVELS, DISTANCE, "unparsed", *SIZES, "n_pairs", *FOUND]


def caption_table(
    questions: Sequence[Question],
    answers: Answers,
    rules: Rules,
    nouns: NounExtractor,
) -> pd.DataFrame:
    """What every caption names.

    Args:
        questions: those that were asked; captions are read.
        answers: by the id of the question.
        rules: judge the nouns.
        nouns: finds them.

    Returns:
        One row a caption: ``question_id, picture, file, status, reply`` (without its reasoning),
        ``cut, error, named, flagged_nouns, marked_words`` (lists), the counts of
        :data:`ood_lab.metrics.hallucination.COUNTS`, and what is in ``meta``; counts of a failed
        request are 0. A caption that was cut is read as far as it goes; one that is nothing but
        reasoning is unparsed.
    """
    rows = []
    for question in questions:
        if question.task != GENERATIVE:
            continue
        answer = answers.get(question.question_id)
        error = "not asked" if answer is None else answer.error
        response = "" if answer is None or error else answer.response
        reply = without_reasoning(response)
        status = FAILED if error else UNPARSED if response and not reply else PARSED
        truth, hallu = list(question.meta["truth"]), list(question.meta["hallu"])
        verdict = rules.judge(nouns(reply, rules.vocabulary), truth, hallu)
        counts = [0] * len(COUNTS) if status != PARSED else verdict.counts(len(truth), len(hallu))
        rows.append(
            {
                "question_id": question.question_id,
                "file": question.image,
                "status": status,
                "reply": reply,
                "cut": answer is not None and not error and is_cut(answer.finish_reason),
                "error": error,
                "named": list(verdict.nouns),
                "flagged_nouns": list(verdict.flagged),
                "marked_words": [hallu[place] for place in sorted(verdict.marked)],
                **dict(zip(COUNTS, counts, strict=True)),
                **{k: v for k, v in question.meta.items() if k not in COUNTS},
                "truth_words": truth,
                "hallu_words": hallu,
            }
        )
    return pd.DataFrame(rows)


def results_of(
    captions: pd.DataFrame,
    judged: pd.DataFrame,
    model: str,
    splits: Sequence[str],
    *,
    draws: int = 1000,
    seed: int = 0,
    min_count: int = 10,
) -> pd.DataFrame:
    """Everything that is reported, in long form.

    Captions: CHAIR, Cover, Hal, Cog (see :mod:`ood_lab.metrics.hallucination`). Yes/no questions:
    ``<group>_<metric>`` with "no" as the positive class, and ``pope_<metric>`` of existence
    questions with "yes", unparsed answers treated both ways. Of every criterion, of all pooled, and
    of every level of shift, cell of the two and distance in the graph. Intervals resample images;
    those that show one scene in several styles together.

    Args:
        captions: see :func:`caption_table`.
        judged: see :func:`ood_lab.lvlm.judged.judge`, of the yes/no questions.
        model: its name.
        splits: names of the criteria, in order.
        draws: bootstrap resamples.
        seed: of the draws.
        min_count: levels, cells and distances with fewer images are missing.

    Returns:
        ``model, split, semantic_level, covariate_level, distance, unparsed, n_asked, n_unparsed,
        n_cut, n_failed, n_pairs`` (images), ``metric, value, ci_low, ci_high, seed``; values are
        shares, and missing where no answer could be read.
    """
    rows: list[dict[str, Any]] = []
    for place, part in _places(captions, splits, min_count):
        rows += _caption_rows(part, place, draws, seed)
    for place, part in _places(judged, splits, min_count):
        for way in WAYS:
            rows += _answer_rows(part, place, way, draws, seed)
    table = pd.DataFrame(rows).assign(model=model, seed=seed).reindex(columns=COLUMNS)
    fine = table[[*LEVELS, DISTANCE]].notna().any(axis=1)
    return pd.concat([table[~fine], table[fine]], ignore_index=True)


def amber_table(
    captions: pd.DataFrame, judged: pd.DataFrame, splits: Sequence[str]
) -> pd.DataFrame:
    """The metrics as AMBER's and ODE's scripts print them: percent, rounded to one decimal.

    An unparsed answer is neither yes nor no and wrong; epsilon of F1 is ODE's, 0.001.

    Returns:
        One row a criterion and one for all: ``split, chair, cover, hal, cog`` and
        ``<group>_accuracy, _precision, _recall, _f1``.
    """
    rows = []
    for split in [*splits, POOLED]:
        texts = captions if split == POOLED else captions[captions["split"] == split]
        asked = judged if split == POOLED else judged[judged["split"] == split]
        row: dict[str, Any] = {"split": split}
        row |= amber_caption_metrics(texts[list(COUNTS)].to_numpy(np.int64).sum(axis=0))
        for group, tasks in GROUPS.items():
            part = asked[asked["task"].isin(tasks) & (asked["status"] != FAILED)]
            counts, unread = _counts_of_no(part)
            found = amber_yes_no_metrics(counts.sum(axis=0), unread)
            row |= {f"{group}_{metric}": value for metric, value in found.items()}
        rows.append(row)
    return pd.DataFrame(rows)


def whole(results: pd.DataFrame) -> pd.DataFrame:
    """The rows that are not of one level, cell or distance."""
    return results[results[[*LEVELS, DISTANCE]].isna().all(axis=1)]


def clustered(rows: pd.DataFrame, counts: NDArray[np.int64]) -> NDArray[np.int64]:
    """Sums of counts ``[N, M]`` over the rows that belong together, ``[K, M]``.

    Those are the rows of one image, and the images that show one scene in several styles.
    """
    codes, names = pd.factorize(rows["scene" if "scene" in rows else "file"])
    sums = np.zeros((len(names), counts.shape[1]), np.int64)
    np.add.at(sums, codes, counts)
    return sums


def _counts_of_no(rows: pd.DataFrame) -> tuple[NDArray[np.int64], int]:
    """TP, FP, TN, FN of "no", and unparsed answers to questions whose right answer is yes."""
    truth, said = (rows["truth"] == NO).to_numpy(), (rows["parsed"] == NO).to_numpy()
    neither = ((rows["status"] == UNPARSED).to_numpy()) & ~truth
    return outcome_counts(truth[~neither], said[~neither]), int(neither.sum())


def _places(
    table: pd.DataFrame, splits: Sequence[str], min_count: int
) -> Iterator[tuple[dict[str, Any], pd.DataFrame]]:
    """All of a criterion, then levels, cells and distances with images enough."""
    if not len(table):
        return
    parts = {name: table[table["split"] == name] for name in splits} | {POOLED: table}
    known = [name for name in LEVELS if name in table]
    keys: list[list[str]] = [[name] for name in known] + ([known] if len(known) == 2 else [])
    keys += [[DISTANCE]] if DISTANCE in table else []
    for split, part in parts.items():
        yield {"split": split}, part
    for split, part in parts.items():
        for names in keys:
            for values, cell in part.groupby(names):
                if cell["file"].nunique() >= min_count:
                    yield {"split": split, **dict(zip(names, values, strict=True))}, cell


def _caption_rows(
    part: pd.DataFrame, place: Mapping[str, Any], draws: int, seed: int
) -> list[dict[str, Any]]:
    kept = part[part["status"] == PARSED]
    found = caption_intervals(clustered(kept, kept[list(COUNTS)].to_numpy()), draws, seed)
    sizes = sizes_of(part) | {"n_pairs": kept["file"].nunique()}
    about = {**place, "unparsed": WAYS[0], **sizes}
    return [{**about, "metric": name, **_estimate(*found[name])} for name in CAPTION_METRICS]


def _answer_rows(
    part: pd.DataFrame, place: Mapping[str, Any], way: Unparsed, draws: int, seed: int
) -> list[dict[str, Any]]:
    rows = []
    for group, tasks in GROUPS.items():
        asked = part[part["task"].isin(tasks)]
        if not len(asked):
            continue
        kept = asked[asked["status"] != FAILED]
        read = kept[kept["status"] == PARSED]
        kept = read if way == "drop" or not len(read) else kept
        about = {
            **place,
            "unparsed": way,
            **sizes_of(asked),
            "n_pairs": kept["file"].nunique(),
        }
        # An answer that counts as wrong is the opposite of the truth.
        right = kept["correct"].to_numpy(bool)
        found = _of_class(kept, right, NO, draws, seed)
        rows += [{**about, "metric": f"{group}_{m}", **_estimate(*found[m])} for m in OF_NO]
        if group == EXISTENCE:
            found = _of_class(kept, right, YES, draws, seed)
            rows += [{**about, "metric": f"pope_{m}", **_estimate(*found[m])} for m in OF_YES]
    return rows


def _of_class(
    rows: pd.DataFrame, right: NDArray[np.bool_], positive: str, draws: int, seed: int
) -> Mapping[str, Any]:
    """Metrics with their intervals; images are resampled."""
    truth = (rows["truth"] == positive).to_numpy()
    counts = outcome_counts(truth, np.where(right, truth, ~truth))
    return yes_no_intervals(clustered(rows, counts), draws, seed)


def _estimate(value: float, low: float, high: float) -> dict[str, float]:
    return {"value": value, "ci_low": low, "ci_high": high}
