"""What a benchmark is to the engine: its settings, its words, and how it builds, scores and shows.

The engine (:mod:`ood_lab.lvlm.benchmark.engine`) calls a benchmark, and is never called back.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any, ClassVar, Literal, Protocol

import pandas as pd

from ood_lab.common.arguments import Fields, Settings
from ood_lab.common.random_streams import Resampling
from ood_lab.lvlm.answers.answer_files import Answer, Answers, store_of
from ood_lab.lvlm.answers.asking_facts import JoinedSets
from ood_lab.lvlm.answers.judgements import judge, with_unsure
from ood_lab.lvlm.answers.open_answer_reader import READER, TextModel, read_by_reader
from ood_lab.lvlm.chat.base import ChatModel
from ood_lab.lvlm.pages.benchmark_page import Headline, PageBlocks, ScoredRun, table_columns
from ood_lab.lvlm.pages.result_sentences import MetricSentence
from ood_lab.lvlm.questions.question_files import Question, Questions
from ood_lab.lvlm.questions.question_forms import COT, WORDS
from ood_lab.schema.results import Kind, NamedTables, Names, ResultRows, Tables
from ood_lab.schema.run_record import BenchmarkFacts, RunRecord

if TYPE_CHECKING:
    from ood_lab.clip import ClipModel
    from ood_lab.lvlm.annotations import Annotations
    from ood_lab.lvlm.image_text.base import ImageTextModel


from ood_lab.lvlm.captions.caption_rules import CaptionRules, CaptionWords, Similarity
from ood_lab.lvlm.captions.caption_scoring import Unparsed, caption_table, contrasts
from ood_lab.lvlm.captions.nouns import NounExtractor
from ood_lab.lvlm.questions.question_files import GENERATIVE


class BenchmarkInputs(Protocol):
    """What questions are made of and asked with; each is built when first asked for.

    Attributes:
        settings: of each of them, by its name; empty or missing = none is chosen.
    """

    @property
    def settings(self) -> Settings: ...  # noqa: D102
    @property
    def annotations(self) -> Annotations: ...  # noqa: D102
    @property
    def clip(self) -> ClipModel: ...  # noqa: D102
    @property
    def image_text(self) -> Mapping[str, ImageTextModel]: ...  # noqa: D102
    @property
    def concepts(self) -> Any: ...  # noqa: D102
    @property
    def generator(self) -> Any: ...  # noqa: D102
    @property
    def judge(self) -> Any: ...  # noqa: D102
    @property
    def lvlm(self) -> ChatModel: ...  # noqa: D102
    @property
    def reader(self) -> ChatModel: ...  # noqa: D102


@dataclass
class BenchmarkSession:
    """A run of a benchmark.

    Attributes:
        inputs: models, annotations and what else the questions need.
        folder: of the run.
        record: of the run; what is found out is noted there.
        seed: of every random choice.
        draws: bootstrap resamples.
        min_count: levels, cells and parts with fewer units are missing in results.
        answers: folder of the answers of all models.
        features: folder of the features of images.
        cache: remembers contents of files; None = nothing is remembered.
        unfinished: why the same command has more to do; None = it has not.
    """

    inputs: BenchmarkInputs
    folder: Path
    record: RunRecord
    seed: int
    draws: int
    min_count: int
    answers: Path
    features: Path
    cache: str | None = None
    unfinished: str | None = None

    @property
    def resampling(self) -> Resampling:
        """Of every bootstrap."""
        return Resampling(self.draws, self.seed)

    @property
    def options(self) -> Fields:
        """The same and the least size of a cell, as tables of results take them."""
        return {"resampling": self.resampling, "min_count": self.min_count}


@dataclass(frozen=True, kw_only=True)
class BenchmarkWords:
    """What a benchmark is called, and which numbers stand for it.

    Args:
        name: what it is called on pages and in tables.
        kind: of its results, which also names its page.
        asks: ``Question.task`` of the questions that it scores; the first is held against a
            constant answer.
        headlines: its numbers where several benchmarks are shown.
        sentences: metrics of the sentences, see
            :func:`~ood_lab.lvlm.pages.result_sentences.found_sentences`.
        compared: metrics in which models are compared, and what they are called.
        definitions: terms of the page and their meanings.
        metric_tables: all its metrics where several models are shown: title → metric → words.
        sets: sets of questions that comparisons separate, and their names.
        told_as: names of sets in sentences, if not their own; "" = a set has no sentence.
        finer: what divides its sets further in tables, the first word of ``part``.
        joined: sets that consist of two values of ``split``; the second is in no other set.
        of_building: what a run that builds questions notes of them in its record, for those that
            ask them.
    """

    name: str
    kind: Kind
    asks: Sequence[str]
    headlines: Sequence[Headline]
    sentences: Sequence[MetricSentence]
    compared: Names
    definitions: Sequence[tuple[str, str]]
    metric_tables: Mapping[str, Names] = field(default_factory=dict)
    sets: Names = field(default_factory=dict)
    told_as: Names = field(default_factory=dict)
    finer: Sequence[str] = ()
    joined: JoinedSets = field(default_factory=dict)
    of_building: Sequence[str] = ()

    def facts(self, about: str) -> BenchmarkFacts:
        """What a run records of it, for tables of several benchmarks; ``about`` names the data."""
        return BenchmarkFacts(
            name=self.name,
            page=f"{self.kind.name}.html",
            headlines=list(self.headlines),
            lower_is_better={one.metric: one.lower for one in self.sentences},
            tables={title: table_columns(m) for title, m in self.metric_tables.items()},
            sets=dict(self.sets),
            finer=list(self.finer),
            about=about,
            forms={COT: WORDS["cot"]},
        )


@dataclass(frozen=True, kw_only=True)
class Benchmark(ABC):
    """How a benchmark builds questions, scores answers, compares models, and shows its results.

    Args:
        until: last stage to run.
        against: run folders of other models on the very same questions: they are
            compared in ``models.csv``.
        accept_failed: the run counts as finished though questions have no answer; else it is
            not, and the same command asks them again.
        questions: ``questions.jsonl`` of another run, in place of the first stage.
        answers: ``answers.jsonl`` of another run, in place of the second stage.
        levels: ``levels.parquet`` of ``task=shift_levels`` for the images of the questions: results
            are then also given by these levels, in place of known ones.
        parser: reads the answers to yes/no questions; ``reader`` = the language model of
            ``reader=...``; None = the one that the questions name.
        report: write figures and the pages too.
        system, prompt_prefix, prompt_suffix: see
            :func:`~ood_lab.lvlm.questions.question_forms.with_prompt`.
    """

    until: Literal["build", "ask", "score"]
    questions: str | None
    answers: str | None
    levels: str | None
    parser: str | None
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

    @property
    @abstractmethod
    def words(self) -> BenchmarkWords:
        """What it is called, and which numbers stand for it."""

    # How questions are built.

    def check_inputs(self, run: BenchmarkSession) -> None:  # noqa: B027 - most have nothing to check
        """Raises a UserError where its own stages lack what they need, before any of them runs."""

    @abstractmethod
    def build(self, run: BenchmarkSession) -> Iterable[Question]:
        """The questions, once the run folder has what they are made of."""

    def about(self, run: BenchmarkSession) -> str:
        """What the questions are about, in a word or a path: the annotations, or their file."""
        return str(run.record.annotations.get("name") or self.questions)

    @property
    def parser_of_questions(self) -> str:
        """The parser that new questions name."""
        return "default" if self.parser in (None, READER) else str(self.parser)

    def completed(self, run: BenchmarkSession, questions: Questions) -> Questions:
        """The questions of a file with what is only known now: options, what images show."""
        return questions

    def note(self, run: BenchmarkSession, questions: Questions) -> None:  # noqa: B027 - most note none
        """Records what it knows of the questions."""

    def asked(self, run: BenchmarkSession, questions: Questions) -> Questions:
        """The questions that get an answer, such as those that nobody has rejected."""
        return questions

    def recorded(self, run: BenchmarkSession, questions: Questions) -> list[Answer] | None:
        """Answers in files of its own; None = there are none."""
        return None

    # How answers are scored.

    @property
    def reading_ways(self) -> Names:
        """Parser → a setting of how it reads that is not the usual one."""
        return {}

    def read(self, run: BenchmarkSession, questions: Questions, answers: Answers) -> pd.DataFrame:
        """What every reply says by ``task.parser``, see ``judge``."""
        if self.parser != READER:
            return with_unsure(judge(questions, answers, self.parser))
        return with_unsure(read_by_reader(questions, answers, self.reading_model(run)))

    def reading_model(self, run: BenchmarkSession) -> TextModel:
        """The language model of ``reader=...``."""
        run.record.reader = dict(run.inputs.reader.made_with)
        return self.text_model(run, run.inputs.reader, READER)

    def text_model(self, run: BenchmarkSession, model: ChatModel, name: str = "judge") -> TextModel:
        """A language model for texts, whose replies are kept; messages call it ``name``."""
        return TextModel(model, store_of(model.made_with, run.answers), self.accept_failed, name)

    def judged(self, run: BenchmarkSession, questions: Questions, answers: Answers) -> Tables:
        """Single answers as tables by the name of their file; ``judged`` is one of them."""
        return {"judged": self.read(run, questions, answers)}

    @abstractmethod
    def results(self, run: BenchmarkSession, judgements: Tables) -> ResultRows:
        """The rows of the results table."""

    def further(self, run: BenchmarkSession, judgements: Tables, source: Path) -> NamedTables:
        """Further tables, with the names of their files; ``source`` is that of the questions."""
        yield from ()

    # How models are compared.

    @abstractmethod
    def contrasts(self, judgements: Tables, resampling: Resampling) -> pd.DataFrame:
        """How models differ; the tables hold the answers of all, with a column ``model``.

        See :func:`ood_lab.metrics.resampling.clustered_bootstrap.contrast`.
        """

    def form_contrasts(self, judgements: Tables, resampling: Resampling) -> pd.DataFrame:
        """How two forms differ, by set; as :meth:`contrasts`, with the form for the model.

        See :func:`ood_lab.lvlm.scoring.answer_differences.contrasts_by`.
        """
        return self.contrasts(judgements, resampling=resampling)

    # What its page shows.

    @abstractmethod
    def blocks(self, run: ScoredRun) -> PageBlocks:
        """The parts of its page."""


@dataclass(frozen=True, kw_only=True)
class CaptionBenchmark(Benchmark):
    """Scores captions and yes/no questions of the same images.

    Args:
        nouns: finds the nouns of a caption.
        similarity: tells synonyms.
        unparsed: which of the two ways of treating unparsed answers is printed.
    """

    nouns: NounExtractor
    similarity: Similarity
    unparsed: Unparsed

    @abstractmethod
    def vocabulary(self, run: BenchmarkSession) -> CaptionWords:
        """The words that captions are searched for."""

    def judged(self, run: BenchmarkSession, questions: Questions, answers: Answers) -> Tables:
        """Captions, and answers to the other questions."""
        run.record.scoring = {**self.nouns.made_with, **self.similarity.made_with}
        words = self.vocabulary(run)
        rules = CaptionRules(
            frozenset(words.vocabulary), words.associates, words.safe_words, self.similarity
        )
        closed = [q for q in questions if q.task != GENERATIVE]
        return {
            "captions": caption_table(questions, answers, rules, self.nouns),
            "judged": self.read(run, closed, answers),
        }

    def contrasts(self, judgements: Tables, resampling: Resampling) -> pd.DataFrame:
        """See the base class."""
        return contrasts(
            judgements["captions"], judgements["judged"], "model", resampling=resampling
        )
