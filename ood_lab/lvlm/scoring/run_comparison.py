"""What a run is compared with: other models, or the same one in the other form of its questions."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pandas as pd

from ood_lab.common.errors import UserError
from ood_lab.common.files import read_table
from ood_lab.data.sources.file_facts import content_hashes
from ood_lab.lvlm.answers.answer_files import model_of
from ood_lab.lvlm.questions.question_files import Question, Questions, read_questions
from ood_lab.lvlm.questions.question_forms import WORDS, Form, Forms, apart, form_of
from ood_lab.lvlm.questions.question_images import with_images_found
from ood_lab.lvlm.scoring.answer_differences import runs_by_model, same_questions, together
from ood_lab.schema.results import RESULTS, Tables
from ood_lab.schema.run_record import RunRecord


@dataclass(frozen=True)
class ComparedRuns:
    """Run folders of ``task.against``.

    Args:
        runs: the folders.
        identity: what tells questions apart in whatever form, in ``meta``; () = they
            have one form, and all runs are of other models.
    """

    runs: Sequence[Path]
    identity: Sequence[str]

    def check(self, benchmark: str) -> None:
        """Raises a UserError where one of them was not scored; ``benchmark`` is what it is of."""
        for run in self.runs:
            if not all((run / file).is_file() for file in (RESULTS, "judged.parquet")):
                raise UserError(
                    f"task.against: {run} is not a run folder of {benchmark} that was scored"
                )

    def in_other_form(self, forms: Forms, given: Sequence[str]) -> Path | None:
        """The run in the other form, if any.

        Args:
            forms: of new questions.
            given: files of questions that were built before, and take the place of new ones.

        Raises:
            UserError: there are two, or the run asks both forms itself.
        """
        if not self.runs or not self.identity:
            return None
        if given:
            asked = [q for file in given for q in read_questions(Path(file))]
            forms = "both" if apart(asked)[1] else form_of(asked)
        own: Form = "plain" if forms == "both" else forms
        other = run_of_other_form(own, self.runs)
        if other is not None and forms == "both":
            raise UserError(f"task.against: this run asks both forms itself: leave {other} out")
        return other

    def twin(
        self, questions: Questions, folder: Path, cache: str | None = None
    ) -> OtherFormRun | None:
        """The run in the other form, and what its questions ask here.

        Args:
            questions: of this run.
            folder: that their images start from.
            cache: remembers contents of files.

        Raises:
            UserError: see :func:`~ood_lab.lvlm.scoring.run_comparison.counterparts`.
        """
        if not self.runs or not self.identity:
            return None
        asked = apart(questions)[0]
        other = run_of_other_form(form_of(asked), self.runs)
        theirs = None if other is None else questions_of(other)
        if other is None or theirs is None:
            return None
        same = counterparts((asked, folder), theirs, self.identity, str(other), cache)
        return OtherFormRun(other, same)

    def models(self, twin: OtherFormRun | None) -> list[Path]:
        """The runs of other models."""
        return [run for run in self.runs if twin is None or run != twin.run]


@dataclass(frozen=True)
class OtherFormRun:
    """A run of the same model with the same questions in the other form.

    Args:
        run: its folder.
        same: question of this run by the id of the one that asks the same there.
    """

    run: Path
    same: Mapping[str, Question]

    def sides(
        self, asked: Questions, judgements: pd.DataFrame, made_with: Mapping[str, Any]
    ) -> dict[str, pd.DataFrame]:
        """Answers by what their form is called, the chain of thought first.

        Args:
            asked: the questions of this run.
            judgements: their answers.
            made_with: says of which model.

        Raises:
            UserError: the other run is of another model.
        """
        check_same_model(self.run, made_with)
        kept = {q.question_id for q in self.same.values()}
        sides = [judgements[judgements["question_id"].isin(kept)]]
        sides.append(as_asked(read_table(self.run / "judged.parquet"), self.same))
        if form_of(asked) == "plain":
            sides.reverse()
        return dict(zip((WORDS["cot"], WORDS["plain"]), sides, strict=True))


def of_models(own: Tables, model: str, rest: Sequence[Path]) -> dict[str, pd.DataFrame]:
    """Answers of several models to the very same questions, with a column ``model``.

    Args:
        own: tables of single answers by the name of their file.
        model: whose they are.
        rest: run folders of other models.

    Raises:
        UserError: they have other questions.
    """
    results = {model: own} | {
        name: {key: read_table(run / f"{key}.parquet") for key in own}
        for name, run in runs_by_model(model, rest).items()
    }
    same = same_questions({name: tables["judged"] for name, tables in results.items()})
    every = {key: together({name: of[key] for name, of in results.items()}) for key in own}
    return every | {"judged": same}


def questions_of(run: Path) -> tuple[list[Question], Path] | None:
    """What a run asked in its first form, and the folder that the images start from.

    None where its file of questions is gone.
    """
    written = RunRecord.read(run).questions
    for file in (run / "questions.jsonl", Path(written.file if written else "")):
        if file.is_file():
            return with_images_found(apart(read_questions(file))[0], file.parent), file.parent
    return None


def run_of_other_form(own: Form, runs: Sequence[Path]) -> Path | None:
    """The one of these runs in the other form, if any.

    Raises:
        UserError: there are two.
    """
    asked = {run: questions_of(run) for run in runs}
    results = [run for run, known in asked.items() if known and form_of(known[0]) != own]
    if len(results) > 1:
        raise UserError(
            f"task.against: {results[0]} and {results[1]} were both asked in the other form: "
            "give one"
        )
    return results[0] if results else None


def check_same_model(run: Path, made_with: Mapping[str, Any]) -> None:
    """Two forms of a question are compared in the answers of one model.

    Raises:
        UserError: those of the run are of another one, or were made with other settings.
    """
    other = RunRecord.read(run).lvlm
    if model_of(other) != model_of(made_with):
        raise UserError(
            f"task.against: {run} has another form, and another model or other settings of "
            "lvlm=...: forms are compared in the answers of one model, models on questions of one "
            "form"
        )


def counterparts(
    own: tuple[Questions, Path],
    other: tuple[Questions, Path],
    keys: Sequence[str],
    name: str,
    cache: str | None = None,
) -> dict[str, Question]:
    """The questions that ask the same in the other form: own question by the id of the other one.

    They belong together where the content of the image, the kind of the question, the right answer
    and ``keys`` are the same; neither ids nor names of files say so.

    Args:
        own: questions of a run, and the folder that their images start from.
        other: those of another run, in the other form.
        keys: what else tells questions apart, in ``meta``.
        name: of the other run.
        cache: remembers contents of files.

    Raises:
        UserError: a question has no counterpart.
    """
    kinds = {q.task for q in (*own[0], *other[0]) if q.reply == "steps"}
    mine, theirs = (_by_identity(*side, kinds, keys, cache) for side in (own, other))
    if different := len(mine.keys() ^ theirs.keys()):
        raise UserError(
            f"{name} has other questions, not the same ones in another form ({different:,} "
            "have no counterpart of the same image, category and answer)"
        )
    return {theirs[key].question_id: question for key, question in mine.items()}


def _by_identity(
    questions: Questions, folder: Path, kinds: set[str], keys: Sequence[str], cache: str | None
) -> dict[tuple[str, ...], Question]:
    asked = [q for q in questions if q.task in kinds]
    files = sorted({str(folder / q.image) for q in asked if q.image is not None})
    content = dict(zip(files, content_hashes(files, cache), strict=True))
    results: dict[tuple[str, ...], Question] = {}
    seen: dict[tuple[str, ...], int] = {}
    for q in asked:
        image = "" if q.image is None else content[str(folder / q.image)]
        if q.image is not None and not image:
            raise UserError(f"the image '{folder / q.image}' of a question cannot be read")
        identity = (q.task, image, q.answer, *(str(q.meta.get(key)) for key in keys))
        # The same question twice in a set: the first belongs to the first.
        seen[identity] = seen.get(identity, 0) + 1
        results[(*identity, str(seen[identity]))] = q
    return results


def as_asked(judgements: pd.DataFrame, twins: Mapping[str, Question]) -> pd.DataFrame:
    """Answers of another run under the pairs of its counterparts; those without one are skipped.

    Args:
        judgements: of the other run.
        twins: see :func:`counterparts`.
    """
    rows = judgements[judgements["question_id"].isin(twins)]
    own = [twins[item] for item in rows["question_id"]]
    return rows.assign(
        question_id=[q.question_id for q in own],
        pair_id=[q.pair_id or q.question_id for q in own],
    )
