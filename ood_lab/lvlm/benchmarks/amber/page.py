"""How the results of AMBER are shown."""

from __future__ import annotations

from collections.abc import Iterator

import pandas as pd

from ood_lab.lvlm.benchmark.contract import BenchmarkWords
from ood_lab.lvlm.benchmarks.amber.scoring import KIND, SCORE
from ood_lab.lvlm.captions.caption_page import (
    CAPTIONS,
    COMPARED,
    OF_NO,
    other_ways,
    scoring_note,
)
from ood_lab.lvlm.pages.benchmark_page import (
    Headline,
    ScoredRun,
    answer_figures,
    metric_table,
)
from ood_lab.lvlm.pages.figure_captions import defined
from ood_lab.lvlm.pages.result_sentences import CHAIR, MetricSentence
from ood_lab.lvlm.questions.question_files import (
    ACTION,
    EXISTENCE,
    GENERATIVE,
    NUMBER,
    RELATION,
    STATE,
)
from ood_lab.lvlm.scoring.scored_results import POOLED
from ood_lab.report.rendering.blocks import PlannedFigure, Text
from ood_lab.report.rendering.table import Table, plain_table
from ood_lab.report.rendering.thumbnails import Thumbnails

#: Sets of yes/no questions, and what they are called; the three of attributes are parts of theirs.
SETS = {
    "existence": "existence",
    "attribute": "attribute",
    "state": "- state",
    "number": "- number",
    "action": "- action",
    "relation": "relation",
    POOLED: "all",
}
_CAPTIONS = {**CAPTIONS, SCORE: "AMBER score"}
_NAME = {POOLED: "AMBER"}
_LEVELS = {"chair": "CHAIR", "hal": "Hal", "accuracy": "Acc"}


def summary(run: ScoredRun) -> Iterator[Table | Text]:
    """Captions and the score, then the yes/no questions by kind."""
    notes = [scoring_note(run), "AMBER score = (100 - CHAIR + F1) / 2; higher is better."]
    if run.whole["metric"].isin(CAPTIONS).any():
        yield metric_table("Captions, %", "set", run.whole, _NAME, _CAPTIONS, notes=notes)
    yield from _answers(run.whole, "Yes/no questions, %")


def _answers(rows: pd.DataFrame, caption: str) -> Iterator[Table]:
    if rows["metric"].isin(OF_NO).any():
        notes = ["Positive class: no. ± half of the 95% interval, from resampling images."]
        yield metric_table(caption, "kind", rows, SETS, OF_NO, notes=notes)


def details(run: ScoredRun, _: Thumbnails) -> Iterator[Table]:
    """Other treatments of unparsed answers, and what AMBER's script prints."""
    for words, rows in other_ways(run):
        yield from _answers(rows, f"Yes/no questions, %: {words}")
    yield from _as_printed(run.tables["amber"].iloc[0])


def _as_printed(values: pd.Series) -> Iterator[Table]:
    """Percent to one decimal, as AMBER's script prints it."""
    caption = "as AMBER's script rounds them, %"
    texts = {words: f"{values[k]:.1f}" for k, words in _CAPTIONS.items() if k in values}
    if texts:
        yield plain_table(f"Captions, {caption}", [texts], {})
    groups = {("all" if name == POOLED else name): words for name, words in SETS.items()}
    rows = [
        {"kind": words, **{m: f"{values[f'{name}_{key}']:.1f}" for key, m in OF_NO.items()}}
        for name, words in groups.items()
        if f"{name}_accuracy" in values
    ]
    if rows:
        yield plain_table(f"Yes/no questions, {caption}", rows, {})


def figures(run: ScoredRun) -> Iterator[PlannedFigure]:
    """Results of every kind of question, and levels of shift."""
    return answer_figures(run, OF_NO, SETS, _LEVELS, POOLED, "Positive class: no.", _NAME)


WORDS = BenchmarkWords(
    name="AMBER",
    kind=KIND,
    asks=(GENERATIVE, EXISTENCE, STATE, NUMBER, ACTION, RELATION),
    headlines=(
        Headline(POOLED, SCORE, "AMBER score"),
        Headline(POOLED, "chair", "CHAIR"),
        Headline(POOLED, "f1", "F1 of no"),
    ),
    told=(
        CHAIR,
        MetricSentence("accuracy", "accuracy on yes/no questions", tested="all_accuracy"),
        MetricSentence(SCORE, "AMBER score"),
    ),
    compared=COMPARED,
    definitions=defined("captions", "caption_answers", "amber"),
    metric_tables={"Captions": _CAPTIONS, "Yes/no questions": OF_NO},
)
