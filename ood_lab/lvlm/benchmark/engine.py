"""The engine of all question benchmarks: build, ask, judge, score, show.

Each stage leaves a file that the next one reads. Answers are kept for all runs, so that none is
paid for twice. Results are written first, the page last; whatever comes after them costs none.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

import pandas as pd

from ood_lab.common.errors import UserError
from ood_lab.common.file_records import file_sha256
from ood_lab.common.files import write_csv, write_table
from ood_lab.common.grouping import distinct
from ood_lab.common.hints import check_known
from ood_lab.lvlm.answers.answer_files import Answer, Answers, model_name, store_of, write_answers
from ood_lab.lvlm.answers.answer_requests import answers_to, recorded_answers
from ood_lab.lvlm.answers.asking_facts import (
    answer_warnings,
    asking_facts,
    asking_sentence,
    failures,
    seconds_by_set,
    unread_warnings,
)
from ood_lab.lvlm.answers.open_answer_reader import READER, parsers_of
from ood_lab.lvlm.benchmark.contract import Benchmark, BenchmarkSession
from ood_lab.lvlm.pages.answer_tables import spread_table
from ood_lab.lvlm.pages.answers_page import write_answers_page
from ood_lab.lvlm.pages.benchmark_page import ANSWERS_PAGE, ScoredRun, difference_table, form_table
from ood_lab.lvlm.pages.result_sentences import found_sentences
from ood_lab.lvlm.parsers import YES_NO_PARSERS
from ood_lab.lvlm.parsers.reply_text import with_known_tags
from ood_lab.lvlm.questions.question_files import Questions, read_questions, write_questions
from ood_lab.lvlm.questions.question_forms import COT, WORDS, apart, form_of, sampled, with_prompt
from ood_lab.lvlm.questions.question_images import check_whole, with_images_found, with_levels
from ood_lab.lvlm.scoring.answer_differences import (
    of_models,
    read_otherwise,
    sample_spread,
    spread_rows,
    together,
    with_forms,
    with_whole_counts,
)
from ood_lab.report.rendering.blocks import Links, Section, Text
from ood_lab.report.rendering.drawing import optional
from ood_lab.report.rendering.page import Page
from ood_lab.report.rendering.summary import LINES, show_blocks, show_warnings
from ood_lab.report.rendering.table import Table
from ood_lab.schema.results import (
    PART,
    RESULTS,
    NamedTables,
    Tables,
    first_way,
    whole,
    write_results,
)
from ood_lab.schema.run_record import QuestionsRecord, ReadingRecord, RunRecord

QUESTIONS, ANSWERS = "questions.jsonl", "answers.jsonl"


def check_benchmark(benchmark: Benchmark, run: BenchmarkSession) -> None:
    """Raises a UserError where a stage lacks what it needs, before any of them runs."""
    _check_parser(benchmark, run)
    for name in benchmark.files:
        value = getattr(benchmark, name) or ()
        for file in [value] if isinstance(value, str) else value:
            if not Path(file).is_file():
                raise UserError(f"task.{name}={file}: there is no such file")
    if benchmark.until == "score" and run.draws < 1:
        raise UserError(
            f"metrics.n_bootstrap={run.draws}: intervals need resamples, 1,000 for example"
        )
    if benchmark.questions is not None:
        asks = benchmark.words.asks
        kinds = distinct(q.task for q in read_questions(Path(benchmark.questions)))
        if kinds and not set(kinds) & set(asks):
            raise UserError(
                f"task.questions={benchmark.questions} are of another benchmark "
                f"({', '.join(kinds[:3])}; here: {', '.join(asks[:3])}): choose its task=..."
            )
    for other in map(Path, benchmark.against):
        if not all((other / file).is_file() for file in (RESULTS, "judged.parquet")):
            raise UserError(
                f"task.against: {other} is not a run folder of {benchmark.words.name} that was "
                "scored"
            )
    if benchmark.until != "build" and benchmark.answers is None:
        _ = run.inputs.lvlm.made_with  # a missing folder shows before images are made
    if benchmark.questions is not None and benchmark.until == "build":
        raise UserError("task.until=build and task.questions exclude each other")
    benchmark.check_inputs(run)


def _check_parser(benchmark: Benchmark, run: BenchmarkSession) -> None:
    parsers = (*YES_NO_PARSERS, READER)
    check_known([benchmark.parser], parsers, "task.parser={name} reads no yes or no")
    chosen = bool(run.inputs.settings.get("reader"))
    readers = [k for k in ("parser", *benchmark.read_also) if getattr(benchmark, k) == READER]
    if chosen != bool(readers):
        raise UserError(
            "reader=... needs task.parser=reader: add it, or remove reader"
            if chosen
            else f"task.{readers[0]}=reader needs a language model: add reader=openai, for example"
        )
    if chosen:
        _ = run.inputs.reader.made_with  # a missing folder shows before anything is asked


def run_benchmark(benchmark: Benchmark, run: BenchmarkSession) -> pd.DataFrame | None:
    """Goes through the stages, up to ``until``.

    Returns:
        The results table; None before the last stage.

    Raises:
        UserError: see :func:`check_benchmark`, the annotations, the questions and the models.
    """
    file = Path(benchmark.questions or run.folder / QUESTIONS)
    if benchmark.questions is None:
        write_questions(benchmark.build(run), file)
    questions = _read_questions(benchmark, run, file)
    if benchmark.until == "build":
        return None
    times = 1 if benchmark.answers is not None else run.inputs.lvlm.samples
    samples = sampled(questions, times)
    answers = _ask(benchmark, run, [q for sample in samples for q in sample], file.parent)
    if benchmark.until == "ask":
        return None
    tags = run.inputs.lvlm.reasoning_tags
    answers = [replace(a, response=with_known_tags(a.response, tags)) for a in answers]
    model = model_name(run.record.lvlm)
    return _Scoring(benchmark, run, file.parent, model).results(samples, answers)


def _read_questions(benchmark: Benchmark, run: BenchmarkSession, file: Path) -> Questions:
    """The questions of a file in the form that is sent; the record says which they are."""
    written = with_images_found(read_questions(file, run.folder / "images"), file.parent)
    prompts = [
        with_prompt(q, benchmark.system, benchmark.prompt_prefix, benchmark.prompt_suffix)
        for q in benchmark.completed(run, written)
    ]
    if not prompts:
        raise UserError(f"{file} holds no question: there is nothing to ask")
    questions = with_levels(prompts, file.parent, benchmark.levels, run.cache)
    run.record.questions = QuestionsRecord(
        file=str(file.absolute()),
        n=len(questions),
        images=len({image for question in questions for image in question.images}),
        sha256=file_sha256(file),
    )
    if benchmark.questions is not None:
        built = RunRecord.read(file.parent, missing_ok=True)
        for name in built.model_fields_set.intersection(benchmark.words.of_building):
            setattr(run.record, name, getattr(built, name))
    benchmark.note(run, questions)
    return questions


def _ask(
    benchmark: Benchmark, run: BenchmarkSession, questions: Questions, folder: Path
) -> list[Answer]:
    """Answers in files, or those of the model; images are in ``folder``.

    A run with questions that have no answer can be resumed: it does not count as finished.

    Raises:
        UserError: see :func:`~ood_lab.lvlm.answers.answer_requests.recorded_answers`,
            :func:`~ood_lab.lvlm.questions.question_images.check_whole` and
            :func:`~ood_lab.lvlm.answers.answer_requests.answers_to`; or no question has an answer.
    """
    record, asked = run.record, benchmark.asked(run, questions)
    answers = benchmark.recorded(run, questions)
    if answers is None and benchmark.answers is not None:
        record.answers = benchmark.answers
        answers = recorded_answers(asked, Path(benchmark.answers), folder)
    elif answers is None:
        check_whole(asked, folder, run.cache)
        model = run.inputs.lvlm
        store = store_of(model.made_with, run.answers)
        answers = answers_to(asked, folder, model, store)
        record.answers, record.lvlm = str(store.path), dict(model.made_with)
    if answers and not record.lvlm:
        record.lvlm = dict(answers[0].made_with)
    write_answers(answers, run.folder / ANSWERS)
    failed = sum(bool(answer.error) for answer in answers)
    if not failed or benchmark.answers is not None:
        return answers
    kept = "every answer that came is kept; repeat the command to ask the others again"
    if failed == len(answers):
        raise UserError(f"none of {failed:,} questions has an answer ({failures(answers)}): {kept}")
    if not benchmark.accept_failed:
        run.unfinished = (
            f"{failed:,} of {len(answers):,} questions have no answer ({failures(answers)}): "
            f"{kept}, or give task.accept_failed=true to skip them"
        )
    return answers


@dataclass(frozen=True)
class _Judged:
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
class _Scoring:
    """The last stage: answers are judged, scored, compared, written and shown.

    Attributes:
        benchmark: how.
        run: notes what is found out.
        source: folder of the questions.
        model: name of the model that gave the answers.
    """

    benchmark: Benchmark
    run: BenchmarkSession
    source: Path
    model: str

    def results(self, samples: Sequence[Questions], answers: Sequence[Answer]) -> pd.DataFrame:
        """Goes through all of it, and returns the results table.

        Args:
            samples: the questions, as often as each was sent.
            answers: to all samples.
        """
        benchmark, run, words = self.benchmark, self.run, self.benchmark.words
        by_id = {answer.question_id: answer for answer in answers}
        judgements = self._judged(samples, answers, by_id)
        runs = [*map(Path, benchmark.against)]
        models = of_models(judgements.first, self.model, runs) if runs else {}
        otherwise = read_otherwise(run.record.reading, self.model, runs)
        run.record.warnings += otherwise.values()
        show_warnings(run.record)
        tables = dict(judgements.files())
        for name, table in tables.items():
            write_table(table, run.folder / f"{name}.parquet")
            write_csv(table, run.folder / f"{name}.csv")
        about = benchmark.about(run)
        run.record.title = f"{words.name}: {self.model} on {about}"
        run.record.benchmark = words.facts(about)
        tested = {name: t[~t["model"].isin(otherwise)] for name, t in models.items()}
        scored, thinking = self._scored(judgements, tested)
        blocks = list(self._summary(scored, thinking))
        links: list[tuple[str, str]] = []
        if benchmark.report:
            with optional(ANSWERS_PAGE):
                questions = [question for sample in samples for question in sample]
                single = [*tables.values()]
                write_answers_page(scored, questions, by_id, single, [*models.values()])
                links.append(("Every question with its image and reply", ANSWERS_PAGE))
        notes = [Text(f"{title}: {file}", "note") for title, file in links]
        lines = LINES if benchmark.report else None
        show_blocks([*blocks, *notes], run.folder, words.kind.name, lines)
        if benchmark.report:
            page = f"{words.kind.name}.html"
            with optional(page):
                self._page(scored, [*blocks, Links(links)]).write(run.folder / page)
        return scored.results

    def _judged(
        self, samples: Sequence[Questions], answers: Sequence[Answer], by_id: Answers
    ) -> _Judged:
        """What every answer says; the record gets costs and warnings."""
        benchmark, run, record = self.benchmark, self.run, self.run.record
        first, second = apart(samples[0])
        second = [q for q in second if q.question_id in by_id]
        cost_of = run.inputs.lvlm.cost_of if benchmark.answers is None else None
        record.parsers = parsers = parsers_of(samples[0], benchmark.parser)
        record.asking = asking = asking_facts(answers, cost_of)
        judgements = _Judged(
            dict(benchmark.judged(run, first, by_id)),
            dict(benchmark.judged(run, second, by_id)) if second else {},
            [dict(benchmark.judged(run, apart(sample)[0], by_id)) for sample in samples[1:]],
        )
        asking.seconds = {
            form: seconds_by_set(pd.concat(sets), by_id, benchmark.words.joined)
            for form, tables in (("", judgements.first), (COT, judgements.second))
            # Captions of a benchmark may have no set.
            if (sets := [t[["question_id", "split"]] for t in tables.values() if "split" in t])
        }
        ways = benchmark.reading_ways
        record.reading = ReadingRecord(
            parser=", ".join(f"{p} ({ways[p]})" if p in ways else p for p in parsers),
            form="both" if apart(samples[0])[1] else form_of(first),
            samples=len(samples),
            reader=model_name(record.reader) if record.reader else "none",
        )
        unread = () if benchmark.parser == READER else unread_warnings(judgements.first.values())
        record.warnings = [*answer_warnings(answers), *unread]
        return judgements

    def _scored(self, judgements: _Judged, models: Tables) -> tuple[ScoredRun, ScoredRun | None]:
        """The results, which are written; of a run in both forms, those of the second, too.

        ``models`` are the answers of all models to the same questions that are tested.
        """
        benchmark, run, words = self.benchmark, self.run, self.benchmark.words
        tables: dict[str, pd.DataFrame] = {}
        results = first = self._table(judgements.first)
        second = None
        if judgements.second:
            second = self._table(judgements.second)
            # What is known of the questions without an answer is given once.
            second = second[second["n_asked"].notna()]
            sides = {WORDS["cot"]: judgements.second, WORDS["plain"]: judgements.first}
            both = together({form: side["judged"] for form, side in sides.items()})
            tables["forms"] = benchmark.form_contrasts(
                {**judgements.first, "judged": both}, resampling=run.resampling
            )
            results = with_forms(words.kind, first, second, tables["forms"])
        if judgements.repeated:
            wholes = [whole(first_way(t)) for t in (first, *map(self._table, judgements.repeated))]
            parsed = [item["judged"] for item in (judgements.first, *judgements.repeated)]
            tables["samples"] = sample_spread(wholes, parsed, words.compared, words.joined)
            rows = words.kind.table(spread_rows(tables["samples"]), model=self.model, seed=run.seed)
            results = with_whole_counts([results, rows])
        write_results(results, run.folder)
        tables |= benchmark.further(run, judgements.first, self.source)
        if models and models["judged"]["model"].nunique() > 1:
            tables["models"] = benchmark.contrasts(models, resampling=run.resampling)
        for name, table in tables.items():
            write_csv(table, run.folder / f"{name}.csv")
        scored = ScoredRun(run.folder, self.source, results, judgements.first, tables, run.record)
        if second is None:
            return scored, None
        sets = second[second[PART].isna()]
        return scored, replace(scored, results=sets, judged=judgements.second, tables={})

    def _table(self, judgements: Tables) -> pd.DataFrame:
        """The results table of single answers."""
        rows = self.benchmark.results(self.run, judgements)
        return self.benchmark.words.kind.table(rows, model=self.model, seed=self.run.seed)

    def _summary(self, scored: ScoredRun, thinking: ScoredRun | None) -> Iterator[Table | Text]:
        """Sentences, the benchmark's own tables, comparisons, and how the answers came about."""
        words, tables = self.benchmark.words, scored.tables
        again = 0 if thinking is None else len(thinking.judged["judged"])
        for sentence in found_sentences(
            scored, words.sentences, words.told_as, words.asks[0], self.run.draws, again
        ):
            yield Text(sentence, "answer")
        yield from self.benchmark.blocks(scored).summary
        for block in () if thinking is None else self.benchmark.blocks(thinking).summary:
            if isinstance(block, Table):
                yield replace(block, caption=f"Chain of thought. {block.caption}")
        sets, metrics = words.sets, words.compared
        if "forms" in tables:
            yield form_table(tables["forms"], sets, metrics)
        if "samples" in tables:
            yield spread_table(tables["samples"], sets, metrics)
        if "models" in tables:
            title = "Models on the same questions, points"
            of_sets = sets if "split" in tables["models"] else None
            yield difference_table(title, tables["models"], {}, metrics, of_sets)
        if scored.record.asking:
            yield Text(asking_sentence(scored.record.asking), "note")
        read_by = [f"{name} ({source})" for name, source in scored.record.parsers.items()]
        yield Text(f"Replies are read by {'; '.join(read_by)}.", "note")

    def _page(self, scored: ScoredRun, blocks: Sequence[Table | Text | Links]) -> Page:
        """The page of the run, which begins with these blocks of the summary."""
        parts = self.benchmark.blocks(scored)
        return Page(
            title=scored.title,
            blocks=[
                Section("Results", blocks),
                Section("More results", list(parts.details)),
                Section("Figures", list(parts.figures)),
                parts.wrong,
            ],
            pictures=parts.pictures,
            definitions=self.benchmark.words.definitions,
            record=scored.record,
        )
