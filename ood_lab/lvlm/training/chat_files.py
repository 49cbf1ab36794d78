"""Examples from files: conversations about images, one per line, as TRL and LLaVA have them."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from torch.utils.data import Dataset

from ood_lab.data.files import load_rgb
from ood_lab.errors import UserError
from ood_lab.lvlm.training.examples import Conversation, Example

_ROLES = {"human": "user", "gpt": "assistant", "system": "system"}


class ChatFile(Dataset[Example]):
    """Conversations of a file, JSON lines or one JSON list, images relative to its folder.

    Two forms are read: ``{"messages": [{"role", "content"}], "images": [path]}`` (TRL), and
    ``{"image": path, "conversations": [{"from": "human", "value": "<image>..."}]}`` (LLaVA). Every
    message of the assistant is learned, each with what was said before it.

    Args:
        path: the file.

    Raises:
        UserError: the file is missing or an entry has another form; an image is missing.
    """

    def __init__(self, path: str | Path) -> None:
        file = Path(path)
        if not file.is_file():
            raise UserError(f"there is no file of conversations '{file}'")
        self._entries = [
            _entry(record, file, number) for number, record in enumerate(_records(file), 1)
        ]
        if not self._entries:
            raise UserError(f"'{file}' holds no conversations")

    def __len__(self) -> int:
        return len(self._entries)

    def __getitem__(self, index: int | tuple[int, int]) -> Example:
        row = index if isinstance(index, int) else index[0]  # nothing is drawn
        path, conversations = self._entries[row]
        if path is None:
            return Example(None, conversations)
        return Example(load_rgb(path), conversations)


def _records(file: Path) -> list[Any]:
    text = file.read_text(encoding="utf-8")
    try:
        if text.lstrip().startswith("["):
            return list(json.loads(text))
        return [json.loads(line) for line in text.splitlines() if line.strip()]
    except ValueError as error:
        raise UserError(f"'{file}' is neither JSON nor JSON lines: {error}") from error


def _entry(record: Any, file: Path, number: int) -> tuple[Path | None, list[Conversation]]:
    try:
        if "messages" in record:
            images = list(record.get("images") or [])
            messages = [_message(m["role"], m["content"]) for m in record["messages"]]
        else:
            images = [record["image"]] if record.get("image") else []
            turns = record["conversations"]
            messages = [_message(_ROLES[turn["from"]], turn["value"]) for turn in turns]
    except (KeyError, TypeError) as error:
        raise UserError(
            f"'{file}', entry {number}, has neither messages nor conversations: {error!r}"
        ) from error
    if len(images) > 1:
        raise UserError(f"'{file}', entry {number}, has {len(images)} images; one is the most")
    path = file.parent / images[0] if images else None
    if path is not None and not path.is_file():
        raise UserError(f"'{file}', entry {number}: there is no image '{path}'")
    if path is not None:
        messages = _with_image(messages)
    ends = [end for end, message in enumerate(messages, 1) if message["role"] == "assistant"]
    return path, [messages[:end] for end in ends]


def _message(role: str, content: Any) -> dict[str, Any]:
    """Text without marks of the image, which is a part of its own."""
    if isinstance(content, str):
        parts = [{"type": "text", "text": content.replace("<image>", "").strip()}]
    else:
        parts = [{"type": "text", "text": p["text"]} for p in content if p["type"] == "text"]
    return {"role": role, "content": parts}


def _with_image(messages: Sequence[Mapping[str, Any]]) -> list[dict[str, Any]]:
    """The first message of the user begins with the image."""
    first = next(i for i, message in enumerate(messages) if message["role"] == "user")
    return [
        {**message, "content": [{"type": "image"}, *message["content"]]}
        if i == first
        else {**message}
        for i, message in enumerate(messages)
    ]
