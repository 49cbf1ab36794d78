"""What the benchmarks share: build questions, prompt a vision-language model, score its answers."""

from __future__ import annotations

import hashlib
import logging
from abc import abstractmethod
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, ClassVar, Literal

import pandas as pd

from ood_lab.common.errors import UserError
from ood_lab.common.files import read_json, write_csv, write_table
from ood_lab.common.hints import check_known
from ood_lab.lvlm.answers.answer_files import Answer, Answers
from ood_lab.lvlm.answers.answer_locations import model_name, store_of, write_answers
from ood_lab.lvlm.answers.answer_requests import answers_to
from ood_lab.lvlm.answers.asking_facts import (
    asking_facts,
    asking_sentence,
    failures,
    seconds_by_set,
)
from ood_lab.lvlm.answers.judgements import FAILED, UNPARSED, judge, with_unsure
from ood_lab.lvlm.answers.open_answer_reader import READER, read_by_reader
from ood_lab.lvlm.answers.recorded_answers import recorded_answers
from ood_lab.lvlm.answers.reply_text import hides_a_key, is_cut
from ood_lab.lvlm.answers.text_model import TextModel
from ood_lab.lvlm.chat.base import ChatModel
from ood_lab.lvlm.pages.answers_page import write_answers_page
from ood_lab.lvlm.pages.benchmark_page import (
    ANSWERS_PAGE,
    Scored,
    difference_table,
    form_table,
)
from ood_lab.lvlm.pages.benchmark_record import BenchmarkRecord
from ood_lab.lvlm.pages.result_sentences import found_sentences
from ood_lab.lvlm.parsers import OURS, PARSERS, YES_NO_PARSERS, parser_of
from ood_lab.lvlm.questions.image_checks import check_whole
from ood_lab.lvlm.questions.image_levels import with_levels
from ood_lab.lvlm.questions.package_exports import Format, GroupMetric, export
from ood_lab.lvlm.questions.question_files import (
    Question,
    Questions,
    read_questions,
    write_questions,
)
from ood_lab.lvlm.questions.question_forms import (
    COT,
    WORDS,
    Forms,
    apart,
    check_same_model,
    with_forms,
    with_whole_counts,
)
from ood_lab.lvlm.questions.question_prompts import sampled, with_prompt
from ood_lab.lvlm.questions.relocated_images import with_images_found
from ood_lab.lvlm.scoring.answer_differences import together
from ood_lab.lvlm.scoring.run_comparison import ComparedRuns, OtherFormRun, of_models
from ood_lab.lvlm.scoring.sample_spread import sample_spread, spread_rows, spread_table
from ood_lab.report.rendering.blocks import Text
from ood_lab.report.rendering.output_failures import optional
from ood_lab.report.rendering.page import write_summary
from ood_lab.report.rendering.run_summary import show_warnings
from ood_lab.report.rendering.table import Table
from ood_lab.report.rendering.terminal import print_blocks
from ood_lab.run.building.workspace import Task, Workspace
from ood_lab.schema.results import PART, NamedTables, Tables, write_results

log = logging.getLogger(__name__)

#: Above this share of unparsed replies a run recommends ``reader=...``.
_MANY_UNREAD = 0.05
QUESTIONS, ANSWERS = "questions.jsonl", "answers.jsonl"


