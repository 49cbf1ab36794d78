"""Predictions as ORIC's code exchanges them: one file of a wording, one row of an item."""

from __future__ import annotations

import json
from collections.abc import Collection, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pandas as pd

from ood_lab.common.errors import UserError
from ood_lab.common.files import write_text
from ood_lab.lvlm.annotations.annotation_files import read_json
from ood_lab.lvlm.answers.answer_files import Answer
from ood_lab.lvlm.answers.answer_requests import answer_of
from ood_lab.lvlm.chat.base import Reply
from ood_lab.lvlm.questions.question_files import Questions


@dataclass(frozen=True)
class _Prediction:
    """A row of a file."""

    question_id: str | int
    predicted_answer: Any
    solution: Any = ""


def write_predictions(judged: pd.DataFrame, folder: Path) -> list[Path]:
    """Writes ``predictions_<n>.json`` of each wording: ``question_id, predicted_answer, solution``.

    Args:
        judged: of one set, see :func:`ood_lab.lvlm.answers.judgements.judge`.
        folder: where to.
    """
    paths = []
    for number, rows in judged.groupby("prompt", sort=True):
        table = [
            # Of a cut reply without an answer, another parser would take some word for one.
            {
                "question_id": str(row["item"]),
                "predicted_answer": row["parsed"] or ("" if row["cut"] else row["reply"]),
                "solution": row["truth"],
            }
            for row in rows.to_dict("records")
        ]
        paths.append(folder / f"predictions_{number}.json")
        write_text(json.dumps(table, indent=4), paths[-1])
    return paths


def read_predictions(
    questions: Questions, paths: Sequence[Path], without: Collection[str] = ()
) -> dict[str, Answer]:
    """Answers by the id of the question, from one file of each wording.

    Args:
        questions: of one set; those of wordings without a file have no answer.
        paths: of wordings 1, 2, ...
        without: items that are not asked about, though files may have predictions for them.

    Raises:
        UserError: a file is missing or has other fields, another truth, or not exactly the items
            of the questions.
    """
    found: dict[str, Answer] = {}
    for number, path in enumerate(paths, 1):
        rows = read_json(path, list[_Prediction], "ORIC's predictions")
        said = {str(row.question_id): row for row in rows if str(row.question_id) not in without}
        known = [q for q in questions if q.meta["prompt"] == number]
        items = {str(q.meta["item"]) for q in known}
        if items != set(said):  # the file says neither what was asked nor about which image
            other = sorted(items ^ set(said))[0]
            which = "is not asked about" if other in said else "has no prediction"
            raise UserError(
                f"{path} has predictions for {len(said):,} items, but there are {len(items):,} "
                f"questions (item '{other}' {which}): these predictions are for other questions"
            )
        for question in known:
            row = said[str(question.meta["item"])]
            if str(row.solution).strip().lower() not in ("", question.answer):
                raise UserError(
                    f"{path}: the solution of question {question.meta['item']} is "
                    f"'{row.solution}', but it is '{question.answer}' here: these predictions "
                    "are for other questions"
                )
            reply = Reply("", str(row.predicted_answer))
            made_with = {"backend": "predictions", "model": path.stem}
            found[question.question_id] = answer_of(question, "", made_with, reply)
    return found
