"""Which prompts are drawn: measured against the ID images, divided into levels, n per cell."""

from __future__ import annotations

import logging
import math
from collections.abc import Callable, Sequence
from pathlib import Path

import numpy as np
import pandas as pd
import torch
from torch import Tensor

from ood_lab.schema.arrays import Ints
from ood_lab.schema.image_columns import cell_name
from ood_lab.shift import (
    ShiftDegrees,
    ShiftMeter,
    cell_counts,
    pool_edges,
    save_edges,
)
from ood_lab.synthesis.image_batches import batches
from ood_lab.synthesis.prompts import Prompts

_CHUNK = 4096


def measure_prompts(
    prompts: Prompts,
    numbers: Sequence[int],
    encode: Callable[[list[str]], Tensor],
    meter: ShiftMeter,
) -> ShiftDegrees:
    """Shift degrees of prompts: distance of their TEXT features to the ID IMAGE features.

    ``D_sem(p)`` is the cosine distance of the semantic half of the text feature to the k-th
    nearest semantic half of the ID images, ``D_cov(p)`` likewise (IS-OOD, Syn-IS). Texts and
    images lie apart in CLIP's space, so these degrees have a range of their own, and need edges
    of their own. A text beyond the context length of the CLIP is cut.

    Args:
        prompts: all texts.
        numbers: of those to measure, ``[N]``.
        encode: the text encoder, N texts to ``[N, l]``.
        meter: holds the ID images and the decomposition.
    """
    chunks = batches("measuring prompts", numbers, _CHUNK)
    parts = [meter(encode([prompts.text(number) for number in chunk])) for chunk in chunks]
    return ShiftDegrees(*(torch.cat(degrees) for degrees in zip(*parts, strict=True)))


def choose(semantic: Ints, covariate: Ints, per_cell: int, seed: int) -> Ints:
    """Up to ``per_cell`` rows of each cell, at random; those of one cell ignore the others.

    Args:
        semantic: semantic level of every row, ``[N]``.
        covariate: covariate level.
        per_cell: rows wanted of a cell; a cell with fewer gives all it has.
        seed: of the draws.

    Returns:
        Chosen rows, by covariate level, then semantic level, then number.
    """
    chosen: list[Ints] = [np.empty(0, dtype=np.int64)]
    for row, column in np.unique(np.stack([covariate, semantic], 1), axis=0).tolist():
        members = np.flatnonzero((covariate == row) & (semantic == column))
        sample = np.random.default_rng([seed, row, column]).permutation(members)[:per_cell]
        chosen.append(np.sort(sample))
    return np.concatenate(chosen)


def short_cells(
    semantic: Ints,
    covariate: Ints,
    shape: tuple[int, int],
    per_cell: int,
) -> list[str]:
    """Cells with fewer than ``per_cell`` rows, each as ``cov_0_sem_7 (12)``.

    Args:
        semantic: semantic level of every row.
        covariate: covariate level.
        shape: levels of both axes, as ``Edges.shape``.
        per_cell: rows wanted.
    """
    counts = cell_counts(covariate, semantic, shape)
    return [
        f"{cell_name(row, column)} ({counts[row, column]})"
        for row, column in np.argwhere(counts < per_cell)
    ]


def image_seed(seed: int, number: int) -> int:
    """Seed of one image, in [0, 2^32), which does not depend on which other images are made."""
    return int(np.random.SeedSequence([seed, number]).generate_state(1)[0])


log = logging.getLogger(__name__)


def make_plan(
    pool: Prompts,
    encode: Callable[[list[str]], Tensor],
    meter: ShiftMeter,
    folder: Path,
    *,
    prompts: int | None,
    levels: int,
    per_cell: int,
    seed: int,
) -> pd.DataFrame:
    """Measures the prompts, writes ``level_edges.json`` and returns one row per image to make.

    Args:
        pool: all texts.
        encode: the text encoder.
        meter: holds the ID images.
        folder: of the images.
        prompts: number measured of all, at random; None = all.
        levels: an axis.
        per_cell: see :func:`choose`.
        seed: of the draws; each image gets its own from it.

    Returns:
        Columns ``prompt, style, label, semantic_level, covariate_level, seed, file,
        semantic_degree, covariate_degree, negative_prompt``.

    Raises:
        UserError: the degrees do not spread.
    """
    numbers = np.arange(len(pool))
    if prompts is not None and prompts < len(pool):
        draw = np.random.default_rng(seed)
        numbers = np.sort(draw.choice(len(pool), prompts, replace=False))
    degrees = measure_prompts(pool, numbers.tolist(), encode, meter)
    semantic, covariate = degrees.semantic.numpy(), degrees.covariate.numpy()
    edges = pool_edges(semantic, covariate, levels=levels)
    of_semantic, of_covariate = edges.levels(semantic, covariate)
    if short := short_cells(of_semantic, of_covariate, edges.shape, per_cell):
        log.warning(
            "%d of %d cells have fewer than %d prompts, and get what there is: %s",
            len(short),
            math.prod(edges.shape),
            per_cell,
            ", ".join(short),
        )
    folder.mkdir(parents=True, exist_ok=True)
    save_edges(folder / "level_edges.json", edges)
    rows = []
    for row in choose(of_semantic, of_covariate, per_cell, seed).tolist():
        number = int(numbers[row])
        style, label = pool.parts(number)
        cell = cell_name(of_covariate[row], of_semantic[row])
        rows.append(
            {
                "prompt": pool.text(number),
                "style": style.name,
                "label": label,
                "semantic_level": of_semantic[row],
                "covariate_level": of_covariate[row],
                "seed": image_seed(seed, number),
                "file": f"images/{cell}/{pool.file(number)}.jpg",
                "semantic_degree": float(semantic[row]),
                "covariate_degree": float(covariate[row]),
                "negative_prompt": style.negative_prompt,
            }
        )
    return pd.DataFrame(rows)
