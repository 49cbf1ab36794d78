"""Exact 10th nearest neighbours in two halves.

Run by hand: ``python -m tests.benchmarks.knn_shift``, then with ``--full``.

``compare``: 4,000 queries x 200,000 rows x 256, beside faiss's exact inner product index where
faiss is installed, in turns. The OpenBLAS inside faiss's wheels does not know every processor and
is then several times slower: OPENBLAS_CORETYPE is set to SkylakeX where the processor has AVX-512
and nothing else is said.

``full``: 100,000 x 1,000,000 x (256 + 256) by a ShiftMeter that holds one half at a time. The ID
features lie in a mapped file, whose pages the system may drop; all other memory (Linux: RssAnon)
must stay within 3 GiB. ``--queries`` searches fewer of them, with all in memory, and extrapolates.

Features are noise around 2,000 centres, in random order, so that neighbours are as close as those
of images; ``--spread`` is the length of the noise (of a centre: 1).
"""

from __future__ import annotations

import argparse
import importlib.util
import os
import tempfile
import threading
import time
from collections.abc import Callable
from pathlib import Path
from typing import NamedTuple

import torch
import torch.nn.functional as F
from torch import Tensor

from ood_lab.neighbours import NeighbourSearch
from ood_lab.schema.image_columns import AXES
from ood_lab.shift import Decomposition, ShiftMeter

WIDTH, K = 256, 10


def features(rows: int, spread: float, seed: int) -> Tensor:
    """Unit rows, made in place in chunks: nothing larger than the result."""
    generator = torch.Generator().manual_seed(0)
    centres = F.normalize(torch.randn(2000, WIDTH, generator=generator))
    generator.manual_seed(seed)
    out = torch.empty(rows, WIDTH)
    for part in out.split(65_536):
        part.normal_(generator=generator).mul_(spread / WIDTH**0.5)
        part += centres[torch.randint(len(centres), (len(part),), generator=generator)]
        part /= torch.linalg.vector_norm(part, dim=1, keepdim=True)
    return out


class Timed(NamedTuple):
    """Wall seconds, processor seconds of all threads (fairer on a busy machine), the result."""

    wall: float
    cpu: float
    result: Tensor

    def __str__(self) -> str:
        return f"{self.wall:7.2f} s wall, {self.cpu:7.2f} s processor"

    def ratio(self, other: Timed) -> str:
        return f"{other.wall / self.wall:.2f} wall, {other.cpu / self.cpu:.2f} processor"


def timed(run: Callable[[], Tensor]) -> Timed:
    wall, cpu = time.perf_counter(), time.process_time()
    result = run()
    return Timed(time.perf_counter() - wall, time.process_time() - cpu, result)


def compare(queries: int, rows: int, spread: float, repeats: int, device: str) -> None:
    bank, some = features(rows, spread, 1), features(queries, spread, 2)
    print(f"{queries:,} x {rows:,} x {WIDTH}, k={K}, {device}, {torch.get_num_threads()} threads")
    ways = {"this package": lambda: NeighbourSearch(bank, K, device=device).product(some)}
    if importlib.util.find_spec("faiss"):
        ways["faiss IndexFlatIP"] = lambda: with_faiss(bank, some)
    best: dict[str, Timed] = {}
    for _ in range(repeats):
        for name, way in ways.items():
            best[name] = min(
                best.get(name, Timed(9e9, 9e9, some)), timed(way), key=lambda t: t.wall
            )
    ours = best.pop("this package")
    print(f"  10th neighbour at {float(1 - ours.result.median()):.2f}; best of {repeats}:")
    print(f"  this package       {ours}")
    for name, other in best.items():
        apart = float((ours.result - other.result).abs().max())
        print(f"  {name:<18} {other}: ratio {ours.ratio(other)}; largest difference {apart:.1e}")


def with_faiss(bank: Tensor, queries: Tensor) -> Tensor:
    if "avx512f" in Path("/proc/cpuinfo").read_text():
        os.environ.setdefault("OPENBLAS_CORETYPE", "SkylakeX")
    import faiss

    faiss.omp_set_num_threads(torch.get_num_threads())
    index = faiss.IndexFlatIP(WIDTH)
    index.add(bank.numpy())
    return torch.from_numpy(index.search(queries.numpy(), K)[0][:, -1])


def full(queries: int, rows: int, searched: int, spread: float, device: str) -> None:
    W = torch.eye(2 * WIDTH)
    split = Decomposition("identity", W, WIDTH, {}, k=K)
    some = torch.cat([features(queries, spread, seed) for seed in (1, 3)], dim=1)
    with tempfile.NamedTemporaryFile() as file, PeakMemory() as peak:
        size = rows * 2 * WIDTH
        bank = torch.from_file(file.name, shared=True, size=size).view(rows, -1)
        for half, seed in enumerate((0, 2)):
            bank[:, half * WIDTH : (half + 1) * WIDTH] = features(rows, spread, seed)
        peak.gib = 0.0  # what made the features is not measured

        def both() -> None:  # one half of the bank at a time, as task=distances
            for axis in AXES:
                ShiftMeter(split, bank, device=device).on_axis(axis, some[:searched])

        total = timed(both).wall
    rate = 2 * searched * rows * 2 * WIDTH / total / 1e9
    print(f"{queries:,} x {rows:,} x (256 + 256): {searched:,} queries in {total:.1f} s")
    print(f"  all of them: {total * queries / searched:.0f} s at {rate:.0f} GFLOP/s")
    print(f"  peak of the process beside the mapped ID features {peak.gib:.2f} GiB (limit 3 GiB)")
    assert peak.gib <= 3, "more memory than promised"


class PeakMemory:
    """Largest anonymous memory of this process, looked at every 20 ms; ``gib`` can be reset."""

    gib = 0.0

    def __enter__(self) -> PeakMemory:
        self._stop = threading.Event()
        self._thread = threading.Thread(target=self._watch)
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._stop.set()
        self._thread.join()

    def _watch(self) -> None:
        while not self._stop.wait(0.02):
            status = Path("/proc/self/status").read_text()
            kib = int(status.partition("RssAnon:")[2].split()[0])
            self.gib = max(self.gib, kib / 1024**2)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--full", action="store_true", help="the full size, after the comparison")
    parser.add_argument("--queries", type=int, default=100_000, help="searched at the full size")
    parser.add_argument("--repeats", type=int, default=3, help="of the comparison")
    parser.add_argument("--spread", type=float, default=0.6)
    parser.add_argument("--device", default="cpu", choices=("cpu", "cuda"))
    options = parser.parse_args()
    if options.full:
        full(100_000, 1_000_000, options.queries, options.spread, options.device)
    else:
        compare(4000, 200_000, options.spread, options.repeats, options.device)


if __name__ == "__main__":
    main()
