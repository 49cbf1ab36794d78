"""Answers of an earlier run, for scoring without asking."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import fields
from pathlib import Path

from ood_lab.append import read_records
from ood_lab.errors import UserError
from ood_lab.lvlm.answers import Answer
from ood_lab.lvlm.questions import Question


def recorded_answers(questions: Sequence[Question], path: Path) -> list[Answer]:
    """The answers in a file to these questions, in their order; some may be missing.

    Of several answers to a question, the last without an error counts.

    Args:
        questions: those that were asked.
        path: ``answers.jsonl`` of a run.

    Raises:
        UserError: the file has no answer to any of them, answers of several models, or an answer
            to another text under the same id.
    """
    texts = {question.question_id: question.text for question in questions}
    found: dict[str, Answer] = {}
    for answer in _answers(path):
        if answer.question_id not in texts:
            continue
        if answer.prompt != texts[answer.question_id]:
            raise UserError(
                f"{path} answers another question than '{texts[answer.question_id]}' under the id "
                f"'{answer.question_id}': the questions have changed since; ask them again"
            )
        known = found.get(answer.question_id)
        if known is not None and known.made_with != answer.made_with:
            raise UserError(
                f"{path} holds answers of several models: give the answers.jsonl of one run"
            )
        if known is None or answer.error is None:
            found[answer.question_id] = answer
    if not found:
        raise UserError(f"{path} has no answer to any of the {len(questions):,} questions")
    return [found[name] for name in texts if name in found]


def _answers(path: Path) -> Iterator[Answer]:
    """The answers in a file; what is none, such as half a line, is passed over."""
    known = {each.name for each in fields(Answer)}
    for record in read_records(path):
        try:
            yield Answer(**{key: value for key, value in record.items() if key in known})
        except TypeError:
            continue
