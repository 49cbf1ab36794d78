"""Images that are made in batches, one file each, and never twice."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterable, Sequence
from pathlib import Path
from typing import Any

from PIL import Image

from ood_lab.errors import UserError
from ood_lab.io import replaced

#: By the ending of a file: its last bytes when it is whole, and how it is written.
_ENDS = {"jpg": b"\xff\xd9", "png": b"IEND\xaeB`\x82"}
_OPTIONS: dict[str, dict[str, Any]] = {
    "jpg": {"format": "JPEG", "quality": 95},
    "png": {"format": "PNG"},
}
#: Bytes a pixel at most, generously.
_BYTES = {"jpg": 1, "png": 3}


def check_suffix(suffix: str) -> None:
    """Raises ``UserError`` unless images can be written with this ending."""
    if suffix not in _ENDS:
        raise UserError(f"task.suffix={suffix}: give one of {', '.join(_ENDS)}")


def bytes_needed(images: int, pixels: int, suffix: str) -> int:
    """A bound on the bytes of so many images of so many pixels."""
    return images * pixels * _BYTES[suffix]


def unmade(files: Sequence[Path]) -> list[int]:
    """Positions of the files that are missing or cut short."""
    return [position for position, file in enumerate(files) if not _is_whole(file)]


def make_images(
    files: Sequence[Path],
    make: Callable[[list[int]], Iterable[Image.Image | None]],
    batch_size: int,
    progress: Callable[[float], None] | None = None,
) -> list[int]:
    """Makes the images whose file is missing or cut short.

    A file appears under its name only when it is whole, so that a stopped run goes on where it
    was.

    Args:
        files: of all images.
        make: the images at some positions; None where the model withholds one. What it raises
            after the last of them loses none.
        batch_size: positions a call.
        progress: receives the share done.

    Returns:
        Positions of the images that were withheld.

    Raises:
        UserError: the disk refuses a file.
    """
    todo, withheld = unmade(files), []
    for start in range(0, len(todo), batch_size):
        batch = todo[start : start + batch_size]
        for position, image in zip(batch, make(batch), strict=True):
            if image is None:
                withheld.append(position)
            else:
                _save(image, files[position])
        if progress is not None:
            progress((start + len(batch)) / len(todo))
    return withheld


def _save(image: Image.Image, file: Path) -> None:
    try:
        with replaced(file) as part:
            image.convert("RGB").save(part, **_OPTIONS[file.suffix[1:]])
    except OSError as error:
        raise UserError(
            f"image '{file}' cannot be written: {error}; free some space and run the same command "
            "again, it goes on from here"
        ) from error


def _is_whole(file: Path) -> bool:
    end = _ENDS[file.suffix[1:]]
    try:
        with file.open("rb") as stream:
            stream.seek(-len(end), os.SEEK_END)
            return stream.read() == end
    except OSError:
        return False
