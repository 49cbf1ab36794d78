"""Answers of chat models, one JSON object per line, so that none is ever paid for twice."""

from __future__ import annotations

import fcntl
import hashlib
import json
import logging
from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import asdict, dataclass, field, fields
from pathlib import Path
from typing import Any

from ood_lab.append import append_lines, create_with, read_records

log = logging.getLogger(__name__)


@dataclass(frozen=True)
class Answer:
    """What a chat model replied to a question.

    Args:
        key: hash of everything that can change the reply, see :func:`answer_key`.
        question_id: of the question.
        task: of the question.
        image: of the question.
        messages_hash: of the messages, with the content of images in place of their paths.
        prompt: the text that was asked.
        response: the reply as it came; ``""`` where ``error`` is set.
        p_yes: P(yes), renormalised over yes and no, where the model gives it.
        answer: the right answer, of the question. What the reply *means* is not kept here:
            parsers can be changed without asking again.
        finish_reason: ``stop``, ``length``, ...
        usage: token counts.
        latency_s: seconds.
        error: why there is no reply. Such an answer is never parsed, and asked for again by the
            next run.
        made_with: backend, model, revision, generation settings.
    """

    key: str
    question_id: str
    task: str
    image: str | None
    messages_hash: str
    prompt: str
    response: str
    answer: str
    p_yes: float | None = None
    finish_reason: str | None = None
    usage: Mapping[str, int] = field(default_factory=dict)
    latency_s: float | None = None
    error: str | None = None
    made_with: Mapping[str, Any] = field(default_factory=dict)


#: By the id of their question.
Answers = Mapping[str, Answer]


def answer_key(messages_hash: str, made_with: Mapping[str, Any]) -> str:
    """SHA-256 (32 digits) of the messages and of what the answer is made with.

    The id of the question is not part of it: the same question of two benchmarks, or after a
    renumbering, is asked once.
    """
    text = json.dumps([messages_hash, dict(made_with)], sort_keys=True)
    return hashlib.sha256(text.encode()).hexdigest()[:32]


class AnswerStore:
    """The file ``answers.jsonl``: it only grows, each answer is there as soon as it came.

    Half a line that a killed process or a full disk left is passed over. Answers of other models
    and to other questions may lie in the same file: the key tells them apart.

    Args:
        path: the file; made with its folders when the first answer comes.

    Attributes:
        answers: those without error, by key.
    """

    def __init__(self, path: Path) -> None:
        self.path = path
        self.answers: dict[str, Answer] = {}
        self.read()

    def read(self) -> None:
        """Reads what is in the file, also what other processes wrote meanwhile."""
        if not self.path.is_file():
            return
        known = {each.name for each in fields(Answer)}
        for record in read_records(self.path):
            try:
                answer = Answer(**{k: v for k, v in record.items() if k in known})
            except TypeError:  # no answer: something that a later version wrote
                continue
            if answer.error is None:
                self.answers[answer.key] = answer

    @contextmanager
    def taken(self) -> Iterator[None]:
        """Keeps other processes from asking for the same answers at the same time.

        They wait until this one has ended, however it ends, and then know what it was told.
        """
        self.path.parent.mkdir(parents=True, exist_ok=True)
        with self.path.with_name(f".{self.path.name}.lock").open("w") as file:
            try:
                fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
            except BlockingIOError:
                log.info("another process writes %s: waiting until it is done", self.path)
                fcntl.flock(file, fcntl.LOCK_EX)
            self.read()
            yield

    def add(self, answers: Iterable[Answer]) -> Iterator[Answer]:
        """Keeps each answer, on disk, before it is passed on; failures, too."""
        create_with(self.path, "")
        for answer in answers:
            append_lines(self.path, [json.dumps(asdict(answer))])
            if answer.error is None:
                self.answers[answer.key] = answer
            yield answer
