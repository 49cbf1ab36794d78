"""The last stage of a benchmark: answers are judged, scored, compared, written and shown."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

import pandas as pd

from ood_lab.common.files import write_csv, write_table
from ood_lab.lvlm.answers.answer_files import Answer, Answers
from ood_lab.lvlm.answers.answer_locations import model_name
from ood_lab.lvlm.answers.answer_warnings import answer_warnings, unread_warnings
from ood_lab.lvlm.answers.asking_facts import asking_facts, seconds_by_set
from ood_lab.lvlm.answers.open_answer_reader import READER, parsers_of
from ood_lab.lvlm.pages.answers_page import write_answers_page
from ood_lab.lvlm.pages.benchmark_page import ANSWERS_PAGE, Scored
from ood_lab.lvlm.pages.summary_blocks import summary_blocks
from ood_lab.lvlm.questions.question_files import Questions
from ood_lab.lvlm.questions.question_forms import (
    COT,
    WORDS,
    apart,
    form_of,
    with_forms,
    with_whole_counts,
)
from ood_lab.lvlm.scoring.answer_differences import read_otherwise, together
from ood_lab.lvlm.scoring.run_comparison import OtherFormRun, of_models
from ood_lab.lvlm.scoring.sample_spread import sample_spread, spread_rows
from ood_lab.report.rendering.blocks import Links, Text
from ood_lab.report.rendering.output_failures import optional
from ood_lab.report.rendering.summary import LINES, show_blocks, show_warnings
from ood_lab.run.building.benchmark_rules import BenchmarkRules
from ood_lab.run.job.workspace import Workspace
from ood_lab.schema.results import PART, NamedTables, Tables, write_results
from ood_lab.schema.run_record import ReadingRecord

_EVERY = "Every question with its image and reply"


@dataclass(frozen=True)
class Judged:
    """Single answers, as tables by the name of their file.

    Attributes:
        first: of the first sample and form of every question.
        second: of the chain of thought, where a run asks both forms; else empty.
        repeated: of the further samples, in the first form.
    """

    first: Tables
    second: Tables
    repeated: Sequence[Tables]

    def files(self) -> NamedTables:
        """All of them, by the name of their file."""
        yield from self.first.items()
        for name, table in self.second.items():
            yield f"{name}_{COT}", table
        for name in self.first if self.repeated else ():
            yield f"{name}_samples", pd.concat([tables[name] for tables in self.repeated])


@dataclass(frozen=True)
class AnswerScoring:
    """Scores the answers of a run, writes what was found, and shows it.

    Results are written first, the page last; whatever comes after the results costs none.

    Attributes:
        task: the benchmark.
        ws: of the run.
        source: folder of the questions.
        twin: the run in the other form, if any.
        model: name of the model that gave them.
    """

    task: BenchmarkRules
    ws: Workspace
    source: Path
    twin: OtherFormRun | None
    model: str

    def results(self, samples: Sequence[Questions], found: Sequence[Answer]) -> pd.DataFrame:
        """Goes through all of it, and returns the results table.

        Args:
            samples: the questions, as often as each was sent.
            found: the answers of all samples.
        """
        ws, record = self.ws, self.task.record
        answers = {answer.question_id: answer for answer in found}
        judged = self._judged(samples, found, answers)
        tables = dict(judged.files())
        for name, table in tables.items():
            write_table(table, ws.folder / f"{name}.parquet")
            write_csv(table, ws.folder / f"{name}.csv")
        about = self.task.about(ws)
        ws.record.title = f"{record.name}: {self.model} on {about}"
        ws.record.benchmark = record.facts(about)
        run, thinking = self._scored(judged, apart(samples[0])[0])
        other, draws = None if self.twin is None else self.twin.run, int(ws.metrics["n_bootstrap"])
        blocks = list(summary_blocks(record, run, draws, thinking, other))
        links: list[tuple[str, str]] = []
        if self.task.report:
            with optional(ANSWERS_PAGE):
                every = [question for sample in samples for question in sample]
                models = [*self._of_models(judged).values()]
                write_answers_page(run, every, answers, [*tables.values()], models)
                links.append((_EVERY, ANSWERS_PAGE))
        notes = [Text(f"{words}: {file}", "note") for words, file in links]
        lines = LINES if self.task.report else None
        show_blocks([*blocks, *notes], ws.folder, record.kind.name, lines)
        if self.task.report:
            page = f"{record.kind.name}.html"
            with optional(page):
                record.page(run, [*blocks, Links(links)]).write(ws.folder / page)
        return run.results

    def _judged(
        self, samples: Sequence[Questions], found: Sequence[Answer], answers: Answers
    ) -> Judged:
        """What every answer says; the manifest gets costs and warnings."""
        task, ws = self.task, self.ws
        first, others = apart(samples[0])
        beside = [q for q in others if q.question_id in answers]
        cost_of = getattr(ws.lvlm, "cost_of", None) if task.answers is None else None
        ws.record.parsers = parsers = parsers_of(samples[0], task.parser)
        ws.record.asking = asking = asking_facts(found, cost_of)
        judged = Judged(
            dict(task.judged(ws, first, answers)),
            dict(task.judged(ws, beside, answers)) if beside else {},
            [dict(task.judged(ws, apart(each)[0], answers)) for each in samples[1:]],
        )
        asking.seconds = {
            form: seconds_by_set(pd.concat(sets), answers, task.record.joined)
            for form, tables in (("", judged.first), (COT, judged.second))
            if (sets := list(_sets_of(tables)))
        }
        ways = task.reading_ways
        ws.record.reading = ReadingRecord(
            parser=", ".join(f"{p} ({ways[p]})" if p in ways else p for p in parsers),
            form="both" if others else form_of(first),
            samples=len(samples),
            reader=model_name(ws.record.reader) if ws.record.reader else "none",
        )
        unread = () if task.parser == READER else unread_warnings(judged.first.values())
        otherwise = self._read_otherwise().values()
        ws.record.warnings = [*answer_warnings(found), *unread, *otherwise]
        show_warnings(ws.record)
        return judged

    def _scored(self, judged: Judged, asked: Questions) -> tuple[Scored, Scored | None]:
        """The results, which are written; of a run in both forms, those of the second, too."""
        task, ws, kind = self.task, self.ws, self.task.record.kind
        tables: dict[str, pd.DataFrame] = {}
        results = own = task.results(ws, judged.first, self.model)
        thinking = task.results(ws, judged.second, self.model) if judged.second else None
        if thinking is not None:  # what is known of the questions without an answer is given once
            thinking = thinking[thinking["n_asked"].notna()]
        if forms := self._forms(judged, asked):
            both = {**judged.first, "judged": together(forms)}
            tables["forms"] = task.form_contrasts(ws, both)
            results = with_forms(kind, own, thinking, tables["forms"])
        if judged.repeated:
            tables["samples"] = self._spread(judged, own)
            rows = kind.table(spread_rows(tables["samples"]), model=self.model, seed=ws.seed)
            results = with_whole_counts([results, rows])
        write_results(results, ws.folder)
        tables |= task.further(ws, judged.first, self.source)
        otherwise = self._read_otherwise()
        models = {k: t[~t["model"].isin(otherwise)] for k, t in self._of_models(judged).items()}
        if models and models["judged"]["model"].nunique() > 1:
            tables["models"] = task.contrasts(ws, models)
        for name, table in tables.items():
            write_csv(table, ws.folder / f"{name}.csv")
        run = Scored(ws.folder, self.source, results, judged.first, tables, ws.record)
        if thinking is None:
            return run, None
        sets = thinking[thinking[PART].isna()]
        return run, Scored(ws.folder, self.source, sets, judged.second, {}, ws.record)

    def _of_models(self, judged: Judged) -> Tables:
        """Answers of all models to the same questions; empty where there is only one."""
        models = self.task.others.models(self.twin)
        return of_models(judged.first, self.model, models) if models else {}

    def _read_otherwise(self) -> dict[str, str]:
        """Models that are not tested, and why."""
        models = self.task.others.models(self.twin)
        return read_otherwise(self.ws.record.reading, self.model, models)

    def _forms(self, judged: Judged, asked: Questions) -> Tables:
        """Answers by what their form is called, of this run or of two."""
        if judged.second:
            return {WORDS["cot"]: judged.second["judged"], WORDS["plain"]: judged.first["judged"]}
        if self.twin is None:
            return {}
        return self.twin.sides(asked, judged.first["judged"], self.ws.record.lvlm)

    def _spread(self, judged: Judged, own: pd.DataFrame) -> pd.DataFrame:
        """The spread of the numbers over the samples."""
        ws, record = self.ws, self.task.record
        drawn = [own, *(self.task.results(ws, each, self.model) for each in judged.repeated)]
        of_sets = [Scored(ws.folder, self.source, each, {}, {}, ws.record).whole for each in drawn]
        said = [each["judged"] for each in (judged.first, *judged.repeated)]
        return sample_spread(of_sets, said, record.compared, record.joined)


def _sets_of(judged: Tables) -> Iterator[pd.DataFrame]:
    """Questions and their sets; captions of a benchmark may have no set."""
    return (t[["question_id", "split"]] for t in judged.values() if "split" in t)
