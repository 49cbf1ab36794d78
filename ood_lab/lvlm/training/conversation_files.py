"""Examples from files: conversations about images, one per line, as TRL and LLaVA have them."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

from torch.utils.data import Dataset

from ood_lab.common.arguments import Fields
from ood_lab.common.errors import UserError
from ood_lab.data.sources.image_files import load_rgb
from ood_lab.lvlm.chat.base import Message
from ood_lab.lvlm.questions.question_files import read_json_list
from ood_lab.lvlm.training.examples import Chats, Conversation, Example

_ROLES = {
    "user": "user",
    "assistant": "assistant",
    "system": "system",
    "human": "user",
    "gpt": "assistant",
}
#: Where the image stands in a text.
_MARK = "<image>"


class ChatFile(Dataset[Example]):
    """Conversations of a file, JSON lines or one JSON list, images relative to its folder.

    Two forms are read: ``{"messages": [{"role", "content"}], "images": [path]}`` (TRL), and
    ``{"image": path, "conversations": [{"from": "human", "value": "<image>..."}]}`` (LLaVA). Every
    message of the assistant is learned, each with the messages before it.

    Args:
        path: the file.

    Raises:
        UserError: the file is missing or an entry has another form; an image is missing, or an
            entry has several; it has no answer.
    """

    def __init__(self, path: str | Path) -> None:
        file = Path(path)
        if not file.is_file():
            raise UserError(f"there is no file of conversations '{file}'")
        self._entries = [
            _entry(record, file, number) for number, record in enumerate(read_json_list(file), 1)
        ]

    def __len__(self) -> int:
        return len(self._entries)

    def __getitem__(self, index: int | tuple[int, int]) -> Example:
        row = index if isinstance(index, int) else index[0]  # nothing is drawn
        path, conversations = self._entries[row]
        if path is None:
            return Example(None, conversations)
        return Example(load_rgb(path), conversations)


class FileChats(Chats):
    """Conversations of files.

    Args:
        train: file of conversations, see :class:`ChatFile`.
        val: another such file; None = no validation.
        options: see :class:`Chats`.
    """

    def __init__(self, train: str, val: str | None = None, **options: Any) -> None:
        super().__init__(ChatFile(train), None if val is None else ChatFile(val), **options)


def _entry(record: Any, file: Path, number: int) -> tuple[Path | None, list[Conversation]]:
    where = f"'{file}', entry {number}"
    try:
        if "messages" in record:
            images = list(record.get("images") or [])
            turns = [(turn["role"], turn["content"]) for turn in record["messages"]]
        else:
            images = [record["image"]] if record.get("image") else []
            turns = [(turn["from"], turn["value"]) for turn in record["conversations"]]
        messages = [_message(role, content, where) for role, content in turns]
    except (KeyError, TypeError, AttributeError) as error:
        raise UserError(f"{where}, has neither messages nor conversations: {error!r}") from error
    marks = [i for i, (_, content) in enumerate(turns) for _ in range(_marks(content))]
    path = _image(images, marks, file.parent, where)
    if path is not None:
        messages = _with_image(messages, marks, where)
    ends = [end for end, message in enumerate(messages, 1) if message["role"] == "assistant"]
    if not ends:
        raise UserError(f"{where}, has no turn of the assistant: there is nothing to learn")
    if any(message["role"] == "assistant" and not _said(message) for message in messages):
        raise UserError(f"{where}, has an empty turn of the assistant")
    return path, [messages[:end] for end in ends]


def _image(images: list[Any], marks: list[int], folder: Path, where: str) -> Path | None:
    if len(images) > 1:
        raise UserError(f"{where}, has {len(images)} images; one is the most")
    if len(marks) > 1:
        raise UserError(f"{where}, marks {len(marks)} images with <image>; one is the most")
    if marks and not images:
        raise UserError(f"{where}, has an <image> in its text, but names no image")
    if not images:
        return None
    if not isinstance(images[0], str):
        raise UserError(f"{where}: give the path of the image, not {type(images[0]).__name__}")
    path = folder / images[0]
    if not path.is_file():
        raise UserError(f"{where}: there is no image '{path}'")
    return path


def _message(role: str, content: Any, where: str) -> Fields:
    """Text without marks of the image, which is a part of its own."""
    if role not in _ROLES:
        raise UserError(f"{where}: unknown role '{role}'; known are {', '.join(_ROLES)}")
    if isinstance(content, str):
        parts = [{"type": "text", "text": content.replace(_MARK, "").strip()}]
    else:
        parts = [{"type": "text", "text": p["text"]} for p in content if p["type"] == "text"]
    return {"role": _ROLES[role], "content": parts}


def _marks(content: Any) -> int:
    """How many images a turn says it shows."""
    if isinstance(content, str):
        return content.count(_MARK)
    return sum(part["type"] == "image" for part in content)


def _said(message: Message) -> str:
    return "".join(part["text"] for part in message["content"] if part["type"] == "text").strip()


def _with_image(messages: Sequence[Message], marks: list[int], where: str) -> list[Fields]:
    """The message that has the mark, or the user's first, begins with the image."""
    of_user = [i for i, message in enumerate(messages) if message["role"] == "user"]
    if not of_user or not set(marks) <= set(of_user):
        raise UserError(f"{where}: an image belongs to a turn of the user")
    first = marks[0] if marks else of_user[0]
    return [
        {**message, "content": [{"type": "image"}, *message["content"]]}
        if i == first
        else {**message}
        for i, message in enumerate(messages)
    ]
