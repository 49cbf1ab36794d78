"""Answers of vision-language models, one JSON object per line: none is ever paid for twice."""

from __future__ import annotations

import os
import re
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field, fields
from pathlib import Path

from ood_lab.common.arguments import Settings
from ood_lab.common.errors import UserError, reported_as
from ood_lab.common.file_records import json_sha256
from ood_lab.common.files import lock, require_space
from ood_lab.common.grouping import with_keys
from ood_lab.common.line_files import append_record, read_records, write_records
from ood_lab.lvlm.chat.base import LIMITS, Reply, model_of, one_address
from ood_lab.lvlm.parsers.reply_text import is_cut, is_text

#: Bytes that are held back for each request that may be under way when the disk gets full, and for
#: how many requests.
_HELD_BACK, _UNDER_WAY = 2**13, 32


@dataclass(frozen=True, kw_only=True)
class Answer(Reply):
    """The reply of a vision-language model to a question.

    What it means is not kept here: parsers can be changed without asking again. The next run
    repeats one with an ``error``.

    Args:
        key: hash of everything that can change the reply, see :func:`answer_key`.
        question_id: of the question.
        task: of the question.
        image: of the question.
        messages_hash: of the messages, with the content of images in place of their paths.
        prompt: the text of the question.
        answer: the right answer, of the question.
        made_with: backend, model, revision, generation settings.
        server: address that replied; None for local models.
    """

    question_id: str
    task: str
    image: str | None
    messages_hash: str
    prompt: str
    answer: str
    made_with: Settings = field(default_factory=dict)
    server: str | None = None


#: By the id of their question.
Answers = Mapping[str, Answer]
#: The answer to a question that was not asked.
NOT_ASKED = Answer(
    "",
    "",
    question_id="",
    task="",
    image=None,
    messages_hash="",
    prompt="",
    answer="",
    error="not asked",
)


def answer_key(messages_hash: str, made_with: Settings) -> str:
    """SHA-256 (32 digits) of the messages and of what the answer is made with.

    The id of the question is not part of it: the same question of two benchmarks, or after a
    renumbering, is sent once.
    """
    return json_sha256([messages_hash, dict(made_with)])[:32]


def read_answers(path: Path) -> Iterator[Answer]:
    """The answers in a file, failures included.

    What is none is passed over: half a line, a record of something else, a reply that is no text.
    """
    names = {item.name for item in fields(Answer)}
    for record in read_records(path):
        try:
            answer = Answer(**with_keys(record, names))
        except TypeError:
            continue
        if is_text(answer.response) and isinstance(answer.made_with, Mapping):
            yield answer


