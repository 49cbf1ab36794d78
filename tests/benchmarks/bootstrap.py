"""Time of the bootstrap; run by hand: ``python -m tests.benchmarks.bootstrap``.

First against the naive way on the same data (resample both arrays, call scikit-learn, per draw),
then the full size: 13 detectors x 64 shift cells x 1,000 draws on 50,000 ID samples. Processor
time counts all threads, so on shared cores read it and divide by the number of cores.
"""

from __future__ import annotations

import argparse
import time
from collections.abc import Callable
from typing import Any

import numpy as np
from sklearn import metrics as sk

from ood_lab.metrics.record import OF_SETS
from tests.metrics.resampling.drawn_metrics import bootstrap


def timed(run: Callable[[], Any]) -> tuple[float, float]:
    """Wall and processor seconds of one call."""
    wall, cpu = time.perf_counter(), time.process_time()
    run()
    return time.perf_counter() - wall, time.process_time() - cpu


def scores(n: int, cells: int, size: int, detectors: int) -> tuple[np.ndarray, list[np.ndarray]]:
    rng = np.random.default_rng(0)
    ood = [rng.normal(0.5 + g / cells, 1, (size, detectors)) for g in range(cells)]
    return rng.normal(size=(n, detectors)), ood


def naive(id_scores: np.ndarray, ood_scores: list[np.ndarray], draws: int) -> None:
    rng = np.random.default_rng(0)
    n, detectors = id_scores.shape
    for _ in range(draws):
        id_rows = rng.integers(0, n, n)
        for block in ood_scores:
            ood_rows = rng.integers(0, len(block), len(block))
            y = np.r_[np.zeros(n), np.ones(len(block))]
            for d in range(detectors):
                s = np.r_[id_scores[id_rows, d], block[ood_rows, d]]
                sk.roc_auc_score(y, s)
                for labels, score in ((y, s), (1 - y, -s)):
                    fpr, tpr, _ = sk.roc_curve(labels, score, drop_intermediate=False)
                    _ = fpr[np.argmax(tpr >= 0.95)]


def compare(n: int, cells: int, size: int, detectors: int, draws: int, naive_draws: int) -> None:
    data = scores(n, cells, size, detectors)
    _, ours = timed(lambda: bootstrap(*data, draws=draws, metrics=OF_SETS[:3]))
    _, theirs = timed(lambda: naive(*data, naive_draws))
    ratio = (theirs / naive_draws) / (ours / draws)
    print(
        f"{n} ID, {cells} x {size} OOD, {detectors} detectors: {1e3 * ours / draws:.2f} ms a draw, "
        f"naive {1e3 * theirs / naive_draws:.1f} ms a draw (processor time), {ratio:.0f} times"
    )


def full(size: int, draws: int) -> None:
    data = scores(50_000, 64, size, 13)
    wall, cpu = timed(lambda: bootstrap(*data, draws=draws, metrics=OF_SETS[:3]))
    print(
        f"13 detectors x 64 cells of {size} x {draws} draws, 50000 ID: "
        f"{wall:.1f} s wall, {cpu:.1f} s processor time"
    )


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--draws", type=int, default=1000)
    arguments = parser.parse_args()
    compare(1100, 36, 50, 15, draws=100, naive_draws=2)
    compare(50_000, 4, 500, 3, draws=20, naive_draws=1)
    full(500, arguments.draws)
    full(5000, arguments.draws)
