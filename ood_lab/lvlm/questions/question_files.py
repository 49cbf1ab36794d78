"""Questions about images: what a benchmark asks, one JSON object per line; published files."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, fields, replace
from pathlib import Path
from string import ascii_uppercase
from typing import Any, Literal, Protocol, get_args

import numpy as np

from ood_lab.common.arguments import Fields
from ood_lab.common.english import listed
from ood_lab.common.errors import UserError, reported_as
from ood_lab.common.grouping import without_none
from ood_lab.common.hints import check_known, missing_path
from ood_lab.common.line_files import write_records
from ood_lab.lvlm.parsers import NO, PARSERS, YES, YES_NO_PARSERS
from ood_lab.lvlm.parsers.counts import in_digits
from ood_lab.lvlm.questions.question_records import records_of

#: ``Question.task``: captions, and the sorts of yes/no questions.
GENERATIVE, EXISTENCE, STATE, ACTION, NUMBER, RELATION = (
    "generative",
    "existence",
    "attribute_state",
    "attribute_action",
    "attribute_number",
    "relation",
)
#: Groups of yes/no questions, each with metrics of its own.
GROUPS: Mapping[str, tuple[str, ...]] = {
    "existence": (EXISTENCE,),
    "attribute": (STATE, ACTION, NUMBER),
    "state": (STATE,),
    "action": (ACTION,),
    "number": (NUMBER,),
    "relation": (RELATION,),
    "all": (EXISTENCE, STATE, ACTION, NUMBER, RELATION),
}


def true_caption(truth: Sequence[str]) -> str:
    """A sentence that names everything that is known to be there, and nothing else."""
    return f"The picture shows {listed(truth) if truth else 'nothing'}."


#: ``parser`` of captions, which are read in another way.
_CAPTION = "caption"
#: ``parser`` of counts.
_NUMBER = "number"
#: ``Question.task`` of questions of one's own beside yes or no and captions.
CHOICE, COUNT, FREE_TEXT = "multiple_choice", "count", "free_text"
#: The parser of a kind of question whose record names none.
_PARSER_OF = {CHOICE: "choice", COUNT: _NUMBER, FREE_TEXT: "text", GENERATIVE: _CAPTION}
#: Other names of keys, as other packages have them.
_SAME = {"index": "question_id", "id": "question_id", "question": "text", "images": "image"}
_SAME |= {"image_path": "image", "type": "task"}
#: Keys of a record that are no fields of a question; and those that belong to its ``meta``.
_OWN_KEYS = ("objects",)
_OF_META = ("split", "category", "l2-category", "semantic_level", "covariate_level")
#: How files write the right answers to yes/no questions.
_WRITTEN = dict.fromkeys(("yes", "y", "true", "1"), YES) | dict.fromkeys(
    ("no", "n", "false", "0"), NO
)
#: A question that is answered by yes or no, whatever its right answer looks like.
_YES_NO_TEXT = re.compile(
    r"^\W*(?:is|are|was|were|does|do|did|has|have|had|can|could|will|would)\b"
    r"|\b(?:yes or no|yes/no|true or false)\b",
    re.IGNORECASE,
)
#: What a question asks for: a word or a number, steps that end in one, or a text; or it is answered
#: in a word, and does not ask for one.
ReplyForm = Literal["word", "steps", "text", "open"]
#: Forms of replies that are read for a word, of which a probability may be known.
ONE_WORD = ("word", "open")
#: In ``meta`` of a question that is asked again, the how manieth time it is: 2, 3, ...
SAMPLE = "sample"


@dataclass(frozen=True)
class Question:
    """One question to a vision-language model.

    Args:
        question_id: unique within the set.
        task: what kind of question it is (``yes_no``, ``count``, ``caption``, ...).
        image: path of its image, relative to the folder of the questions' file or absolute;
            None where the question has no image.
        text: the question that is sent.
        answer: the right answer as the parser gives it (``yes``, ``no``, a number as text), or
            ``""`` where there is none (captions).
        parser: name of the parser that reads the reply.
        pair_id: questions that belong together share it; metrics resample by it.
        system: text of a system message, or None.
        meta: what results are divided by: category, split, counts, sizes, shift levels.
        reply: its form; how long a reply may be follows from it.
        more_images: paths of further images, which are shown after the first.
        options: of multiple choice, in the order of their letters; ``answer`` is a letter.
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
    more_images: Sequence[str] = ()
    options: Sequence[str] = ()

    @property
    def images(self) -> tuple[str, ...]:
        """Paths of all its images, in order."""
        return () if self.image is None else (self.image, *self.more_images)


