"""Questions about images: what a benchmark asks, one JSON object per line."""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping
from dataclasses import asdict, dataclass, field, replace
from pathlib import Path
from typing import Any, Literal

from ood_lab.common.errors import UserError
from ood_lab.common.files import write_text
from ood_lab.lvlm.parsers import NO, YES, YES_NO_PARSERS

#: ``parser`` of captions, which are read in another way.
_CAPTION = "caption"
#: ``parser`` of counts.
_NUMBER = "number"
#: How files write the right answers to yes/no questions.
_WRITTEN = dict.fromkeys(("yes", "y", "true", "1"), YES) | dict.fromkeys(
    ("no", "n", "false", "0"), NO
)
#: What a question asks for: a word or a number, steps that end in one, or a text.
ReplyForm = Literal["word", "steps", "text"]


@dataclass(frozen=True)
class Question:
    """One question to a chat model.

    Args:
        question_id: unique within the set.
        task: what kind of question it is (``yes_no``, ``count``, ``caption``, ...).
        image: path of its image, relative to the folder of the questions' file or absolute;
            None where the question has no image.
        text: the question as it is asked.
        answer: the right answer as the parser gives it (``yes``, ``no``, a number as text), or
            ``""`` where there is none (captions).
        parser: name of the parser that reads the reply.
        pair_id: questions that belong together share it; metrics resample by it.
        system: text of a system message, or None.
        meta: what results are divided by: category, split, counts, sizes, shift levels.
        reply: what is asked for; how long a reply may be follows from it.
    """

    question_id: str
    task: str
    image: str | None
    text: str
    answer: str
    parser: str = "default"
    pair_id: str | None = None
    system: str | None = None
    meta: Mapping[str, Any] = field(default_factory=dict)
    reply: ReplyForm = "word"


def write_questions(questions: Iterable[Question], path: Path) -> None:
    """Writes one question per line, whole or not at all."""
    write_text("".join(f"{json.dumps(asdict(question))}\n" for question in questions), path)


def read_questions(path: Path) -> list[Question]:
    """Reads a file of questions; their right answers as the parsers give them.

    Raises:
        UserError: the file is missing, a line is not a question, its right answer is none that its
            parser can give, or an id occurs twice.
    """
    if not path.is_file():
        raise UserError(f"There is no file of questions '{path}': build it first")
    questions = []
    for number, line in enumerate(path.read_text(encoding="utf-8").splitlines(), 1):
        try:
            record = json.loads(line)
            if "reply" not in record and record.get("parser") == _CAPTION:  # an earlier version's
                record["reply"] = "text"
            question = Question(**record)
        except (ValueError, TypeError, AttributeError) as error:
            raise UserError(f"{path}, line {number}, is not a question: {error}") from error
        questions.append(_with_plain_answer(question, f"{path}, line {number}"))
    ids = [question.question_id for question in questions]
    if len(set(ids)) != len(ids):
        twice = next(each for position, each in enumerate(ids) if each in ids[:position])
        raise UserError(f"{path} has two questions with the id '{twice}'")
    return questions


def yes_or_no(answer: object, where: str) -> str:
    """``yes`` or ``no`` of what files write: Yes, TRUE, n, 0, ...

    Args:
        answer: as the file has it.
        where: of the file, for errors.

    Raises:
        UserError: it is something else.
    """
    word = str(answer).strip().strip(".").lower()
    if word not in _WRITTEN:
        raise UserError(f"{where}: the answer {answer!r} is neither yes nor no: write yes or no")
    return _WRITTEN[word]


def _with_plain_answer(question: Question, where: str) -> Question:
    """The question with its right answer in the words of its parser."""
    answer: object = question.answer
    if question.parser in YES_NO_PARSERS:
        return replace(question, answer=yes_or_no(answer, where))
    if question.parser == _NUMBER:
        try:
            count = float(str(answer).replace(",", ""))
            if count != int(count) or count < 0:
                raise ValueError
        except (ValueError, OverflowError):
            raise UserError(
                f"{where}: the answer {answer!r} is no count: write a number such as 3"
            ) from None
        return replace(question, answer=str(int(count)))
    return question