class AnswerStore:
    """The file ``answers.jsonl``: it only grows, each answer is there as soon as it came.

    Half a line that a killed process or a full disk left is passed over. Answers of other models
    and to other questions may be in the same file: the key tells them apart.

    Args:
        path: the file; made with its folders when the first answer comes.
        others: lists files that may hold answers of the same model too; they are only read.
        shared: name of the lock, which processes with any of these files share; "" = that of the
            file itself.

    Attributes:
        full: why no further answer can be written; None = it can.
    """

    def __init__(
        self, path: Path, others: Callable[[], Iterable[Path]] = tuple, shared: str = ""
    ) -> None:
        self.path = path
        self.full: UserError | None = None
        self._others = others
        self._lock = path.with_name(f".{shared or path.name}.lock")
        self._reserve = path.with_name(f".{path.name}.reserve")
        self._sizes: dict[Path, int] = {}
        #: Answers without error, by messages and :func:`model_of` of the model, then by key.
        self._by_model: dict[tuple[str, str], dict[str, Answer]] = {}
        self.read()

    def read(self) -> None:
        """Reads what is in the files, also what other processes wrote meanwhile."""
        for file in (*self._others(), self.path):
            size = file.stat().st_size if file.is_file() else 0
            if size == self._sizes.get(file, 0):
                continue
            self._sizes[file] = size
            for answer in read_answers(file):
                self._keep(answer)

    def find(
        self, messages_hash: str, made_with: Settings, server: str | None = None
    ) -> Answer | None:
        """The answer to these messages, wherever it was paid for; None where there is none.

        An answer counts if the model and its settings are the same. The address of the server
        matters where ``made_with`` has one; else an answer of ``server`` itself comes first. A
        reply that ended by itself under a smaller limit is what a larger one gives, too.
        """
        same = self._by_model.get((messages_hash, model_of(made_with)), {})
        if exact := same.get(answer_key(messages_hash, made_with)):
            return exact
        fit = [item for item in same.values() if _serves(item, made_with)]
        return min(fit, key=lambda item: server_of(item) != server, default=None)

    @contextmanager
    def taken(self) -> Iterator[None]:
        """Keeps other processes from asking for the same answers at the same time.

        They wait until this one has ended, however it ends, and then know its result.

        Raises:
            UserError: the folder cannot be written.
        """
        with reported_as(self._unwritable("{reason}"), OSError):
            self.path.parent.mkdir(parents=True, exist_ok=True)
            file = self._lock.open("w")
        with file:
            lock(file, f"another process asks the model of {self.path}: waiting until it is done")
            self.read()
            yield

    @contextmanager
    def reserved(self, count: int, needed: int) -> Iterator[None]:
        """Holds room back, so that what is under way when the disk gets full is still kept.

        Args:
            count: answers to come.
            needed: bytes of all of them, about.

        Raises:
            UserError: the folder cannot be written, or has less room.
        """
        held_back = min(count, _UNDER_WAY) * _HELD_BACK
        require_space(self.path.parent, needed + held_back, f"asking {count:,} questions")
        try:
            with (
                reported_as(self._unwritable("{reason}"), OSError),
                self._reserve.open("wb") as file,
            ):
                file.write(os.urandom(held_back))  # zeros may take no room
                file.flush()
                os.fsync(file.fileno())
            yield
        finally:
            self._reserve.unlink(missing_ok=True)

    def add(self, answers: Iterable[Answer]) -> Iterator[Answer]:
        """Keeps each answer, on disk, before it is passed on; failures, too.

        Once the disk is full, ``full`` says so, and answers take the room of :meth:`reserved`.

        Raises:
            UserError: that room is full, too.
        """
        for answer in answers:
            try:
                append_record(self.path, vars(answer))
            except OSError as error:
                self.full = self.full or UserError(self._unwritable(str(error)))
                self._reserve.unlink(missing_ok=True)
                with reported_as(str(self.full), OSError):
                    append_record(self.path, vars(answer))
            self._keep(answer)
            yield answer

    def _unwritable(self, reason: str) -> str:
        return (
            f"answers cannot be written under '{self.path.parent}' ({reason}): make room there, "
            "and the same command resumes; or choose another folder, paths.answers=DIR"
        )

    def _keep(self, answer: Answer) -> None:
        if answer.error is None:
            place = answer.messages_hash, model_of(answer.made_with)
            self._by_model.setdefault(place, {})[answer.key] = answer


def server_of(answer: Answer) -> str | None:
    """Address that replied, in one form."""
    return one_address(answer.server) if answer.server else None


def _serves(answer: Answer, made_with: Settings) -> bool:
    """Whether an answer of the same :func:`model_of` is what this model would reply."""
    if "server" in made_with and server_of(answer) != one_address(made_with["server"]):
        return False
    limits = [_limit(item) for item in (made_with, answer.made_with)]
    if limits[0] == limits[1]:
        return True
    limit, old_limit = (tokens for _, tokens in limits)
    settings = made_with.get("gen_kwargs") or {}
    greedy = settings.get("temperature") == 0 or settings.get("do_sample") is False
    ended = answer.finish_reason is not None and not is_cut(answer.finish_reason)
    used = answer.usage.get("completion_tokens", old_limit)
    fits = limit is None or (old_limit is not None and old_limit <= limit)
    # Of sampled replies the short ones alone would be kept, which are not like the others.
    return greedy and ended and (fits or (used is not None and used < (limit or 0)))


def _limit(made_with: Settings) -> tuple[str | None, int | None]:
    settings = made_with.get("gen_kwargs") or {}
    return next(((name, settings[name]) for name in LIMITS if name in settings), (None, None))


def model_name(made_with: Settings) -> str:
    """Name of a model: the last part of its path."""
    return str(made_with.get("model", "model")).rstrip("/").rpartition("/")[2] or "model"


def store_of(made_with: Settings, folder: Path) -> AnswerStore:
    """The file of a model's answers: its name, and a hash of what tells it from others.

    Answers in other files of models of that name are found, too, where they are of the same model:
    settings that change no reply, too, change the name of the file.

    Args:
        made_with: of the model.
        folder: of all such files.
    """
    name = re.sub(r"[^A-Za-z0-9._-]+", "_", model_name(made_with))
    path = folder / f"{name}-{json_sha256(dict(made_with))[:10]}.jsonl"
    named = re.compile(rf"{re.escape(name)}-[0-9a-f]{{10}}\.jsonl")

    def others() -> list[Path]:
        files = sorted(folder.iterdir()) if folder.is_dir() else []
        return [file for file in files if named.fullmatch(file.name) and file != path]

    # Models that may use each other's answers wait for each other.
    return AnswerStore(path, others, f"{name}-{json_sha256(model_of(made_with))[:10]}")


def write_answers(answers: Iterable[Answer], path: Path) -> None:
    """Writes one answer per line, whole or not at all."""
    write_records(map(vars, answers), path)
