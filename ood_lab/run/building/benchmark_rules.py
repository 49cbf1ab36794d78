"""What a benchmark is to the stages that all share: its settings, and what it adds to them."""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, ClassVar, Literal

import pandas as pd

from ood_lab.lvlm.answers.answer_files import Answers
from ood_lab.lvlm.answers.answer_locations import store_of
from ood_lab.lvlm.answers.judgements import judge, with_unsure
from ood_lab.lvlm.answers.open_answer_reader import READER, read_by_reader
from ood_lab.lvlm.answers.text_model import TextModel
from ood_lab.lvlm.chat.base import ChatModel
from ood_lab.lvlm.pages.benchmark_record import BenchmarkRecord
from ood_lab.lvlm.questions.package_exports import Format, GroupMetric
from ood_lab.lvlm.questions.question_files import Question, Questions
from ood_lab.lvlm.questions.question_forms import Forms
from ood_lab.lvlm.scoring.run_comparison import ComparedRuns
from ood_lab.run.job.workspace import Task, Workspace
from ood_lab.schema.results import NamedTables, Tables


@dataclass(frozen=True, kw_only=True)
class BenchmarkRules(Task):
    """How a benchmark builds, judges and scores; :class:`Benchmark` goes through its stages.

    Args:
        until: last stage to run.
        against: run folders of other models on the very same questions: they are
            compared in ``models.csv``. One of them may be of the same model and the same questions
            in the other form: the forms are compared in ``forms.csv``, as those of a run that asks
            both.
        accept_failed: the run counts as finished though questions have no answer; else it is
            not, and the same command asks them again.
        questions: ``questions.jsonl`` of another run, in place of the first stage.
        answers: ``answers.jsonl`` of another run, in place of the second stage.
        levels: ``levels.parquet`` of ``task=shift_levels`` for the images of the questions: results
            are then also given by these levels, in place of known ones.
        parser: reads the answers to yes/no questions; ``reader`` = the language model of
            ``reader=...``; None = the one that the questions name.
        export: formats of other packages to write the questions in, below ``exports``.
        foreign_clip: take a CLIP that comes with the package for images that it knows nothing of.
        report: write figures and the pages too.
        system, prompt_prefix, prompt_suffix: see
            :func:`~ood_lab.lvlm.questions.question_prompts.with_prompt`.
    """

    until: Literal["build", "ask", "score"]
    questions: str | None
    answers: str | None
    levels: str | None
    parser: str | None
    export: Sequence[Format]
    foreign_clip: bool
    report: bool
    accept_failed: bool
    against: Sequence[str]
    system: str | None
    prompt_prefix: str | None
    prompt_suffix: str | None
    #: Settings other than the parser that may be ``reader``.
    read_also: ClassVar[Sequence[str]] = ()
    #: Settings that name files.
    files: ClassVar[Sequence[str]] = ("questions", "answers", "levels")

    # What is asked.

    @property
    @abstractmethod
    def record(self) -> BenchmarkRecord:
        """What it is called, which numbers stand for it, and how it is shown."""

    def about(self, ws: Workspace) -> str:
        """What the questions are about, in a word or a path: the annotations, or their file."""
        return str(ws.record.annotations.get("name") or self.questions)

    @abstractmethod
    def build(self, ws: Workspace) -> Iterable[Question]:
        """The questions, once the run folder has what they are made of."""

    @property
    def forms(self) -> Forms:
        """The forms of new questions."""
        return "plain"

    @property
    def given(self) -> Sequence[str]:
        """Files of questions that were built before."""
        return [] if self.questions is None else [self.questions]

    @property
    def others(self) -> ComparedRuns:
        """The runs that it is compared with."""
        return ComparedRuns([Path(run) for run in self.against], self.record.identity)

    @property
    def wholes(self) -> Mapping[str, GroupMetric]:
        """Its metrics of groups of questions, for other packages."""
        return {}

    @property
    def parser_of_questions(self) -> str:
        """The parser that new questions name."""
        return "default" if self.parser in (None, READER) else str(self.parser)

    # How answers are judged and scored.

    @property
    def reading_ways(self) -> Mapping[str, str]:
        """Parser → a setting of how it reads that is not the usual one."""
        return {}

    def read(self, ws: Workspace, questions: Questions, answers: Answers) -> pd.DataFrame:
        """What every reply says by ``task.parser``, see ``judge``."""
        if self.parser != READER:
            return with_unsure(judge(questions, answers, self.parser))
        return with_unsure(read_by_reader(questions, answers, self.reading_model(ws)))

    def reading_model(self, ws: Workspace) -> TextModel:
        """The language model of ``reader=...``."""
        ws.record.reader = dict(ws.reader.made_with)
        return self.text_model(ws, ws.reader, READER)

    def text_model(self, ws: Workspace, model: ChatModel, name: str = "judge") -> TextModel:
        """A language model for texts, whose replies are kept; messages call it ``name``."""
        store = store_of(model.made_with, ws.answers_root)
        return TextModel(model, store, self.accept_failed, name)

    @abstractmethod
    def judged(self, ws: Workspace, questions: Questions, answers: Answers) -> Tables:
        """Single answers as tables by the name of their file; ``judged`` is one of them."""

    @abstractmethod
    def results(self, ws: Workspace, judged: Tables, model: str) -> pd.DataFrame:
        """The results table."""

    def further(self, ws: Workspace, judged: Tables, source: Path) -> NamedTables:
        """Further tables, with the names of their files; ``source`` is that of the questions."""
        yield from ()

    @abstractmethod
    def contrasts(self, ws: Workspace, judged: Tables) -> pd.DataFrame:
        """How models differ; the tables hold the answers of all, with a column ``model``.

        See :func:`ood_lab.metrics.resampling.clustered_bootstrap.contrast`.
        """

    def form_contrasts(self, ws: Workspace, judged: Tables) -> pd.DataFrame:
        """How two forms differ, by set; as :meth:`contrasts`, with the form for the model.

        See :func:`ood_lab.lvlm.scoring.answer_differences.contrasts_by`.
        """
        return self.contrasts(ws, judged)


def results_options(ws: Workspace) -> dict[str, Any]:
    """Bootstrap and least size of a cell, as the tables of results take them."""
    return ws.resampling | {"min_count": int(ws.metrics["min_count"])}
