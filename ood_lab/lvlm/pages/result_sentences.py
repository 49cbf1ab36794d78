"""What a run of a benchmark has found, in plain sentences made from its results."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import NamedTuple

import pandas as pd

from ood_lab.common.english import counted, listed
from ood_lab.lvlm.answers.answer_files import model_name
from ood_lab.lvlm.answers.judgements import FAILED, UNPARSED
from ood_lab.lvlm.pages.benchmark_page import ScoredRun
from ood_lab.lvlm.scoring.scored_results import POOLED
from ood_lab.report.rendering.prose import (
    EACH,
    at,
    compared,
    listing,
    noted,
    spread_of,
    values_of,
)
from ood_lab.schema.results import PART, Names

#: Half-width of an interval above which it is called wide.
_WIDE = 0.05
#: Table of paired tests, how a sentence about it begins, and its words before what is compared.
_TESTS = (
    ("differences", "On {} it is", "than on", "from"),
    ("forms", "With a chain of thought it is", "on", "on"),
    ("models", "Compared on the same questions, it is", "than", "from"),
)


class MetricSentence(NamedTuple):
    """A metric in words that go between "its" and "is 91.4%".

    Attributes:
        metric: its name in the results.
        words: what it is called.
        lower: less is better.
        tested: its name in paired tests, if that is another.
    """

    metric: str
    words: str
    lower: bool = False
    tested: str = ""


ACCURACY = MetricSentence("accuracy", "accuracy")
CHAIR = MetricSentence(
    "chair", "CHAIR, the share of made-up things among those its captions name,", True
)


def found_sentences(
    run: ScoredRun,
    told: Sequence[MetricSentence],
    words: Names,
    task: str,
    draws: int,
    again: int = 0,
) -> Iterator[str]:
    """The questions, metrics with their 95% intervals, comparisons, and what is not known.

    Args:
        run: with its tables ``differences``, ``forms`` and ``models``, as far as they were made.
        told: metrics, as far as there are results: the first by set, with comparisons; of others
            the value of all questions.
        words: what sets of questions are called, if not by their name; "" = they are not told.
        task: kind of the questions whose ``accuracy`` is held against a constant answer.
        draws: of the bootstrap, on which the least p-value depends.
        again: questions that were repeated with a chain of thought.
    """
    asked, about = pd.concat(run.judged.values()), run.benchmark
    images, lost = asked["file"].nunique(), asked["status"].value_counts()
    yield (
        f"{model_name(run.record.lvlm)} was asked {counted(len(asked), 'question')}"
        + (f" about {counted(images, 'image')}" if images else "")
        + f" ({about.name} on {about.about})"
        + (f", {again:,} of them again with a chain of thought" if again else "")
        + (f"; {counted(lost[UNPARSED], 'answer')} could not be read" if UNPARSED in lost else "")
        + (f"; {counted(lost[FAILED], 'question')} got no answer" if FAILED in lost else "")
        + "."
    )
    names = {str(s): words.get(s, s.replace("_", " ")) for s in run.whole["split"] if s != POOLED}
    sets = {s: name for s, name in names.items() if name and (len(names) > 1 or s in words)}
    known = [item for item in told if (run.whole["metric"] == item.metric).any()]
    for place, item in enumerate(known):
        rows = _rows(run, item.metric, {} if place else sets)
        its, values = "Asked plainly, its" if again else "Its", values_of(rows, item.lower)
        beside = "" if place or rows["value"].isna().all() else _lost(run, lost)
        yield f"{its} {item.words} is {values if place else noted(values)}{beside}."
        if not place:
            yield from _constant(run, sets, task)
            yield from _width(rows)
            yield from _differences(run, item, sets, draws)


def _lost(run: ScoredRun, lost: pd.Series) -> str:
    """How unparsed and failed questions count, next to the first number."""
    ways = run.first_way.get("unparsed", pd.Series(dtype=object)).dropna()
    out = "left out" if len(ways) and str(ways.iloc[0]).startswith("drop") else "counted as wrong"
    parts = [
        f"{lost[status]:,} of {lost.sum():,} {status}, {how}"
        for status, how in ((UNPARSED, out), (FAILED, "left out"))
        if status in lost
    ]
    return f" ({'; '.join(parts)})" if parts else ""


def _rows(run: ScoredRun, metric: str, sets: Names) -> pd.DataFrame:
    """Rows of the sets, on what is in ``on``; of none or of many that of all, on "", too."""
    rows = run.whole[run.whole["metric"] == metric]
    shown = rows["split"].isin(sets)
    if not 0 < shown.sum() <= EACH:
        shown |= rows["split"] == POOLED
    return rows[shown].assign(on=rows["split"].map(sets).fillna(""))


def _constant(run: ScoredRun, sets: Names, task: str) -> Iterator[str]:
    """Where the accuracy may be no more than that of always giving the same answer."""
    judgements, alike = run.judged["judged"], {}
    judgements = judgements[judgements["task"] == task]
    for row in _rows(run, "accuracy", sets).to_dict("records"):
        truth = judgements.loc[(judgements["split"] == row["split"]) | (row["on"] == ""), "truth"]
        constant = truth.value_counts(normalize=True).max()
        if row["ci_low"] <= constant < 1:  # of 1 nothing can be better
            alike[row["on"]] = constant
    if alike:
        on = at(alike).removeprefix(" on ")
        yield (
            f"{f'On {on} its' if on else 'Its'} accuracy is not significantly better than that of "
            f"always giving the same answer ({spread_of(alike.values(), 1)}%)."
        )


def _differences(run: ScoredRun, told: MetricSentence, sets: Names, draws: int) -> Iterator[str]:
    """Paired tests between sets, forms of questions, and models."""
    for name, begins, than, of in _TESTS:
        if name not in run.tables:
            continue
        rows = run.tables[name]
        rows = rows[rows["metric"] == (told.tested or told.metric)]
        if name == "differences":
            rows = rows[rows["a"].isin(sets)].assign(on=rows["b"].map(sets))
        elif name == "forms":
            rows = rows[rows[PART].isna()].assign(on=rows["split"].map(sets))
        else:
            if "split" in rows:  # all sets together come last
                rows = rows[rows["split"].isin(rows["split"].iloc[-1:])]
            rows = rows[rows["a"] == model_name(run.record.lvlm)].assign(on=rows["b"])
        if not len(rows := rows[rows["on"].notna()]):
            continue
        parts, rest = compared(rows, told.lower, draws, than, of)
        if parts:
            yield f"{begins.format(sets.get(str(rows['a'].iloc[0])))} {listed(parts)}."
        if rest:
            where = "on" if name == "forms" else "against"
            yield f"There are too few answers or resamples for a test {where} {listing(rest)}."


def _width(rows: pd.DataFrame) -> Iterator[str]:
    """How wide the widest interval is, if that is much."""
    half = (rows["ci_high"] - rows["ci_low"]) / 2
    if half.max() > _WIDE:
        row = rows[half == half.max()].iloc[0]
        units = counted(int(row["n"]), str(row["unit"]).split()[-1])
        points = f"{100 * half.max():.0f} points to either side"
        yield f"With only {units}, the interval{at([row['on']])} reaches about {points}."
