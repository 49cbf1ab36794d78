"""AMBER: what do vision-language models hallucinate in captions and wrongly affirm?"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import ClassVar

import pandas as pd

from ood_lab.common.errors import UserError
from ood_lab.lvlm.benchmark.captions import CaptionBenchmark
from ood_lab.lvlm.benchmark.contract import BenchmarkSession, BenchmarkWords
from ood_lab.lvlm.benchmarks.amber.published_files import AmberFiles
from ood_lab.lvlm.benchmarks.amber.scoring import KIND, SCORE, of_group, rounded, score_rows
from ood_lab.lvlm.captions.caption_page import (
    CAPTIONS,
    COMPARED,
    OF_NO,
    made_up,
    other_ways,
    scoring_note,
)
from ood_lab.lvlm.captions.caption_rules import CaptionWords
from ood_lab.lvlm.captions.caption_scoring import WAYS, result_rows
from ood_lab.lvlm.pages.benchmark_page import (
    Headline,
    PageBlocks,
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
    Questions,
)
from ood_lab.lvlm.scoring.scored_results import POOLED
from ood_lab.report.rendering.table import Table, plain_table
from ood_lab.schema.results import NamedTables, Tables

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


@dataclass(frozen=True, kw_only=True)
class Amber(CaptionBenchmark):
    """Asks for the captions and the yes/no questions of AMBER's files, and scores both.

    Args:
        source: AMBER's files.

    Raises:
        UserError: see :meth:`check_inputs` and the models.
    """

    source: AmberFiles
    words: ClassVar[BenchmarkWords] = WORDS

    def check_inputs(self, run: BenchmarkSession) -> None:
        """Raises a UserError where the words that captions are judged by are missing, too."""
        if self.unparsed not in WAYS:
            raise UserError(f"task.unparsed={self.unparsed}: choose among {', '.join(WAYS)}")
        _ = self.source.vocabulary, self.source.safe_words

    def build(self, run: BenchmarkSession) -> Questions:
        """The questions of the published files."""
        return self.source.questions(self.parser_of_questions)

    def about(self, run: BenchmarkSession) -> str:
        """The folder of the files."""
        return Path(self.source.path).absolute().stem

    def vocabulary(self, run: BenchmarkSession) -> CaptionWords:
        """Those of the files."""
        return self.source

    def results(self, run: BenchmarkSession, judgements: Tables, model: str) -> pd.DataFrame:
        """See the base class."""
        captions, answers = judgements["captions"], judgements["judged"]
        rows = result_rows(captions, answers, [], unparsed=self.unparsed, **run.options)
        rows = [of_group(row) for row in rows]
        for way in sorted(WAYS, key=lambda item: item != self.unparsed) if len(captions) else ():
            rows += score_rows(captions, answers, way, run.resampling)
        return KIND.table(rows, model=model, seed=run.seed)

    def further(self, run: BenchmarkSession, judgements: Tables, source: Path) -> NamedTables:
        """What AMBER's script prints."""
        yield "amber", rounded(judgements["captions"], judgements["judged"])

    def blocks(self, run: ScoredRun) -> PageBlocks:
        """Captions and answers by kind of question, and over levels of shift."""
        figures = answer_figures(run, OF_NO, SETS, _LEVELS, POOLED, "Positive class: no.", _NAME)
        wrong, pictures = made_up(run, {"amber": "AMBER"}, "set")
        return PageBlocks(_summary(run), _details(run), figures, wrong, pictures)


def _summary(run: ScoredRun) -> Iterator[Table]:
    """Captions and the score, then the yes/no questions by kind."""
    notes = [scoring_note(run), "AMBER score = (100 - CHAIR + F1) / 2; higher is better."]
    if run.whole["metric"].isin(CAPTIONS).any():
        yield metric_table("Captions, %", "set", run.whole, _NAME, _CAPTIONS, notes=notes)
    yield from _answers(run.whole, "Yes/no questions, %")


def _details(run: ScoredRun) -> Iterator[Table]:
    """Other treatments of unparsed answers, and what AMBER's script prints."""
    for words, rows in other_ways(run):
        yield from _answers(rows, f"Yes/no questions, %: {words}")
    yield from _as_printed(run.tables["amber"].iloc[0])


def _answers(rows: pd.DataFrame, caption: str) -> Iterator[Table]:
    if rows["metric"].isin(OF_NO).any():
        notes = ["Positive class: no. ± half of the 95% interval, from resampling images."]
        yield metric_table(caption, "kind", rows, SETS, OF_NO, notes=notes)


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
