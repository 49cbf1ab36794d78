"""Answers of an earlier run, for scoring without asking."""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import NamedTuple

from ood_lab.common.errors import UserError
from ood_lab.common.line_files import read_records
from ood_lab.lvlm.answers.answer_files import (
    Answer,
    answer_key,
    is_text,
    model_of,
    read_answers,
)
from ood_lab.lvlm.answers.answer_requests import answer_of, as_answer_to, messages_hashes
from ood_lab.lvlm.chat.base import Reply
from ood_lab.lvlm.questions.question_files import SAMPLE, Question, Questions

log = logging.getLogger(__name__)


class RecordedReply(NamedTuple):
    """A reply in a file of any package.

    Args:
        question_id: of its question, as text.
        messages_hash: of the messages, images included; "" where the file does not say.
        text: of the question; None where the file does not say.
        reply: as it came.
        p_yes: P(yes), where the file has it.
        finish_reason: ``stop`` where the file does not say.
    """

    question_id: str
    messages_hash: str
    text: str | None
    reply: str
    p_yes: float | None = None
    finish_reason: str = "stop"


def recorded_answers(questions: Questions, path: Path, folder: Path) -> list[Answer]:
    """The answers in a file to these questions, in their order; some may be missing.

    An answer belongs to a question if it was given to the same messages about the same image,
    whatever the ids. Of several answers to a question, the last without an error counts.

    Args:
        questions: of the answers.
        path: ``answers.jsonl`` of a run; or lines with ``question_id`` and ``response``, see
            :func:`matcher`. Of repeated samples the first answer counts.
        folder: from which the paths of their images start.

    Raises:
        UserError: the file has no answer to any of them, answers of several models, or, under the
            id of a question, an answer to another text or about another image.
    """
    found: dict[str, Answer] = {}
    models = set()
    answers = [answer for answer in read_answers(path) if not answer.made_with.get(SAMPLE)]
    if not answers:
        return list(_replayed(questions, path, folder))
    known = _hashes_by_id(questions, folder)
    texts = {question.question_id: question.text for question in questions}
    wanted = set(known.values())
    for answer in answers:
        name, own = answer.question_id, answer.messages_hash
        by_hash = bool(known) and bool(own)
        if name in texts and (own != known[name] if by_hash else answer.prompt != texts[name]):
            raise _other_question(path, name, texts[name], answer.prompt)
        key = own if by_hash else name
        if key not in (wanted if by_hash else texts):
            continue
        models |= {model_of(answer.made_with)} if answer.error is None else set()
        if len(models) > 1:
            raise UserError(
                f"{path} holds answers of several models: give the answers.jsonl of one run"
            )
        if key not in found or answer.error is None:
            found[key] = answer
    if not found:
        raise UserError(f"{path} has no answer to any of the {len(questions):,} questions")
    ids = [(q, known.get(q.question_id, "")) for q in questions]
    fitting = [(q, found.get(own) or found.get(q.question_id)) for q, own in ids]
    return [as_answer_to(q, answer) for q, answer in fitting if answer is not None]


def _replayed(questions: Questions, path: Path, folder: Path) -> Iterator[Answer]:
    """Answers of a file that does not have the messages."""
    hashes = _hashes_by_id(questions, folder)
    pairs = [(question, hashes.get(question.question_id, "")) for question in questions]
    found = matcher(pairs, path)
    made_with = {"backend": "replay", "model": path.stem}
    for question, own in pairs:
        said = found(question, own)
        if said is None:
            continue
        key = answer_key(own, made_with)
        reply = Reply(key, said.reply, said.p_yes, said.finish_reason)
        yield answer_of(question, own, made_with, reply)


def matcher(
    questions: Sequence[tuple[Question, str]], path: Path
) -> Callable[[Question, str], RecordedReply | None]:
    """What finds the reply to a question in a file that any package may have written.

    A line that knows its messages and its image is found by them. Other lines are found by the id
    of their question; then the texts, where the file has them, and the numbers must agree.

    Args:
        questions: all of them, each with the hash of its messages.
        path: a line has ``question_id`` and ``response`` (or ``text`` or ``answer``), and perhaps
            ``messages_hash`` and ``prompt`` (or ``question``).

    Raises:
        UserError: the file holds no replies, or replies to other questions.
    """
    said = _said(path)
    by_hash = {each.messages_hash: each for each in said if each.messages_hash}
    by_id = {each.question_id: each for each in said if not each.messages_hash}
    texts = {question.question_id: question.text for question, _ in questions}
    if by_id:
        _check_same(by_id, texts, path)
    hashes = {question.question_id: key for question, key in questions}
    for each in by_hash.values():
        if hashes.get(each.question_id, each.messages_hash) != each.messages_hash:
            name = each.question_id
            raise _other_question(path, name, texts[name], each.text or "")
    return lambda question, key: by_hash.get(key) or by_id.get(question.question_id)


def _check_same(by_id: Mapping[str, RecordedReply], texts: Mapping[str, str], path: Path) -> None:
    for name, each in by_id.items():
        if name in texts and each.text is not None and each.text.strip() != texts[name].strip():
            raise _other_question(path, name, texts[name], each.text)
    if set(by_id) != set(texts):
        lost = [name for name in texts if name not in by_id]
        more = [name for name in by_id if name not in texts]
        which = (
            f"no reply to '{lost[0]}'" if lost else f"a reply to '{more[0]}', which is not asked"
        )
        raise UserError(
            f"{path} has {len(by_id):,} replies to {len(texts):,} questions ({which}): lines that "
            "do not name their question and image are taken for an answer only where they "
            "are exactly those of the questions"
        )


def _said(path: Path) -> list[RecordedReply]:
    found: dict[str, RecordedReply] = {}
    for record in read_records(path):
        if "parser" in record and "task" in record:
            raise UserError(f"{path} holds questions, no replies: name a file of answers")
        reply = record.get("response", record.get("text", record.get("answer")))
        if "question_id" not in record or not is_text(reply) or record.get("error"):
            continue
        if isinstance(how := record.get("made_with"), dict) and how.get(SAMPLE):
            continue
        text = record.get("prompt", record.get("question"))
        name = str(record["question_id"])
        own = str(record.get("messages_hash") or "")
        chance, reason = record.get("p_yes"), record.get("finish_reason")
        found[own or name] = RecordedReply(
            name,
            own,
            text if isinstance(text, str) else None,
            str(reply),
            float(chance) if isinstance(chance, int | float) else None,
            reason if isinstance(reason, str) else "stop",
        )
    if not found:
        raise UserError(f"{path} holds no replies: a line needs 'question_id' and 'response'")
    return list(found.values())


def _hashes_by_id(questions: Questions, folder: Path) -> dict[str, str]:
    """Hash of the messages by the id of the question; none where the images are gone."""
    try:
        hashes = list(messages_hashes(questions, folder))
    except UserError as error:
        log.warning("%s: answers are held against only the texts of the questions", error)
        return {}
    return {q.question_id: each for q, each in zip(questions, hashes, strict=True)}


def _other_question(path: Path, name: str, text: str, asked: str) -> UserError:
    what = "another image" if asked.strip() == text.strip() else f"'{asked}'"
    return UserError(
        f"{path} answers another question than '{text}' under the id '{name}' ({what}): the "
        "questions have changed since, or are of another benchmark; ask them again"
    )
