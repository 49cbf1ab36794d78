"""The edges at which shift degrees are cut into levels."""

from __future__ import annotations

import json
from dataclasses import asdict, dataclass
from pathlib import Path

import numpy as np
from numpy.typing import ArrayLike, NDArray

from ood_lab.common.errors import UserError, reported_as
from ood_lab.common.files import StrPath
from ood_lab.schema.arrays import Ints
from ood_lab.schema.image_columns import AXES

#: Outer quantiles of the seven inner edges, from the counts of IS-OOD's Figure 9.
SEMANTIC_QUANTILES = (0.0865, 0.9261)
COVARIATE_QUANTILES = (0.0909, 0.9962)
#: Levels an axis.
LEVELS = 8


@dataclass(frozen=True)
class Edges:
    """Inner edges of the levels of both axes, strictly rising.

    Level i holds degrees ``e_i <= D < e_{i+1}``; the outer levels are open.

    Attributes:
        semantic: of D_sem, ``levels - 1`` numbers.
        covariate: of D_cov.
    """

    semantic: tuple[float, ...]
    covariate: tuple[float, ...]

    def __post_init__(self) -> None:
        for axis in AXES:
            values = tuple(float(value) for value in getattr(self, axis))
            if not values or not np.isfinite(values).all() or (np.diff(values) <= 0).any():
                raise UserError(
                    f"edges.{axis}={list(values)}: give at least one number, each larger than the "
                    "one before"
                )
            object.__setattr__(self, axis, values)

    def levels(self, semantic: ArrayLike, covariate: ArrayLike) -> tuple[NDArray, NDArray]:
        """Levels from 0 of degrees ``[N]``: semantic and covariate, ``[N] int64`` each.

        A degree on an edge belongs to the level above.
        """
        return (
            np.searchsorted(self.semantic, semantic, side="right"),
            np.searchsorted(self.covariate, covariate, side="right"),
        )

    @property
    def shape(self) -> tuple[int, int]:
        """Covariate and semantic levels: rows and columns of the table of cells."""
        return len(self.covariate) + 1, len(self.semantic) + 1


def pool_edges(
    semantic: ArrayLike,
    covariate: ArrayLike,
    levels: int = LEVELS,
) -> Edges:
    r"""Edges from the degrees of the whole test pool.

    The outer two inner edges are quantiles and the others lie evenly between them:
    :math:`e_i = Q(q_{lo}) + \frac{i - 1}{n - 2} (Q(q_{hi}) - Q(q_{lo}))`, i = 1..n-1. IS-OOD does
    not publish its edges; the quantiles are those of the marginal counts in its Figure 9,
    whose inner levels fit an equal width.

    Args:
        semantic: D_sem of the pool, ``[N]``.
        covariate: D_cov of the pool, ``[N]``.
        levels: n, at least 3.

    Raises:
        UserError: fewer than 3 levels, or degrees that do not spread (the two quantiles are equal).
    """
    if levels < 3:
        raise UserError(f"levels={levels}: edges from quantiles need at least 3 levels")
    return Edges(
        _axis_edges(semantic, SEMANTIC_QUANTILES, levels, "semantic"),
        _axis_edges(covariate, COVARIATE_QUANTILES, levels, "covariate"),
    )


def save_edges(path: StrPath, edges: Edges) -> None:
    """Writes the edges as JSON, exactly.

    Raises:
        UserError: the file cannot be written.
    """
    with reported_as(f"edges '{path}' cannot be written: {{reason}}", OSError):
        Path(path).write_text(json.dumps(asdict(edges), indent=2) + "\n", encoding="utf-8")


def load_edges(path: StrPath) -> Edges:
    """Reads a file of :func:`save_edges`.

    Raises:
        UserError: no such file, or no edges in it.
    """
    problem = (
        f"edges '{path}' cannot be read: expected JSON with the lists 'semantic' and 'covariate' "
        "({reason})"
    )
    with reported_as(problem, (OSError, ValueError, TypeError)):
        return Edges(**json.loads(Path(path).read_text(encoding="utf-8")))


def _axis_edges(
    degrees: ArrayLike, quantiles: tuple[float, float], levels: int, axis: str
) -> tuple[float, ...]:
    low, high = quantiles
    first, last = np.quantile(np.asarray(degrees, np.float64), [low, high])
    if not last > first:
        raise UserError(
            f"all {axis} shift degrees between the quantiles {low} and {high} equal {first:g}: "
            f"there are no levels to divide into; give edges.{axis} or more varied images"
        )
    return tuple(np.linspace(first, last, levels - 1).tolist())


def cell_counts(covariate: ArrayLike, semantic: ArrayLike, shape: tuple[int, int]) -> Ints:
    """Images of each cell: rows are covariate levels, columns semantic ones (IS-OOD, Figure 9).

    Args:
        covariate: covariate level from 0 of each image, ``[N]``.
        semantic: semantic level, ``[N]``.
        shape: levels of both axes, as ``Edges.shape``.

    Returns:
        ``[covariate, semantic] int64``, which sums to N.
    """
    counts = np.zeros(shape, np.int64)
    np.add.at(counts, (np.asarray(covariate), np.asarray(semantic)), 1)
    return counts
