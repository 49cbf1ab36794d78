"""Stratified bootstrap of OOD metrics.

ID samples and each OOD group are resampled to their own size. Detectors and groups share the
draws: one ID resample serves all of them and one resample of a group serves all detectors. That
makes differences between detectors, and statistics over several groups (DAD, correlation), valid.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any, Generic, TypeVar

import numpy as np
from numpy.typing import ArrayLike

from ood_lab.common.cpu_cores import can_fork, on_all_cores, usable_cores
from ood_lab.common.random_streams import Resampling
from ood_lab.metrics.ood import AuprMethod
from ood_lab.metrics.record import Metric
from ood_lab.metrics.resampling.group_intervals import PhotographGroups
from ood_lab.metrics.resampling.weighted_counts import Counts, Groups, RankedScores
from ood_lab.schema.arrays import Floats, Ints, MetricValues

# Samples of the draws that are computed in one numpy call: enough to hide the cost of the call, so
# few that an array of them is memory used before, not fresh pages (from 128 KiB on, with glibc).
BATCH_SAMPLES = 32_000
_MAX_THREADS = 8  # each holds its own batch in memory
# Samples of all draws and detectors: one core goes through so many in a fifth of a second, in which
# two processes have hardly begun; and so many are a part of the work of a process.
_LITTLE = 20_000_000
_PART = 2_000_000

Made = TypeVar("Made")
Other = TypeVar("Other")


@dataclass(frozen=True)
class Job(Generic[Made]):
    """Draws that are made a few at a time, and what is made of all of them.

    Attributes:
        draw: the numbers of some draws, which lie along axis 2; several processes call it, each
            with other draws.
        draws: how many there are.
        samples: of one draw.
        detectors: that go through them.
        finish: what is made of the numbers of all draws.
    """

    draw: Callable[[range], Floats]
    draws: int
    samples: int
    detectors: int
    finish: Callable[[Floats], Made]

    def then(self, make: Callable[[Made], Other]) -> Job[Other]:
        """The same draws, and what is made of that which is made of them."""
        return Job(
            self.draw,
            self.draws,
            self.samples,
            self.detectors,
            lambda result: make(self.finish(result)),
        )

    @property
    def numbers(self) -> int:
        """Samples that all draws and detectors go through together."""
        return self.draws * self.samples * self.detectors

    def parts(self) -> list[range]:
        """The draws in parts of a few hundredths of a second."""
        return _cut(range(self.draws), _PART // (self.samples * self.detectors))

    def numbers_of(self, part: range) -> Floats:
        """The numbers of a part, from batches that are small enough."""
        batches = _cut(part, BATCH_SAMPLES // self.samples)
        return np.concatenate([self.draw(batch) for batch in batches], axis=2)


def carried_out(jobs: Sequence[Job[Any]], workers: int | None = None) -> list[Any]:
    """What is made of each job: on all cores where that takes less time than to begin.

    All jobs share the processes; while these are at the next job, this process finishes the one
    before. Processes, as the calls of numpy are short: threads wait for each other, and with few
    samples two take longer than one. Where no process can be forked, large draws still go to
    threads.

    Args:
        jobs: first those that take long to finish.
        workers: default as many as pay.
    """
    tasks = [(job, part) for job in jobs for part in job.parts()]
    little = sum(job.numbers for job in jobs) < _LITTLE
    short = max((job.samples for job in jobs), default=0) <= BATCH_SAMPLES
    if workers is None and (little or (short and not can_fork())):
        workers = 1
    side_by_side = on_all_cores if workers == 1 or can_fork() else _in_threads
    with side_by_side(_numbers_of_task, tasks, workers) as answers:
        answers.reverse()  # an answer that was taken is not held any longer
        return [
            job.finish(np.concatenate([answers.pop()() for _ in job.parts()], axis=2))
            for job in jobs
        ]


@contextmanager
def _in_threads(
    work: Callable[[Any], Floats], parts: Sequence[Any], threads: int | None
) -> Iterator[list[Callable[[], Floats]]]:
    with ThreadPoolExecutor(threads or min(usable_cores(), _MAX_THREADS)) as pool:
        yield [pool.submit(work, part).result for part in parts]


def _numbers_of_task(task: tuple[Job[Any], range]) -> Floats:
    job, part = task
    return job.numbers_of(part)


def _cut(draws: range, size: int) -> list[range]:
    """The draws in a row of pieces of this size, at least 1."""
    return [draws[i : i + max(1, size)] for i in range(0, len(draws), max(1, size))]


def drawing(
    id_matrix: Floats,
    blocks: Sequence[Floats],
    *,
    resampling: Resampling,
    aupr_method: AuprMethod,
    metrics: Sequence[Metric],
    copies: PhotographGroups | None,
    wanted: Sequence[int],
) -> Job[MetricValues]:
    """Draws of metrics for D detectors on G OOD groups: ``[D, G, B]`` by the name of each metric.

    Each draw resamples ``n`` ID samples and, group by group, ``m_g`` OOD samples with replacement.
    FPR95 takes its threshold at rank ``0.95 n + 1/2``, between two order statistics, because the
    step rule of the point estimate is off by up to one rank and its intervals miss.

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

    def finish(values: Floats) -> MetricValues:  # [D, metric, B, G]
        return {metric.name: values[:, i].swapaxes(1, 2) for i, metric in enumerate(metrics)}

    detectors = id_matrix.shape[1]
    kept = np.asarray(wanted, dtype=np.int64)
    if not kept.size:
        nothing = (detectors, len(metrics))
        return Job(
            lambda part: np.empty((*nothing, len(part), 0)), resampling.draws, 1, detectors, finish
        )
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

    def draw(numbers: range) -> Floats:
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

    return Job(draw, resampling.draws, len(id_matrix) + len(ood_matrix), detectors, finish)


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
