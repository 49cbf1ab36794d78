"""What a run is compared with: other models, or the same one in the other form of its questions."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pandas as pd

from ood_lab.common.errors import UserError
from ood_lab.common.files import read_table
from ood_lab.lvlm.questions.question_files import Question, Questions, read_questions
from ood_lab.lvlm.questions.question_forms import (
    WORDS,
    Form,
    Forms,
    apart,
    as_asked,
    check_same_model,
    counterparts,
    form_of,
    questions_of,
    run_of_other_form,
)
from ood_lab.lvlm.scoring.answer_differences import runs_by_model, same_questions, together
from ood_lab.schema.results import RESULTS, Tables


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
            UserError: see :func:`~ood_lab.lvlm.questions.question_forms.counterparts`.
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
        self, asked: Questions, judged: pd.DataFrame, made_with: Mapping[str, Any]
    ) -> dict[str, pd.DataFrame]:
        """Answers by what their form is called, the chain of thought first.

        Args:
            asked: the questions of this run.
            judged: their answers.
            made_with: says of which model.

        Raises:
            UserError: the other run is of another model.
        """
        check_same_model(self.run, made_with)
        kept = {q.question_id for q in self.same.values()}
        sides = [judged[judged["question_id"].isin(kept)]]
        sides.append(as_asked(read_table(self.run / "judged.parquet"), self.same))
        if form_of(asked) == "plain":
            sides.reverse()
        return dict(zip((WORDS["cot"], WORDS["plain"]), sides, strict=True))


def of_models(own: Tables, model: str, others: Sequence[Path]) -> dict[str, pd.DataFrame]:
    """Answers of several models to the very same questions, with a column ``model``.

    Args:
        own: tables of single answers by the name of their file.
        model: whose they are.
        others: run folders of other models.

    Raises:
        UserError: they have other questions.
    """
    found = {model: own} | {
        name: {key: read_table(run / f"{key}.parquet") for key in own}
        for name, run in runs_by_model(model, others).items()
    }
    same = same_questions({name: tables["judged"] for name, tables in found.items()})
    every = {key: together({name: of[key] for name, of in found.items()}) for key in own}
    return every | {"judged": same}
