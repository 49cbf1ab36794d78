"""Cells of the semantic x covariate table: counts, names and image lists."""

from __future__ import annotations

import os
import re
from collections.abc import Iterable
from pathlib import Path

import numpy as np
from numpy.typing import ArrayLike, NDArray

from ood_lab.errors import UserError

#: Images below which IS-OOD calls a cell N/A.
MIN_COUNT = 10
_CELL = re.compile(r"cov_(\d+)_sem_(\d+)\.txt")


def cell_counts(
    covariate: ArrayLike, semantic: ArrayLike, shape: tuple[int, int]
) -> NDArray[np.int64]:
    """Images of each cell: rows are covariate levels, columns semantic ones (IS-OOD, Figure 9).

    Args:
        covariate: covariate level from 0 of each image, ``[N]``.
        semantic: semantic level, ``[N]``.
        shape: levels of both axes, as ``Edges.shape``.

    Returns:
        ``[covariate, semantic] int64``, which sums to N.
    """
    rows, columns = np.asarray(covariate), np.asarray(semantic)
    flat = np.ravel_multi_index((rows, columns), shape)
    return np.bincount(flat, minlength=shape[0] * shape[1]).reshape(shape).astype(np.int64)


def present_cells(counts: NDArray[np.int64], min_count: int = MIN_COUNT) -> NDArray[np.bool_]:
    """Which cells have enough images to be evaluated; the others are N/A."""
    return counts >= max(min_count, 1)


def cell_file(covariate: int, semantic: int) -> str:
    """IS-OOD's name of a cell's image list, levels from 0: ``cov_3_sem_5.txt``."""
    return f"cov_{covariate}_sem_{semantic}.txt"


def cell_of_file(name: str) -> tuple[int, int] | None:
    """Covariate and semantic level of a file's name; None if it is no cell's."""
    match = _CELL.fullmatch(name)
    return None if match is None else (int(match[1]), int(match[2]))


def find_cells(folder: str | os.PathLike[str]) -> dict[tuple[int, int], Path]:
    """The image lists of a division, by (covariate, semantic) level, in that order.

    Raises:
        UserError: no such folder, or no cell in it.
    """
    place = Path(folder)
    if not place.is_dir():
        raise UserError(f"'{place}' is no folder: give one with files such as {cell_file(0, 0)}")
    cells = {cell_of_file(path.name): path for path in place.iterdir()}
    found = {cell: path for cell, path in cells.items() if cell is not None}
    if not found:
        raise UserError(f"folder '{place}' has no image list of a cell, such as {cell_file(0, 0)}")
    return dict(sorted(found.items()))


def write_imglist(path: str | os.PathLike[str], rows: Iterable[tuple[str, int]]) -> None:
    """Writes lines ``path label``.

    Raises:
        UserError: the file cannot be written.
    """
    lines = "".join(f"{image} {label}\n" for image, label in rows)
    try:
        Path(path).write_text(lines, encoding="utf-8")
    except OSError as error:
        raise UserError(f"image list '{path}' cannot be written: {error}") from error


def read_imglist(path: str | os.PathLike[str]) -> list[tuple[str, int]]:
    """Reads lines ``path label`` (the path may have blanks) as OpenOOD and IS-OOD publish them.

    Raises:
        UserError: no such file, or a line without a whole number at its end.
    """
    try:
        lines = Path(path).read_text(encoding="utf-8").splitlines()
    except (OSError, UnicodeDecodeError) as error:
        raise UserError(f"image list '{path}' cannot be read: {error}") from error
    rows = []
    for number, line in enumerate(lines, start=1):
        if not line.strip():
            continue
        image, _, label = line.strip().rpartition(" ")
        if not image or not re.fullmatch(r"-?\d+", label):
            raise UserError(
                f"image list '{path}', line {number}: expected 'path label', got '{line[:80]}'"
            )
        rows.append((image, int(label)))
    return rows