Questions = Sequence[Question]


def write_questions(questions: Iterable[Question], path: Path) -> None:
    """Writes one question per line, whole or not at all."""
    few = ("more_images", "options")  # most questions have none
    records = (
        {k: v for k, v in vars(question).items() if v or k not in few} for question in questions
    )
    write_records(records, path)


def meta_of(row: Mapping[Any, Any]) -> Fields:
    """A row of a table as ``meta`` has it: plain values, without those that are missing."""
    plain = {str(k): v.item() if isinstance(v, np.generic) else v for k, v in row.items()}
    # Not a number differs from itself.
    return {k: v for k, v in plain.items() if v is not None and v == v}


def read_questions(path: Path, pictures: Path | None = None) -> Questions:
    """Reads a file of questions; their right answers as the parsers give them.

    A record has ``text`` and ``answer``, perhaps ``image`` (a path or a list of them) and what else
    a :class:`Question` has, ``options`` (a list) and ``objects`` (what is in the image of a
    caption). What kind of question it is follows from these where no ``task`` says so.

    Args:
        path: of any layout of :func:`~ood_lab.lvlm.questions.question_records.records_of`.
        pictures: see there.

    Raises:
        UserError: the file is missing, a line is not a question, its right answer is none that its
            parser can give, or an id occurs twice.
    """
    if not path.is_file():
        raise UserError(f"There is no file of questions '{path}': build it first")
    table = path.suffix.lower() in (".csv", ".tsv")
    questions = [
        _question(record, where, number, table)
        for number, (record, where) in enumerate(records_of(path, pictures), 1)
    ]
    ids = [question.question_id for question in questions]
    if len(set(ids)) != len(ids):
        twice = next(item for position, item in enumerate(ids) if item in ids[:position])
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
    word = _word(answer)
    if word not in _WRITTEN:
        raise UserError(f"{where}: the answer {answer!r} is neither yes nor no: write yes or no")
    return _WRITTEN[word]


def _word(answer: object) -> str:
    """An answer in lower case, without a full stop; a whole number without its fraction."""
    return str(answer).strip().removesuffix(".0").strip(".").lower()


def _question(given: Fields, where: str, number: int, table: bool) -> Question:
    """A question of a record; other columns of a table belong to its ``meta``."""
    record = without_none({_SAME.get(str(key), str(key)): value for key, value in given.items()})
    names = [item.name for item in fields(Question)]
    meta = record.pop("meta", {})
    if not isinstance(meta, Mapping):
        raise UserError(f'{where}: the key \'meta\' holds no object such as {{"split": "new"}}')
    rest = [key for key in record if key not in (*names, *_OWN_KEYS)]
    if not table:
        keys = (*names, *_OWN_KEYS, *_OF_META)
        check_known(record, keys, f"{where}: there is no key '{{name}}'")
    meta = {**meta, **{key: _level(record.pop(key), key, where) for key in rest}}
    text, truth = record.get("text"), record.get("answer")
    if not (isinstance(text, str) and text.strip()):
        raise UserError(f"{where}: the key 'text' is missing or no text: write the question")
    images = [*_texts(record, "image", where), *_texts(record, "more_images", where)]
    options, objects = (_texts(record, key, where) for key in ("options", "objects"))
    task = str(record.get("task") or _kind(text, truth, options, "objects" in record))
    task = GENERATIVE if task == _CAPTION else task
    if "objects" in record:
        meta = {"truth": objects, "hallu": [], **meta}
    parser = str(record.get("parser") or _PARSER_OF.get(task, "default"))
    check_known([parser], (*PARSERS, _CAPTION), f"{where}: the parser '{{name}}'")
    reply = record.get("reply") or ("text" if parser == _CAPTION else "word")
    check_known([str(reply)], get_args(ReplyForm), f"{where}: the key 'reply'")
    question = Question(
        question_id=str(record.get("question_id", number)),
        task=task,
        image=images[0] if images else None,
        text=text,
        answer=true_caption(objects) if objects and not truth else truth,  # type: ignore[arg-type]
        parser=parser,
        meta=meta,
        reply=reply,  # type: ignore[arg-type]
        more_images=tuple(images[1:]),
        options=tuple(options),
        **{key: str(record[key]) for key in ("pair_id", "system") if key in record},
    )
    return replace(question, answer=_plain_answer(question, where))


