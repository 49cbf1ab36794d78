"""Stratified bootstrap of OOD metrics.

ID samples and each OOD group are resampled to their own size. Detectors and groups share the
draws: one ID resample serves all of them and one resample of a group serves all detectors. That
makes differences between detectors, and statistics over several groups (DAD, correlation), valid.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from numpy.typing import ArrayLike

from ood_lab.common.cpu_cores import on_all_cores
from ood_lab.common.random_streams import Resampling
from ood_lab.metrics.ood import AuprMethod
from ood_lab.metrics.record import Metric
from ood_lab.metrics.resampling.group_intervals import PhotographGroups
from ood_lab.metrics.resampling.weighted_counts import Counts, Groups, RankedScores
from ood_lab.schema.arrays import Floats, Ints, MetricValues

# Samples of the draws that are computed in one numpy call: enough to hide the cost of the call, so
# few that an array of them is memory used before, not fresh pages (from 128 KiB on, with glibc).
BATCH_SAMPLES = 32_000
# Samples of all draws and detectors: one core goes through so many in a fifth of a second, in which
# two processes have hardly begun; and so many are a part of the work of a process.
_LITTLE = 20_000_000
_PART = 2_000_000


def _cut(draws: range, size: int) -> list[range]:
    """The draws in a row of pieces of this size, at least 1."""
    return [draws[i : i + max(1, size)] for i in range(0, len(draws), max(1, size))]


def drawn_metrics(
    id_matrix: Floats,
    blocks: Sequence[Floats],
    *,
    resampling: Resampling,
    aupr_method: AuprMethod,
    metrics: Sequence[Metric],
    copies: PhotographGroups | None,
    wanted: Sequence[int],
) -> MetricValues:
    """Draws of metrics for D detectors on G OOD groups: ``[D, G, B]`` by the name of each metric.

    Each draw resamples ``n`` ID samples and, group by group, ``m_g`` OOD samples with replacement.
    FPR95 takes its threshold at rank ``0.95 n + 1/2``, between two order statistics, because the
    step rule of the point estimate is off by up to one rank and its intervals miss.

    The draws are made in processes where that takes less time than to begin them: the calls of
    numpy are short, so that threads would wait for each other.

    Args:
        id_matrix: ``[n, D]``, higher = more OOD, see :func:`score_matrix`.
        blocks: G arrays ``[m_g, D]``.
        resampling: B and a seed, of which ID resamples are the same for the same n.
        aupr_method: of ``aupr_in`` and ``aupr_out``.
        metrics: to draw; AUPR costs several times the rest.
        copies: of ID and of each group in turn; whole photographs are drawn then.
        wanted: places of the groups to measure, ascending. Random numbers are drawn for the others
            too, so that the draws of a group do not depend on who is wanted.
    """
    detectors = id_matrix.shape[1]
    kept = np.asarray(wanted, dtype=np.int64)
    if not kept.size:
        return {m.name: np.empty((detectors, 0, resampling.draws)) for m in metrics}
    id_groups, all_groups = Groups.of([len(id_matrix)]), Groups.of([len(b) for b in blocks])
    groups = Groups.of([len(blocks[g]) for g in kept])
    of_kept = np.flatnonzero(np.isin(all_groups.member, kept))
    ood_matrix = np.concatenate([blocks[g] for g in kept])
    ranked = [
        RankedScores(inside, outside, groups)
        for inside, outside in zip(id_matrix.T, ood_matrix.T, strict=True)
    ]

    def counts_of(
        of: Groups | PhotographGroups, numbers: range, stream: int, rows: Ints | slice
    ) -> Counts:
        generators = (draw_generator(resampling.seed, number, stream) for number in numbers)
        return np.stack([of.resample(rng)[rows] for rng in generators])

    def draw(numbers: range) -> Floats:  # [D, metric, b, G]
        everyone = slice(None)
        if copies is None:
            id_counts = counts_of(id_groups, numbers, 0, everyone)
            ood_counts = counts_of(all_groups, numbers, 1, of_kept)
        else:
            both = counts_of(copies, numbers, 0, everyone)
            id_counts, ood_counts = both[:, : len(id_matrix)], both[:, len(id_matrix) + of_kept]
        # One detector after the other: the counts of one are in the cache, those of all are not.
        of_each = ((r, r.draws(id_counts, ood_counts)) for r in ranked)
        return np.stack([[m.draws(r, d, aupr_method) for m in metrics] for r, d in of_each])

    samples = len(id_matrix) + len(ood_matrix)

    def draw_part(part: range) -> Floats:
        return np.concatenate([draw(few) for few in _cut(part, BATCH_SAMPLES // samples)], axis=2)

    parts = _cut(range(resampling.draws), _PART // (samples * detectors))
    little = resampling.draws * samples * detectors < _LITTLE
    with on_all_cores(draw_part, parts, 1 if little else None) as answers:
        values = np.concatenate([answer() for answer in answers], axis=2)
    return {metric.name: values[:, i].swapaxes(1, 2) for i, metric in enumerate(metrics)}


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
    # An array of this type is taken as it is; of other numbers, numpy makes one each.
    short = all(0 <= part < 2**32 for part in key)
    return np.random.default_rng(np.array(key, np.uint32) if short else key)
