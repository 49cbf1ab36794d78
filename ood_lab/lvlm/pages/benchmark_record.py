"""What a benchmark is called, which numbers stand for it, and how it is shown."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field

from ood_lab.lvlm.pages.benchmark_page import Headline, Scored, table_columns
from ood_lab.lvlm.pages.result_sentences import MetricSentence
from ood_lab.lvlm.questions.question_forms import COT, WORDS
from ood_lab.report.rendering.blocks import Block, Folded, PlannedFigure, Section, Text
from ood_lab.report.rendering.page import Page
from ood_lab.report.rendering.table import Table
from ood_lab.report.rendering.thumbnails import Thumbnails
from ood_lab.schema.results import Kind, Names
from ood_lab.schema.run_record import BenchmarkFacts


@dataclass(frozen=True, kw_only=True)
class BenchmarkRecord:
    """A benchmark as data: a task that asks it adds how its questions are built and scored.

    Args:
        name: what it is called on pages and in tables.
        kind: of its results, which also names its page.
        asks: ``Question.task`` of the questions that it scores; the first is held against a
            constant answer.
        headlines: its numbers where several benchmarks are shown.
        told: metrics of the sentences, see
            :func:`~ood_lab.lvlm.pages.result_sentences.found_sentences`.
        compared: metrics in which models are compared, and what they are called.
        summary: what the terminal prints, and the page shows first.
        details: further results on the page, which may show the pictures of ``wrong``.
        figures: those of the page.
        wrong: the section of wrong answers, and its pictures.
        definitions: terms of the page and their meanings.
        metric_tables: all its metrics where several models are shown: title → metric → words.
        sets: sets of questions that comparisons separate, and their names.
        told_as: names of sets in sentences, if not their own; "" = a set has no sentence.
        finer: what divides its sets further in tables, the first word of ``part``.
        joined: sets that consist of two values of ``split``; the second is in no other set.
        identity: keys in ``meta`` that distinguish questions in either form; () = questions have
            one form.
        of_building: what a run that builds questions notes of them in its record, for those that
            ask them.
    """

    name: str
    kind: Kind
    asks: Sequence[str]
    headlines: Sequence[Headline]
    told: Sequence[MetricSentence]
    compared: Names
    summary: Callable[[Scored], Iterator[Table | Text]]
    details: Callable[[Scored, Thumbnails], Iterable[Block]]
    figures: Callable[[Scored], Iterable[PlannedFigure | Folded]]
    wrong: Callable[[Scored], tuple[Section, Thumbnails]]
    definitions: Sequence[tuple[str, str]]
    metric_tables: Mapping[str, Names] = field(default_factory=dict)
    sets: Names = field(default_factory=dict)
    told_as: Names = field(default_factory=dict)
    finer: Sequence[str] = ()
    joined: Mapping[str, tuple[str, str]] = field(default_factory=dict)
    identity: Sequence[str] = ()
    of_building: Sequence[str] = ()

    def facts(self, about: str) -> BenchmarkFacts:
        """What a run records of it, for tables of several benchmarks; ``about`` names the data."""
        return BenchmarkFacts(
            name=self.name,
            page=f"{self.kind.name}.html",
            headlines=list(self.headlines),
            told={told.metric: told.lower for told in self.told},
            tables={title: table_columns(m) for title, m in self.metric_tables.items()},
            sets=dict(self.sets),
            finer=list(self.finer),
            about=about,
            forms={COT: WORDS["cot"]},
        )

    def page(self, run: Scored, blocks: Sequence[Block]) -> Page:
        """The page of a run, which begins with these blocks of the summary."""
        wrong, pictures = self.wrong(run)
        sections = [
            Section("Results", blocks),
            Section("More results", list(self.details(run, pictures))),
            Section("Figures", list(self.figures(run))),
            wrong,
        ]
        return Page(
            title=run.title,
            blocks=sections,
            pictures=pictures,
            definitions=self.definitions,
            record=run.record,
        )