def _texts(record: Fields, key: str, where: str) -> list[str]:
    """What a key lists: texts, or one; of options and objects in one text, its parts at ``;``."""
    value = record.get(key)
    if isinstance(value, str):
        value = [value] if "image" in key else [part.strip() for part in value.split(";")]
    if isinstance(value, Mapping):  # {"A": ..., "B": ...}
        value = [value[k] for k in sorted(value)]
    if value is None:
        return []
    if not isinstance(value, list) or not all(isinstance(item, str | int) for item in value):
        raise UserError(f"{where}: the key '{key}' is neither a text nor a list of texts")
    return [" ".join(str(item).split("\n")) for item in value]


def _level(value: object, key: str, where: str) -> object:
    if not key.endswith("_level"):
        return value
    problem = f"{where}: the key '{key}' holds {value!r}: write a whole number"
    with reported_as(problem, ValueError):
        return int(str(value).removesuffix(".0"))


def _kind(text: str, answer: object, options: Sequence[str], objects: bool) -> str:
    """The kind of a question that does not say it; 0 and 1 are no and yes to "Is there ...?"."""
    if options or objects:
        return CHOICE if options else GENERATIVE
    word = _word(answer)
    if in_digits(word).isdecimal() and not isinstance(answer, bool):
        return "yes_no" if word in _WRITTEN and _YES_NO_TEXT.search(text) else COUNT
    return "yes_no" if word in _WRITTEN or answer in (None, "") else FREE_TEXT


def _plain_answer(question: Question, where: str) -> str:
    """Its right answer in the words of its parser."""
    answer: object = question.answer
    if question.parser in YES_NO_PARSERS:
        return yes_or_no(answer, where)
    if question.parser == _NUMBER:
        digits = in_digits(str(answer).strip().lower()).replace(",", "")
        count = re.fullmatch(r"(\d{1,18})(?:\.0*)?", digits)
        if count is None:
            raise UserError(f"{where}: the answer {answer!r} is no count: write a number such as 3")
        return str(int(count[1]))
    if question.options:
        # Of equal texts the first counts, and a text before a letter.
        options = list(zip(ascii_uppercase, question.options, strict=False))
        letters = {letter.lower(): letter for letter, _ in options}
        letters |= {text.strip().lower(): letter for letter, text in reversed(options)}
        right = letters.get(str(answer).strip().lower())
        if right is None:
            raise UserError(
                f"{where}: the answer {answer!r} is no option: write a letter from A to "
                f"{options[-1][0]}, or the text of an option"
            )
        return right
    if question.task == CHOICE and not str(answer or "").strip():
        raise UserError(f"{where}: the key 'answer' is missing: write the letter of an option")
    if question.task == FREE_TEXT:
        answers = answer if isinstance(answer, list) else [answer]
        texts = [" ".join(str(item).split()) for item in answers if item not in (None, "")]
        if not texts:
            raise UserError(f"{where}: the key 'answer' is missing: write the right answer")
        return "\n".join(texts)
    return "" if answer is None else str(answer)


#: Longest reply to a question of each form, in tokens, where it is ``auto``.
LONGEST: Mapping[ReplyForm, int] = {"word": 64, "open": 1024, "steps": 1024, "text": 512}


#: ``Question.task`` of a question that is answered by yes or no.
YES_NO = "yes_no"


#: In ``meta``, what a question is resampled with, where that is more than its pair: its image.
RESAMPLED = "resampled"


class QuestionSource(Protocol):
    """Files that questions are read from.

    Attributes:
        path: of the files, or of their folder.
    """

    @property
    def path(self) -> str:
        """See the class."""

    def questions(self) -> Questions:
        """Reads them.

        Raises:
            UserError: a file is missing, or is not of the published layout.
        """


def existing(path: str | Path) -> Path:
    """A path that is there.

    Raises:
        UserError: it is not.
    """
    results = Path(path)
    if not results.exists():
        raise missing_path(results)
    return results.absolute()


def read_json_list(file: Path, keys: Sequence[str] = ()) -> list[Fields]:
    """A JSON list of records, or one record a line.

    Args:
        file: to be read.
        keys: of every record; there may be others.

    Raises:
        UserError: it is neither, or a record lacks a key; names file and record.
    """
    rows = list(records_of(existing(file)))
    if not rows:
        raise UserError(f"{file} has no records")
    for row, where in rows:
        if lost := [key for key in keys if key not in row]:
            raise UserError(f"{where}: there is no '{lost[0]}'; it has {', '.join(row)}")
    return [row for row, _ in rows]


def image_in(folder: Path, name: str, file: Path) -> str:
    """The path of an image.

    Raises:
        UserError: it is not there.
    """
    path = folder / name
    if not path.is_file():
        raise UserError(f"{file} names '{name}', which is not in '{folder}': give its folder")
    return str(path)
