"""AMBER: what do vision-language models hallucinate in captions and wrongly affirm?"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, ClassVar

import numpy as np
import pandas as pd
from numpy.typing import NDArray

from ood_lab.common.arguments import Fields
from ood_lab.common.grouping import distinct
from ood_lab.common.random_streams import Resampling
from ood_lab.lvlm.answers.judgements import FAILED, PARSED
from ood_lab.lvlm.benchmark.contract import BenchmarkSession, BenchmarkWords, CaptionBenchmark
from ood_lab.lvlm.benchmarks.amber.published_files import AmberFiles
from ood_lab.lvlm.captions.caption_page import (
    CAPTIONS,
    COMPARED,
    OF_NO,
    made_up,
    other_ways,
    scoring_note,
)
from ood_lab.lvlm.captions.caption_rules import CaptionWords
from ood_lab.lvlm.captions.caption_scoring import (
    WAYS,
    Unparsed,
    amber_table,
    caption_kind,
    result_rows,
)
from ood_lab.lvlm.pages.benchmark_page import (
    Headline,
    PageBlocks,
    ScoredRun,
    answer_figures,
    defined,
    metric_table,
)
from ood_lab.lvlm.pages.result_sentences import CHAIR, MetricSentence
from ood_lab.lvlm.parsers import NO
from ood_lab.lvlm.questions.question_files import (
    ACTION,
    EXISTENCE,
    GENERATIVE,
    GROUPS,
    NUMBER,
    RELATION,
    STATE,
    Questions,
)
from ood_lab.lvlm.scoring.scored_results import POOLED, estimate_rows
from ood_lab.lvlm.scoring.yes_no_scores import class_counts
from ood_lab.metrics.answer_metrics import (
    COUNTS,
    EXISTENCE_EPSILON,
    caption_metrics,
    yes_no_metrics,
)
from ood_lab.metrics.resampling.clustered_bootstrap import clustered
from ood_lab.report.rendering.table import Table, plain_table
from ood_lab.schema.arrays import Floats
from ood_lab.schema.results import NamedTables, ResultRows, Row, Tables

KIND = caption_kind("amber")
#: ``AMBER Score = (1 - CHAIR + F1) / 2``, F1 of all yes/no questions with no as positive class.
SCORE = "amber_score"
_ALL = "all"
#: What AMBER's script adds to ``P + R`` in F1, by group of questions.
EPSILONS = dict.fromkeys(GROUPS, 0.0001) | {"existence": EXISTENCE_EPSILON}


def of_group(row: Mapping[str, Any]) -> Fields:
    """``<group>_<metric>`` as the metric of a set.

    Groups of yes/no questions (:data:`~ood_lab.lvlm.questions.question_files.GROUPS`) are the sets,
    and may overlap; captions, the score, and all yes/no questions are of the set ``pooled``.
    """
    group, _, metric = str(row["metric"]).partition("_")
    if group not in GROUPS:
        return dict(row)
    return {**row, "split": POOLED if group == _ALL else group, "metric": metric}


def score_rows(
    captions: pd.DataFrame, judgements: pd.DataFrame, way: Unparsed, resampling: Resampling
) -> list[Row]:
    """The AMBER score; an image is resampled with its caption and all answers about it.

    Args:
        captions: see :func:`ood_lab.lvlm.captions.caption_scoring.caption_table`.
        judgements: see :func:`ood_lab.lvlm.answers.judgements.judge`, of the yes/no questions.
        way: of treating unparsed answers.
        resampling: of the bootstrap.
    """
    texts = captions[captions["status"] == PARSED]
    asked = judgements[judgements["status"] != FAILED]
    read = asked[asked["status"] == PARSED]
    asked = read if way == "drop" else asked
    if not len(texts) or not len(read):
        return []
    counts = np.zeros((len(texts) + len(asked), len(COUNTS) + 6), np.int64)
    counts[: len(texts), : len(COUNTS)] = texts[list(COUNTS)]
    counts[len(texts) :, len(COUNTS) :] = class_counts(asked, NO)
    files = pd.concat([texts["file"], asked["file"]])
    results = clustered(counts, _score, files, resampling=resampling)
    keys = {"split": POOLED, "unparsed": way, "n_images": files.nunique()}
    both = pd.concat([captions, judgements])
    return estimate_rows(keys, results.estimates(), files.nunique(), both)


def _score(counts: NDArray[Any]) -> dict[str, Floats]:
    """Of counts of captions, then those of answers (no is positive)."""
    chair = caption_metrics(counts[..., : len(COUNTS)])["chair"]
    return {SCORE: (1 - chair + yes_no_metrics(counts[..., len(COUNTS) :])["f1"]) / 2}


def rounded(captions: pd.DataFrame, judgements: pd.DataFrame) -> pd.DataFrame:
    """One row: what AMBER's script prints, and the score of its rounded CHAIR and F1.

    ``(100 - CHAIR + F1) / 2``, which the paper defines and the script does not print, is rounded
    to one decimal like the others.
    """
    table = amber_table(captions, judgements, [], EPSILONS)
    if {"chair", f"{_ALL}_f1"} <= set(table):
        table[SCORE] = ((100 - table["chair"] + table[f"{_ALL}_f1"]) / 2).round(1)
    return table.drop(columns="split")


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
    sentences=(
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

    def results(self, run: BenchmarkSession, judgements: Tables) -> ResultRows:
        """See the base class."""
        captions, answers = judgements["captions"], judgements["judged"]
        rows = result_rows(captions, answers, [], unparsed=self.unparsed, **run.options)
        rows = [of_group(row) for row in rows]
        for way in distinct([self.unparsed, *WAYS]) if len(captions) else ():
            rows += score_rows(captions, answers, way, run.resampling)
        return rows

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
    printed = run.tables["amber"].T.set_axis(["%"], axis=1).reset_index(names="metric")
    yield plain_table("As AMBER's script rounds them", printed.to_dict("records"))


def _answers(rows: pd.DataFrame, caption: str) -> Iterator[Table]:
    if rows["metric"].isin(OF_NO).any():
        notes = ["Positive class: no. ± half of the 95% interval, from resampling images."]
        yield metric_table(caption, "kind", rows, SETS, OF_NO, notes=notes)
