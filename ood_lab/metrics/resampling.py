"""Stratified bootstrap of OOD metrics.

ID samples and each OOD group are resampled to their own size. Detectors and groups share the
draws: one ID resample serves all of them and one resample of a group serves all detectors. That
makes differences between detectors, and statistics over several groups (DAD, correlation), valid.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import numpy as np
from numpy.typing import ArrayLike

from ood_lab.cores import can_fork, on_all_cores, usable_cores
from ood_lab.metrics.copies import Copies
from ood_lab.metrics.counts import Groups, RankedScores
from ood_lab.metrics.ood import AuprMethod, Floats
from ood_lab.metrics.record import OF_SETS, Metric

# Samples of the draws that are computed in one numpy call: enough to hide the cost of the call, so
# few that an array of them is memory used before, not fresh pages (from 128 KiB on, with glibc).
_BATCH_SAMPLES = 24_000
_MAX_THREADS = 8  # each holds its own batch in memory
# Samples of all draws and detectors that one core goes through in about half a second.
_LITTLE = 10_000_000


def bootstrap(
    id_scores: ArrayLike,
    ood_scores: Sequence[ArrayLike],
    *,
    draws: int = 1000,
    seed: int = 0,
    aupr_method: AuprMethod = "trapezoid",
    metrics: Sequence[Metric] = OF_SETS,
    copies: Copies | None = None,
    workers: int | None = None,
) -> dict[str, Floats]:
    """Draws of metrics for D detectors on G OOD groups.

    Each draw resamples ``n`` ID samples and, group by group, ``m_g`` OOD samples with replacement.
    FPR95 takes its threshold at rank ``0.95 n + 1/2``, between two order statistics, because the
    step rule of the point estimate is off by up to one rank and its intervals miss.

    Args:
        id_scores: ``[n]`` or ``[n, D]``, higher = more OOD, without NaN.
        ood_scores: G arrays ``[m_g]`` or ``[m_g, D]``.
        draws: number of draws B.
        seed: the draws of a seed do not depend on ``workers``; the ID resamples are the same for
            every call with the same n.
        aupr_method: of ``aupr_in`` and ``aupr_out``.
        metrics: to draw; AUPR costs several times the rest.
        copies: of ID and of each group in turn; whole photographs are drawn then.
        workers: processes, or threads where none can be forked; default one, or one per core, at
            most 8, where there is much to draw.

    Returns:
        ``[D, G, B]`` by the name of each metric.

    Raises:
        ValueError: no group, an empty array, NaN, ``draws < 1``, or detectors that do not match.
    """
    id_matrix = score_matrix(id_scores, "id_scores")
    blocks = [score_matrix(scores, f"ood_scores[{g}]") for g, scores in enumerate(ood_scores)]
    if not blocks or any(b.shape[1] != id_matrix.shape[1] for b in blocks):
        raise ValueError(
            f"ood_scores: expected at least one array with {id_matrix.shape[1]} detectors, "
            f"got {[b.shape[1] for b in blocks]}"
        )
    if draws < 1:
        raise ValueError(f"draws: expected a positive number, got {draws}")
    groups = Groups.of([len(b) for b in blocks])
    id_groups = Groups.of([len(id_matrix)])
    ood_matrix = np.concatenate(blocks)
    ranked = [
        RankedScores(*scores, groups) for scores in zip(id_matrix.T, ood_matrix.T, strict=True)
    ]

    def draw_batch(numbers: range) -> Floats:
        if copies is None:
            drawn = [[draw_generator(seed, draw, stream) for draw in numbers] for stream in (0, 1)]
            id_counts = np.stack([id_groups.resample(rng) for rng in drawn[0]])
            ood_counts = np.stack([groups.resample(rng) for rng in drawn[1]])
        else:
            both = np.stack([copies.resample(draw_generator(seed, draw, 0)) for draw in numbers])
            id_counts, ood_counts = both[:, : len(id_matrix)], both[:, len(id_matrix) :]
        of_each = [(r, r.draws(id_counts, ood_counts)) for r in ranked]
        return np.stack([[m.draws(r, d, aupr_method) for m in metrics] for r, d in of_each])

    samples = len(id_matrix) + len(ood_matrix)
    size = max(1, _BATCH_SAMPLES // samples)
    batches = [range(first, min(first + size, draws)) for first in range(0, draws, size)]
    numbers = draws * samples * len(ranked)
    found = side_by_side(draw_batch, batches, numbers, samples, workers)
    drawn = np.concatenate(found, axis=2)
    # drawn is [D, metric, B, G]
    return {metric.name: drawn[:, i].swapaxes(1, 2) for i, metric in enumerate(metrics)}


def side_by_side(
    work: Callable[[Any], Floats],
    parts: Sequence[Any],
    numbers: int,
    samples: int,
    workers: int | None = None,
) -> list[Floats]:
    """``work`` of all parts, in order: on all cores where that takes less time than to begin.

    Processes, as the calls of numpy are short: threads wait for each other, and with few samples
    two take longer than one. Where no process can be forked, large draws still go to threads.

    Args:
        work: on one part; a large array of its own for each at work.
        parts: of about equal size.
        numbers: samples that all parts go through together.
        samples: of one draw.
        workers: default as many as pay.
    """
    if workers is None and numbers < _LITTLE:
        workers = 1
    if workers == 1 or can_fork():
        with on_all_cores(work, parts, workers) as answers:
            return [answer() for answer in answers]
    if workers is None and samples <= _BATCH_SAMPLES:
        return list(map(work, parts))
    with ThreadPoolExecutor(workers or min(usable_cores(), _MAX_THREADS)) as pool:
        return list(pool.map(work, parts))


def score_matrix(values: ArrayLike, name: str) -> Floats:
    """Scores of D detectors as ``[samples, D] float64``, checked."""
    matrix = np.asarray(values, dtype=np.float64)
    matrix = matrix[:, None] if matrix.ndim == 1 else matrix
    if matrix.ndim != 2 or not len(matrix):
        raise ValueError(f"{name}: expected [samples] or [samples, detectors], got {matrix.shape}")
    if np.isnan(matrix).any():
        rows = np.count_nonzero(np.isnan(matrix).any(axis=1))
        raise ValueError(f"{name}: {rows} of {len(matrix)} samples have a NaN score")
    return matrix


def draw_generator(*key: int) -> np.random.Generator:
    """The random numbers of ``seed, draw, stream``."""
    return np.random.default_rng(key)
