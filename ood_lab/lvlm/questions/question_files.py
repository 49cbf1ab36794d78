"""Questions about images: what a benchmark asks, one JSON object per line."""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any, Literal

from ood_lab.common.errors import UserError
from ood_lab.common.files import write_text

#: ``parser`` of captions, which are read in another way.
_CAPTION = "caption"
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
    """Reads a file of questions.

    Raises:
        UserError: the file is missing, a line is not a question, or an id occurs twice.
    """
    if not path.is_file():
        raise UserError(f"There is no file of questions '{path}': build it first")
    questions = []
    for number, line in enumerate(path.read_text(encoding="utf-8").splitlines(), 1):
        try:
            record = json.loads(line)
            if "reply" not in record and record.get("parser") == _CAPTION:  # an earlier version's
                record["reply"] = "text"
            questions.append(Question(**record))
        except (ValueError, TypeError, AttributeError) as error:
            raise UserError(f"{path}, line {number}, is not a question: {error}") from error
    ids = [question.question_id for question in questions]
    if len(set(ids)) != len(ids):
        twice = next(each for position, each in enumerate(ids) if each in ids[:position])
        raise UserError(f"{path} has two questions with the id '{twice}'")
    return questions
