"""What the benchmarks share: build questions, prompt a vision-language model, score its answers."""

from __future__ import annotations

import hashlib
from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path

import pandas as pd

from ood_lab.common.errors import UserError
from ood_lab.common.hints import check_known
from ood_lab.lvlm.answers.answer_files import Answer
from ood_lab.lvlm.answers.answer_locations import model_name, store_of, write_answers
from ood_lab.lvlm.answers.answer_requests import answers_to
from ood_lab.lvlm.answers.asking_facts import failures
from ood_lab.lvlm.answers.open_answer_reader import READER
from ood_lab.lvlm.answers.recorded_answers import recorded_answers
from ood_lab.lvlm.answers.reply_text import with_known_tags
from ood_lab.lvlm.parsers import YES_NO_PARSERS, parser_of
from ood_lab.lvlm.questions.image_checks import check_whole
from ood_lab.lvlm.questions.image_levels import with_levels
from ood_lab.lvlm.questions.package_exports import export_forms
from ood_lab.lvlm.questions.question_files import (
    Question,
    Questions,
    read_questions,
    write_questions,
)
from ood_lab.lvlm.questions.question_forms import check_same_model
from ood_lab.lvlm.questions.question_prompts import sampled, with_prompt
from ood_lab.lvlm.questions.relocated_images import with_images_found
from ood_lab.run.building.answer_scoring import AnswerScoring
from ood_lab.run.building.benchmark_rules import BenchmarkRules
from ood_lab.run.job.workspace import Workspace
from ood_lab.schema.run_record import QuestionsRecord, RunRecord

QUESTIONS, ANSWERS = "questions.jsonl", "answers.jsonl"


@dataclass(frozen=True, kw_only=True)
class Benchmark(BenchmarkRules):
    """Three stages that run together or separately; each leaves a file that the next one reads.

    Answers are kept for all runs, so that none is paid for twice.
    """

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
        self.others.check(self.record.name)
        other = self.others.in_other_form(self.forms, self.given)
        if other is not None and self.answers is None:
            check_same_model(other, ws.lvlm.made_with)
        if self.until != "build" and self.answers is None:
            _ = ws.lvlm.made_with  # a missing folder shows before images are made
        if self.questions is not None and self.until == "build":
            raise UserError("task.until=build and task.questions exclude each other")

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
        ws.record.questions = QuestionsRecord(
            file=str(file.absolute()), n=len(questions), images=images, sha256=digest
        )
        self.note(ws, questions, file.parent)
        self._export(ws, questions, file.parent)
        if self.until == "build":
            return None
        twin = self.others.twin(questions, file.parent, cache)
        times = 1 if self.answers is not None else getattr(ws.lvlm, "samples", 1)
        samples = sampled(questions, times)
        every = [question for sample in samples for question in sample]
        found = self.find_answers(ws, every, file.parent)
        if found and not ws.record.lvlm:
            ws.record.lvlm = dict(found[0].made_with)
        write_answers(found, ws.folder / ANSWERS)
        self._note_failures(ws, found)
        if self.until == "ask":
            return None
        tags = getattr(ws.lvlm, "reasoning_tags", ())
        found = [replace(a, response=with_known_tags(a.response, tags)) for a in found]
        model = model_name(ws.record.lvlm)
        return AnswerScoring(self, ws, file.parent, twin, model).results(samples, found)

    def asked_as(self, ws: Workspace, questions: Questions) -> list[Question]:
        """The questions of a file with the texts of the prompt."""
        words = (self.system, self.prompt_prefix, self.prompt_suffix)
        return [with_prompt(question, *words) for question in questions]

    def note(self, ws: Workspace, questions: Questions, folder: Path) -> None:
        """Records of questions in ``folder`` what the run that built them says."""
        if self.questions is not None:
            built = RunRecord.read(folder, missing_ok=True)
            for field in built.model_fields_set.intersection(self.record.of_building):
                setattr(ws.record, field, getattr(built, field))

    def _export(self, ws: Workspace, questions: Questions, folder: Path) -> None:
        parser = None if self.parser == READER else self.parser  # a chat model is no rule
        questions = [replace(q, parser=parser_of(q.parser, parser)) for q in questions]
        place, name = ws.folder / "exports", self.record.kind.name
        export_forms(questions, folder, place, name, self.export, self.wholes)

    def find_answers(self, ws: Workspace, questions: Questions, folder: Path) -> list[Answer]:
        """The answers of another run, or those of the model; images are in ``folder``.

        Raises:
            UserError: see :func:`~ood_lab.lvlm.answers.recorded_answers.recorded_answers`,
                :func:`~ood_lab.lvlm.questions.image_checks.check_whole` and
                :func:`~ood_lab.lvlm.answers.answer_requests.answers_to`.
        """
        if self.answers is not None:
            ws.record.answers = self.answers
            return recorded_answers(questions, Path(self.answers), folder)
        check_whole(questions, folder, ws.cfg.paths.cache)
        store = store_of(ws.lvlm.made_with, ws.answers_root)
        found = answers_to(questions, folder, ws.lvlm, store)
        ws.record.answers = str(store.path)
        ws.record.lvlm = dict(ws.lvlm.made_with)
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
