"""Examples from files: conversations about images, one per line, as TRL and LLaVA have them."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from torch.utils.data import Dataset

from ood_lab.common.arguments import Fields
from ood_lab.common.errors import UserError
from ood_lab.data.sources.image_files import load_rgb
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
_IMAGE = {"type": "image"}


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
        messages: list[Fields] = [
            {"role": _ROLES[role], "content": _parts(content)} for role, content in turns
        ]
        path = file.parent / images[0] if images else None
    except (KeyError, TypeError, AttributeError) as error:
        raise UserError(
            f"{where}, has neither messages nor conversations of {', '.join(_ROLES)} with the "
            f"path of an image: {error!r}"
        ) from error
    marked = [m for m in messages for part in m["content"] if part == _IMAGE]
    if len(images) > 1 or len(marked) > len(images):
        raise UserError(
            f"{where}, names {len(images)} images and shows {len(marked)} in its text: one is "
            "the most, and what is shown needs a name"
        )
    if path is not None:
        if not path.is_file():
            raise UserError(f"{where}: there is no image '{path}'")
        of_user = [message for message in messages if message["role"] == "user"]
        if not of_user or any(message["role"] != "user" for message in marked):
            raise UserError(f"{where}: an image belongs to a turn of the user")
        if not marked:
            of_user[0]["content"].insert(0, _IMAGE)
    ends = [end for end, message in enumerate(messages, 1) if message["role"] == "assistant"]
    replies = ["".join(part["text"] for part in messages[end - 1]["content"]) for end in ends]
    if not replies or not all(map(str.strip, replies)):
        raise UserError(f"{where}, has no turn of the assistant, or an empty one: nothing to learn")
    return path, [messages[:end] for end in ends]


def _parts(content: Any) -> list[Fields]:
    """The image, where the content shows one, and its texts."""
    if isinstance(content, str):
        text = {"type": "text", "text": content.replace(_MARK, "").strip()}
        return [*[_IMAGE] * content.count(_MARK), text]
    texts = [{"type": "text", "text": p["text"]} for p in content if p["type"] == "text"]
    return [*[_IMAGE for part in content if part["type"] == "image"], *texts]
