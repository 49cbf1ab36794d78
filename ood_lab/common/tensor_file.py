"""Tensors and a description in one safetensors file, without pickle."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from contextlib import AbstractContextManager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from PIL import Image
from safetensors import SafetensorError, safe_open
from safetensors.torch import save_file
from torch import Tensor

from ood_lab.common.errors import UserError, reported_as
from ood_lab.common.files import replaced, share

Tensors = dict[str, Tensor]
Transform = Callable[[Image.Image], Tensor]
#: Raised where content is not as expected.
_LACKING = (KeyError, TypeError, ValueError)
#: An image, or several, as a loader gives them: a tensor or a value per key, see ``collate``.
Batch = dict[str, Any]


def save_tensors(
    tensors: Mapping[str, Tensor], path: Path, metadata: Mapping[str, str] | None = None
) -> None:
    """Writes a safetensors file that those may read whom the umask lets read any new file."""
    save_file(dict(tensors), path, metadata=None if metadata is None else dict(metadata))
    share(path)


@dataclass(frozen=True)
class TensorFile:
    """A kind of file: named tensors, and in the metadata one JSON object about them.

    Args:
        kind: what such a file is called in messages.
        key: entry of the metadata that holds the JSON text, and tells these files from others.
        format: raised when the content changes; other formats are rejected.
        source: who writes such files, in words.
        remedy: what makes a new one, in words.
    """

    kind: str
    key: str
    format: int
    source: str
    remedy: str

    def write(
        self, path: Path, tensors: Mapping[str, Tensor], description: Mapping[str, Any]
    ) -> None:
        """Writes the file, whole or not at all.

        Raises:
            TypeError: the description holds more than plain values.
            UserError: the file cannot be written.
        """
        text = json.dumps({"format": self.format, **description})
        plain = {name: value.contiguous() for name, value in tensors.items()}
        problem = f"{self.kind} '{path}' cannot be written: {{reason}}"
        with reported_as(problem, (OSError, SafetensorError)), replaced(path) as file:
            save_tensors(plain, file, {self.key: text})

    def read(self, path: Path) -> tuple[dict[str, Any], Tensors]:
        """The description and the tensors.

        Raises:
            UserError: no such file, another kind of file, a damaged one, or another format.
        """
        if not path.is_file():
            raise UserError(f"{self.kind} '{path}' does not exist: {self.source} writes one")
        problem = (
            f"'{path}' is not a {self.kind}, or it is damaged: give one that {self.source} has "
            "written"
        )
        damage = (OSError, SafetensorError, *_LACKING)
        with reported_as(problem, damage), safe_open(path, framework="pt") as file:
            description = dict(json.loads((file.metadata() or {})[self.key]))
            tensors = {name: file.get_tensor(name) for name in file.keys()}  # noqa: SIM118
        if description.get("format") != self.format:
            raise UserError(
                f"{self.kind} '{path}' has format {description.get('format')}, this version reads "
                f"{self.format}: {self.remedy}"
            )
        return description, tensors

    def whole(self, path: Path) -> AbstractContextManager[None]:
        """Turns what a description lacks into a :class:`UserError` that names the file."""
        problem = f"{self.kind} '{path}' is damaged ({{kind}}: {{reason}}): {self.remedy}"
        return reported_as(problem, _LACKING)
