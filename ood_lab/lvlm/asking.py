"""Asks a chat model what is not answered yet.

``answers = answers_to(questions, folder, model, AnswerStore(path))`` gives one :class:`Answer` for
each question, in order. What the store holds is not asked again; what comes is in its file before
anything else happens; what failed has ``error`` set, and is asked for again by the next call.
"""

from __future__ import annotations

import hashlib
import json
import logging
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from functools import cache
from pathlib import Path
from typing import Any

from ood_lab.errors import UserError
from ood_lab.lvlm.answers import Answer, AnswerStore, answer_key
from ood_lab.lvlm.chat.base import ChatModel, Message, Reply, Request
from ood_lab.lvlm.questions import Question
from ood_lab.progress import Pace

log = logging.getLogger(__name__)


def answers_to(
    questions: Sequence[Question], folder: Path, model: ChatModel, store: AnswerStore
) -> list[Answer]:
    """The answers of a model, in the order of the questions.

    Args:
        questions: what to ask; ids are unique.
        folder: from which the paths of their images start.
        model: is asked what the store does not hold.
        store: is filled; an interrupted call goes on where it was.

    Raises:
        UserError: an image is missing, or the model cannot answer (its endpoint is down or
            refuses the key, its folder is not a model, ...). Answers that came before are kept.
    """
    wanted = _wanted(questions, folder, model)
    with store.taken():
        todo: dict[str, _Wanted] = {}
        for each in wanted:
            if each.key not in store.answers:
                todo.setdefault(each.key, each)
        failed: dict[str, Answer] = {}
        if todo:
            _say_what_is_there(wanted, todo, store)
            model.check()
            for answer in store.add(_asked(todo, model)):
                if answer.error is not None:
                    failed[answer.key] = answer
    if failed:
        reason = next(iter(failed.values())).error
        log.warning(
            "%d of %d questions have no answer (%s): repeat the command to ask them again",
            len(failed),
            len(todo),
            reason,
        )
    return [_of(each.question, store.answers.get(each.key) or failed[each.key]) for each in wanted]


def messages_of(question: Question, folder: Path) -> list[Message]:
    """A question in OpenAI's form: a system message if it has one, the image, then the text."""
    content: list[dict[str, Any]] = [{"type": "text", "text": question.text}]
    if question.image is not None:
        url = str(folder / question.image)
        content.insert(0, {"type": "image_url", "image_url": {"url": url}})
    system = [{"role": "system", "content": question.system}] if question.system else []
    return [*system, {"role": "user", "content": content}]


@dataclass(frozen=True)
class _Wanted:
    """A question with what it is asked and known by."""

    question: Question
    key: str
    messages_hash: str
    messages: Sequence[Message]

    @property
    def request(self) -> Request:
        return Request(self.key, self.messages, self.question)


def _wanted(questions: Sequence[Question], folder: Path, model: ChatModel) -> list[_Wanted]:
    digest = cache(_content_hash)  # of this call: images may change between calls
    made_with = model.made_with
    wanted = []
    for question in questions:
        image = None if question.image is None else digest(folder / question.image)
        known_by = messages_of(replace(question, image=image), Path())
        messages_hash = hashlib.sha256(json.dumps(known_by).encode()).hexdigest()[:32]
        key = answer_key(messages_hash, made_with)
        wanted.append(_Wanted(question, key, messages_hash, messages_of(question, folder)))
    return wanted


def _content_hash(image: Path) -> str:
    try:
        return f"sha256:{hashlib.sha256(image.read_bytes()).hexdigest()}"
    except OSError as error:
        raise UserError(f"the image '{image}' of a question cannot be read: {error}") from error


def _say_what_is_there(
    wanted: Sequence[_Wanted], todo: dict[str, _Wanted], store: AnswerStore
) -> None:
    done = len(wanted) - sum(each.key in todo for each in wanted)
    if done:
        log.info("%d of %d questions are answered already", done, len(wanted))
    asked = {each.question.question_id for each in todo.values()}
    others = sum(answer.question_id in asked for answer in store.answers.values())
    if others:
        log.info(
            "%s also has %d answers to these ids by another model, or to questions or images that "
            "have changed since: they are kept, and not used",
            store.path,
            others,
        )


def _asked(todo: dict[str, _Wanted], model: ChatModel) -> Iterator[Answer]:
    """What comes back, with a line about the progress now and then."""
    pace, failed, made_with = Pace(len(todo), every=10.0), 0, dict(model.made_with)
    replies = model.ask([each.request for each in todo.values()])
    for count, reply in enumerate(replies, 1):
        failed += reply.error is not None
        if pace.due or count == len(todo):
            parts = [f"{count} of {len(todo)} questions", f"{failed} failed" if failed else ""]
            pace.line(", ".join(filter(None, ["asked " + parts[0], parts[1], pace.left(count)])))
        yield _answer(todo[reply.key], reply, made_with)


def _answer(wanted: _Wanted, reply: Reply, made_with: dict[str, Any]) -> Answer:
    question = wanted.question
    return Answer(
        key=wanted.key,
        question_id=question.question_id,
        task=question.task,
        image=question.image,
        messages_hash=wanted.messages_hash,
        prompt=question.text,
        response=reply.text,
        answer=question.answer,
        p_yes=reply.p_yes,
        finish_reason=reply.finish_reason,
        usage=reply.usage,
        latency_s=reply.latency_s,
        error=reply.error,
        made_with=made_with,
    )


def _of(question: Question, answer: Answer) -> Answer:
    """An answer as that of one question: others may have asked the same."""
    return replace(
        answer,
        question_id=question.question_id,
        task=question.task,
        image=question.image,
        answer=question.answer,
    )
