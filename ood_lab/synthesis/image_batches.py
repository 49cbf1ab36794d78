"""Images that are made in batches, one file each, and never twice; steps with progress."""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterable, Iterator, Sequence
from pathlib import Path
from typing import TypeVar

import pandas as pd
from PIL import Image
from rich.console import Console
from rich.progress import track

from ood_lab.common.errors import reported_as
from ood_lab.common.files import replaced, require_space, write_csv
from ood_lab.common.progress import Pace

_Item = TypeVar("_Item")


def batches(text: str, items: Sequence[_Item], size: int) -> Iterator[Sequence[_Item]]:
    """The items, ``size`` at a time; shows how many are done before the next ones.

    Where there is no terminal, a line every 10 seconds and at the end.
    """
    console, total = Console(stderr=True), len(items)
    pace = Pace(total, interval=10.0)
    starts = range(0, total, size)
    for start in track(starts, text, console=console, disable=not console.is_terminal):
        yield items[start : start + size]
        done = min(start + size, total)
        if pace.due or done == total:
            left = pace.left(done)
            pace.line(f"{text}: {done:,} of {total:,}" + (f", {left}" if left else ""))


log = logging.getLogger(__name__)

#: Bytes a pixel at most, generously.
_BYTES = 3


def make_images(
    files: Sequence[Path],
    make: Callable[[list[int]], Iterable[Image.Image | None]],
    batch_size: int,
    text: str = "making images",
    pixels: int = 0,
) -> list[int]:
    """Makes the images whose file is missing, and shows the progress.

    A file appears under its name only when it is whole, so that a stopped run resumes where it
    was.

    Args:
        files: of all images.
        make: the images at some positions; None where the model withholds one. What it raises
            after the last of them loses none.
        batch_size: positions a call.
        text: what is being done.
        pixels: of an image, if that is known: then the disk must have room for all of them.

    Returns:
        Positions of the images that were withheld.

    Raises:
        UserError: the disk has no room, or a file cannot be written.
    """
    todo = [position for position, file in enumerate(files) if not file.exists()]
    withheld: list[int] = []
    if len(todo) < len(files):
        log.info("%d of %d images are there already", len(files) - len(todo), len(files))
    if not todo:
        return []
    require_space(files[0].parent, len(todo) * pixels * _BYTES, f"{len(todo):,} images")
    for batch in batches(text, todo, batch_size):
        for position, image in zip(batch, make(list(batch)), strict=True):
            if image is None:
                withheld.append(position)
            else:
                _save(image, files[position])
    return withheld


def make_planned(
    plan: pd.DataFrame,
    make: Callable[[list[int]], Iterable[Image.Image | None]],
    folder: Path,
    columns: Sequence[str],
    batch_size: int,
    text: str,
    pixels: int = 0,
) -> pd.DataFrame:
    """Makes the images of a plan, and writes ``manifest.csv``: the rows whose image is there.

    Args:
        plan: a row an image, whose ``file`` in ``folder`` becomes the ``path`` of the manifest.
        make: see :func:`make_images`.
        folder: of the plan.
        columns: of the manifest.
        batch_size: images a call.
        text: what is being done.
        pixels: see :func:`make_images`.

    Returns:
        These rows.
    """
    files = [folder / file for file in plan["file"]]
    withheld = make_images(files, make, batch_size, text, pixels)
    images = plan.drop(index=withheld).rename(columns={"file": "path"})
    write_csv(images[list(columns)], folder / "manifest.csv")
    if withheld:
        log.warning("the pipeline's safety check withheld %d images", len(withheld))
    log.info("%d images: %s", len(images), folder / "manifest.csv")
    return images


def _save(image: Image.Image, file: Path) -> None:
    problem = (
        f"image '{file}' cannot be written: {{reason}}; free some space and run the same command "
        "again, it resumes from here"
    )
    with reported_as(problem, OSError), replaced(file) as part:
        image.convert("RGB").save(part, quality=95)  # of JPEG; PNG has none