@dataclass(frozen=True, kw_only=True)
class Benchmark(Task):
    """Three stages that run together or separately; each leaves a file that the next one reads.

    Answers are kept for all runs, so that none is paid for twice.

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

    def check(self, ws: Workspace) -> None:
        """Raises a UserError where a stage lacks what it needs, before any of them runs."""
        self._check_parser(ws)
        for name in self.files:
            given = getattr(self, name) or ()
            for file in [given] if isinstance(given, str) else given:
                if not Path(file).is_file():
                    raise UserError(f"task.{name}={file}: there is no such file")
        if self.until == "score" and int(ws.metrics["n_bootstrap"]) < 1:
            raise UserError(
                f"metrics.n_bootstrap={ws.metrics['n_bootstrap']}: intervals need resamples, 1,000 "
                "for example"
            )
        if self.questions is not None:
            self._check_asked(Path(self.questions))
        self._others.check(self.record.name)
        other = self._others.in_other_form(self.forms, self.given)
        if other is not None and self.answers is None:
            check_same_model(other, ws.lvlm.made_with)
        if self.until != "build" and self.answers is None:
            _ = ws.lvlm.made_with  # a missing folder shows before images are made
        if self.questions is not None and self.until == "build":
            raise UserError("task.until=build and task.questions exclude each other")

    @property
    def forms(self) -> Forms:
        """The forms of new questions."""
        return "plain"

    @property
    def given(self) -> Sequence[str]:
        """Files of questions that were built before."""
        return [] if self.questions is None else [self.questions]

    @property
    def _others(self) -> ComparedRuns:
        return ComparedRuns([Path(run) for run in self.against], self.record.identity)

    def _check_parser(self, ws: Workspace) -> None:
        parsers = (*YES_NO_PARSERS, READER)
        check_known([self.parser], parsers, "task.parser={name} reads no yes or no")
        given = bool(ws.settings.get("reader"))
        wanted = [k for k in ("parser", *self.read_also) if getattr(self, k) == READER]
        if given != bool(wanted):
            raise UserError(
                "reader=... needs task.parser=reader: add it, or remove reader"
                if given
                else f"task.{wanted[0]}=reader needs a language model: add reader=openai, for "
                "example"
            )
        if given:
            _ = ws.reader.made_with  # a missing folder shows before anything is asked

    def _check_asked(self, file: Path) -> None:
        found = list(dict.fromkeys(question.task for question in read_questions(file)))
        if found and not set(found) & set(self.record.asks):
            raise UserError(
                f"task.questions={file} are of another benchmark ({', '.join(found[:3])}; here: "
                f"{', '.join(self.record.asks[:3])}): choose its task=..."
            )

    def run(self, ws: Workspace) -> pd.DataFrame | None:
        """Returns the results table; None on the other ranks, and before the last stage."""
        self.check(ws)
        if not ws.is_main:
            return None
        file = Path(self.questions or ws.folder / QUESTIONS)
        if self.questions is None:
            write_questions(self.build(ws), file)
        cache = ws.cfg.paths.cache
        written = read_questions(file, ws.folder / "images")
        asked = self.asked_as(ws, with_images_found(written, file.parent))
        if not asked:
            raise UserError(f"{file} holds no question: there is nothing to ask")
        questions = with_levels(asked, file.parent, self.levels, cache)
        digest = hashlib.sha256(file.read_bytes()).hexdigest()
        images = len({image for question in questions for image in question.images})
        about = {"n": len(questions), "images": images, "sha256": digest}
        ws.manifest["questions"] = {"file": str(file.absolute()), **about}
        self.note(ws, questions, file.parent)
        self._export(ws, questions, file.parent)
        if self.until == "build":
            return None
        twin = self._others.twin(questions, file.parent, cache)
        times = 1 if self.answers is not None else getattr(ws.lvlm, "samples", 1)
        samples = sampled(questions, times)
        every = [question for sample in samples for question in sample]
        found = self.find_answers(ws, every, file.parent)
        ws.manifest.setdefault("lvlm", dict(found[0].made_with) if found else {})
        write_answers(found, ws.folder / ANSWERS)
        self._note_failures(ws, found)
        if self.until == "ask":
            return None
        return self._finish(ws, samples, found, file.parent, twin)

    def asked_as(self, ws: Workspace, questions: Questions) -> list[Question]:
        """The questions of a file with the texts of the prompt."""
        words = (self.system, self.prompt_prefix, self.prompt_suffix)
        return [with_prompt(question, *words) for question in questions]

    @abstractmethod
    def build(self, ws: Workspace) -> Iterable[Question]:
        """The questions, once the run folder has what they are made of."""

    def note(self, ws: Workspace, questions: Questions, folder: Path) -> None:
        """Tells the manifest of questions in ``folder``: what the run that built them says."""
        manifest = folder / "manifest.json"
        if self.questions is not None and manifest.is_file():
            found = read_json(manifest)
            ws.manifest |= {key: found[key] for key in self.record.of_building if key in found}

    def _parsers(self, questions: Questions) -> dict[str, str]:
        """By parser that reads any reply, whose rule it is; captions have none."""
        names = dict.fromkeys(parser_of(question.parser, self.parser) for question in questions)
        known = {name: parser.source for name, parser in PARSERS.items()} | {READER: OURS}
        return {name: known[name] for name in names if name in known}

    def _export(self, ws: Workspace, questions: Questions, folder: Path) -> None:
        parser = None if self.parser == READER else self.parser  # a chat model is no rule
        questions = [replace(q, parser=parser_of(q.parser, parser)) for q in questions]
        first, beside = apart(questions)
        for form in self.export:
            place = ws.folder / "exports" / form
            export(first, folder, place, self.record.kind.name, form, self.wholes)
            log.info("questions for %s: %s", form, place)
            if beside:
                place = ws.folder / "exports" / f"{form}_{COT}"
                export(beside, folder, place, f"{self.record.kind.name}_{COT}", form, self.wholes)
                log.info("the same with a chain of thought: %s", place)

    def find_answers(self, ws: Workspace, questions: Questions, folder: Path) -> list[Answer]:
        """The answers of another run, or those of the model; images are in ``folder``.

        Raises:
            UserError: see :func:`~ood_lab.lvlm.answers.recorded_answers.recorded_answers`,
                :func:`~ood_lab.lvlm.questions.image_checks.check_whole` and
                :func:`~ood_lab.lvlm.answers.answer_requests.answers_to`.
        """
        if self.answers is not None:
            ws.manifest["answers"] = self.answers
            return recorded_answers(questions, Path(self.answers), folder)
        check_whole(questions, folder, ws.cfg.paths.cache)
        store = store_of(ws.lvlm.made_with, ws.answers_root)
        found = answers_to(questions, folder, ws.lvlm, store)
        ws.manifest |= {"answers": str(store.path), "lvlm": dict(ws.lvlm.made_with)}
        return found

    def _note_failures(self, ws: Workspace, found: Sequence[Answer]) -> None:
        """A run with questions that have no answer can be resumed: it does not count as finished.

        Raises:
            UserError: no question has one.
        """
        errors = [str(answer.error) for answer in found if answer.error]
        if not errors or self.answers is not None:
            return
        kept = "every answer that came is kept; repeat the command to ask the others again"
        if len(errors) == len(found):
            said = failures(found)
            raise UserError(f"none of {len(found):,} questions has an answer ({said}): {kept}")
        if not self.accept_failed:
            ws.unfinished = (
                f"{len(errors):,} of {len(found):,} questions have no answer ({failures(found)}): "
                f"{kept}, or give task.accept_failed=true to skip them"
            )

    def _finish(
        self,
        ws: Workspace,
        samples: Sequence[Questions],
        found: Sequence[Answer],
        source: Path,
        twin: OtherFormRun | None,
    ) -> pd.DataFrame:
        """Scores the answers, writes what was found, and shows it.

        Results are written first, the page last; whatever comes after the results costs none.
        """
        questions, record = samples[0], self.record
        model = model_name(ws.manifest["lvlm"])
        ws.manifest["parsers"] = self._parsers(questions)
        cost_of = getattr(ws.lvlm, "cost_of", None) if self.answers is None else None
        ws.manifest["asking"] = asking_facts(found, cost_of)
        answers = {a.question_id: a for a in found}
        first, others = apart(questions)
        beside = [q for q in others if q.question_id in answers]
        judged = dict(self.judged(ws, first, answers))
        second = dict(self.judged(ws, beside, answers)) if beside else {}
        repeated = [dict(self.judged(ws, apart(each)[0], answers)) for each in samples[1:]]
        ws.manifest["asking"]["seconds"] = {
            form: seconds_by_set(pd.concat(tables), answers, record.joined)
            for form, tables in (("", _sets_of(judged)), (COT, _sets_of(second)))
            if tables
        }
        ws.manifest["warnings"] = [*_warnings(found), *self._unread([*judged.values()])]
        show_warnings(ws.manifest)
        single = {**judged, **{f"{k}_{COT}": t for k, t in second.items()}}
        if repeated:
            single |= {f"{k}_samples": pd.concat([t[k] for t in repeated]) for k in judged}
        for name, table in single.items():
            write_table(table, ws.folder / f"{name}.parquet")
            write_csv(table, ws.folder / f"{name}.csv")
        ws.manifest |= {
            "title": f"{record.name}: {model} on {self.about(ws)}",
            "benchmark": {**record.manifest, "about": self.about(ws), "forms": {COT: WORDS["cot"]}},
        }
        results = own = self.results(ws, judged, model)
        tables: dict[str, pd.DataFrame] = {}
        thinking = self.results(ws, second, model) if second else None
        if thinking is not None:  # what is known of the questions without an answer stands once
            thinking = thinking[thinking["n_asked"].notna()]
        forms: Tables = {}
        if second:
            forms = {WORDS["cot"]: second["judged"], WORDS["plain"]: judged["judged"]}
        elif twin is not None:
            forms = twin.sides(first, judged["judged"], ws.manifest["lvlm"])
        if forms:
            both = together(forms)
            tables["forms"] = self.form_contrasts(ws, {**judged, "judged": both})
            results = with_forms(record.kind, own, thinking, tables["forms"])
        if repeated:
            drawn = [own, *(self.results(ws, each, model) for each in repeated)]
            of_sets = [Scored(ws.folder, source, each, {}, {}, {}).whole for each in drawn]
            said = [each["judged"] for each in (judged, *repeated)]
            tables["samples"] = sample_spread(of_sets, said, record.compared, record.joined)
            rows = record.kind.table(spread_rows(tables["samples"]), model=model, seed=ws.seed)
            results = with_whole_counts([results, rows])
        write_results(results, ws.folder)
        tables |= self.further(ws, judged, source)
        models = self._others.models(twin)
        if models:
            tables["models"] = self.contrasts(ws, of_models(judged, model, models))
        for name, table in tables.items():
            write_csv(table, ws.folder / f"{name}.csv")
        run = Scored(ws.folder, source, results, judged, tables, ws.manifest)
        again = len(second["judged"]) if second else 0
        draws = int(ws.metrics["n_bootstrap"])
        told = found_sentences(run, record.told, record.told_as, record.asks[0], draws, again)
        blocks = [*(Text(sentence, "answer") for sentence in told), *record.summary(run)]
        if thinking is not None:
            sets = thinking[thinking[PART].isna()]
            part = Scored(ws.folder, source, sets, second, {}, ws.manifest)
            blocks += [
                replace(block, caption=f"Chain of thought. {block.caption}")
                for block in record.summary(part)
                if isinstance(block, Table)
            ]
        if forms:
            run_beside = None if twin is None else twin.run
            blocks.append(form_table(tables["forms"], record.sets, record.compared, run_beside))
        if "samples" in tables:
            blocks.append(spread_table(tables["samples"], record.sets, record.compared))
        if models:
            title = "Models on the same questions, points"
            given = record.sets if "split" in tables["models"] else None
            blocks.append(difference_table(title, tables["models"], {}, record.compared, given))
        blocks.append(Text(asking_sentence(ws.manifest["asking"]), "note"))
        read_by = [f"{name} ({source})" for name, source in ws.manifest["parsers"].items()]
        blocks.append(Text(f"Replies are read by {'; '.join(read_by)}.", "note"))
        if self.report:
            with optional(ANSWERS_PAGE):
                every = [question for sample in samples for question in sample]
                write_answers_page(run, every, answers, [*single.values()])
                blocks.append(
                    Text(f"Every question with its image and reply: {ANSWERS_PAGE}", "note")
                )
        write_summary(blocks, ws.folder, record.kind.name)
        print_blocks(blocks)
        if self.report:
            page = f"{record.kind.name}.html"
            with optional(page):
                record.page(run, blocks).write(ws.folder / page)
        return results

    # What a benchmark says of itself.

    @property
    def wholes(self) -> Mapping[str, GroupMetric]:
        """Its metrics of groups of questions, for other packages."""
        return {}

    @property
    @abstractmethod
    def record(self) -> BenchmarkRecord:
        """What it is called, which numbers stand for it, and how it is shown."""

    @abstractmethod
    def about(self, ws: Workspace) -> str:
        """What the questions are about, in a word or a path."""

    @property
    def parser_of_questions(self) -> str:
        """The parser that new questions name."""
        return "default" if self.parser in (None, READER) else str(self.parser)

    def read(self, ws: Workspace, questions: Questions, answers: Answers) -> pd.DataFrame:
        """What every reply says by ``task.parser``, see ``judge``."""
        if self.parser != READER:
            return with_unsure(judge(questions, answers, self.parser))
        return with_unsure(read_by_reader(questions, answers, self.reading_model(ws)))

    def reading_model(self, ws: Workspace) -> TextModel:
        """The language model of ``reader=...``."""
        ws.manifest["reader"] = dict(ws.reader.made_with)
        return self.text_model(ws, ws.reader, READER)

    def text_model(self, ws: Workspace, model: ChatModel, name: str = "judge") -> TextModel:
        """A language model for texts, whose replies are kept; messages call it ``name``."""
        store = store_of(model.made_with, ws.answers_root)
        return TextModel(model, store, self.accept_failed, name)

    def _unread(self, judged: Sequence[pd.DataFrame]) -> Iterator[str]:
        """What to do where many replies could not be read."""
        status = pd.concat([table["status"] for table in judged if "status" in table])
        lost, said = int((status == UNPARSED).sum()), int((status != FAILED).sum())
        if self.parser != READER and lost > _MANY_UNREAD * said:
            yield (
                f"{lost:,} of {said:,} replies ({lost / said:.0%}) say nothing that the parser can "
                "read: have a language model read them with task.parser=reader reader=openai "
                "reader.model=NAME"
            )

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


def _sets_of(judged: Tables) -> list[pd.DataFrame]:
    """Questions and their sets; captions of a benchmark may have no set."""
    return [t[["question_id", "split"]] for t in judged.values() if "split" in t]


def _warnings(found: Sequence[Answer]) -> Iterator[str]:
    """What to know of the answers before a number is believed."""
    if failed := sum(answer.error is not None for answer in found):
        yield (
            f"{failed:,} of {len(found):,} questions have no answer, and the numbers skip "
            f"them: {failures(found)}"
        )
    if cut := sum(answer.error is None and is_cut(answer.finish_reason) for answer in found):
        yield (
            f"{cut:,} of {len(found):,} replies were cut at their longest length: an answer that "
            "is missing there is unparsed, and a caption read as far as it goes; give more room "
            "(lvlm.max_tokens of a server, lvlm.max_new_tokens of a local model)"
        )
    if hidden := sum(hides_a_key(answer.response) for answer in found):
        yield (
            f"{hidden:,} of {len(found):,} replies hold *** where an earlier version hid the key "
            "of the server, and may be unread for it: paths.answers=DIR, another folder, asks all "
            "questions again"
        )


def results_options(ws: Workspace) -> dict[str, Any]:
    """Bootstrap and least size of a cell, as the tables of results take them."""
    return ws.resampling | {"min_count": int(ws.metrics["min_count"])}
