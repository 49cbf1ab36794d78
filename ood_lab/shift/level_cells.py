"""Cells of the semantic x covariate table: counts, names and image lists."""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path

import numpy as np
from numpy.typing import ArrayLike

from ood_lab.common.errors import reported_as
from ood_lab.common.files import StrPath
from ood_lab.schema.arrays import Bools, Ints

#: Images below which IS-OOD calls a cell N/A.
MIN_COUNT = 10


def cell_counts(covariate: ArrayLike, semantic: ArrayLike, shape: tuple[int, int]) -> Ints:
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


def present_cells(counts: Ints, min_count: int = MIN_COUNT) -> Bools:
    """True for the cells with enough images to be evaluated; the others are N/A."""
    return counts >= max(min_count, 1)


def write_imglist(path: StrPath, rows: Iterable[tuple[str, int]]) -> None:
    """Writes lines ``path label``.

    Raises:
        UserError: the file cannot be written.
    """
    lines = "".join(f"{image} {label}\n" for image, label in rows)
    with reported_as(f"image list '{path}' cannot be written: {{reason}}", OSError):
        Path(path).write_text(lines, encoding="utf-8")
