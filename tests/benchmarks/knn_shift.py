"""Exact 10th nearest neighbours in two halves.

Run by hand: ``python -m tests.benchmarks.knn_shift``, then with ``--full``.

``compare``: 4,000 queries x 200,000 rows x 256, beside faiss's exact inner product index where
faiss is installed, and float32 throughout. ``full``: 100,000 x 1,000,000 x (256 + 256), with the
peak of memory (Linux), which must stay within 3 GiB; ``--queries`` searches fewer of them, with all
in memory, and extrapolates. Then the projection to ImageNet-21K x ImageNet-1K on one H100.

Features are noise around 2,000 centres, in random order, so that neighbours are as close as those
of images; ``--spread`` is the length of the noise (of a centre: 1).
"""

from __future__ import annotations

import argparse
import importlib.util
import resource
import time
from collections.abc import Callable
from typing import NamedTuple

import torch
import torch.nn.functional as F
from torch import Tensor

from ood_lab.shift import NeighbourSearch
from ood_lab.shift.candidates import CandidateSearch
from ood_lab.shift.degree import bfloat16_gain, fastest_dtype

GIB = 1024**3
WIDTH, K = 256, 10
#: Dense float16 peak of one H100 SXM, and the share of it assumed: a product of inner dimension 256
#: writes and reads 4 bytes for 512 operations, which its 3.35 TB/s serve at 43% of the peak.
H100_FLOPS, H100_SHARE = 989e12, 0.3
SECONDS_A_QUERY_LOOKED_AGAIN = 1e-6


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


def compare(queries: int, rows: int, spread: float) -> None:
    bank, some = features(rows, spread, 1), features(queries, spread, 2)
    dtype = fastest_dtype(bank.device)
    ours = timed(lambda: NeighbourSearch(bank, K).distance(some))
    print(
        f"{queries:,} x {rows:,} x {WIDTH}, k={K}, spread {spread}, "
        f"{torch.get_num_threads()} threads, 10th neighbour at {float(ours.result.median()):.2f}"
    )
    print(f"  bfloat16 products {bfloat16_gain():.1f} x float32, first pass in {dtype}")
    certified = CandidateSearch(bank, K, dtype).nth_product(some[:1000], K)[1]
    print(f"  certified          {certified.float().mean():8.2%}")
    print(f"  this package       {ours}")
    plain = timed(lambda: NeighbourSearch(bank, K, dtype=torch.float32).distance(some))
    print(f"  float32 throughout {plain}: ratio {ours.ratio(plain)}")
    print(f"  largest difference {float((ours.result - plain.result).abs().max()):.1e}")
    if importlib.util.find_spec("faiss"):
        theirs = timed(lambda: with_faiss(bank, some))
        print(f"  faiss IndexFlatIP  {theirs}: ratio {ours.ratio(theirs)}")
        print(f"  largest difference {float((ours.result - theirs.result).abs().max()):.1e}")


def with_faiss(bank: Tensor, queries: Tensor) -> Tensor:
    import faiss

    faiss.omp_set_num_threads(torch.get_num_threads())
    index = faiss.IndexFlatIP(WIDTH)
    index.add(bank.numpy())
    return 1 - torch.from_numpy(index.search(queries.numpy(), K)[0][:, -1])


def full(queries: int, rows: int, searched: int, spread: float) -> None:
    total = 0.0
    # The searches of the two halves do not know of each other: one bank lives at a time.
    for half in range(2):
        bank, some = features(rows, spread, 2 * half), features(queries, spread, 2 * half + 1)
        total += timed(lambda b=bank, q=some: NeighbourSearch(b, K).distance(q[:searched])).wall  # type: ignore[misc]
        del bank, some
    whole = total * queries / searched
    # Linux counts in KiB.
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024
    rate = 2 * searched * rows * 2 * WIDTH / total / 1e9
    print(f"{queries:,} x {rows:,} x (256 + 256): {searched:,} queries in {total:.1f} s")
    print(f"  all of them: {whole:.0f} s at {rate:.0f} GFLOP/s")
    print(f"  peak of the process {peak / GIB:.2f} GiB (limit 3 GiB)")
    assert peak <= 3 * GIB, "more memory than promised"


def projection() -> None:
    """FLOPs of the first pass over an assumed rate, plus the second look at memory speed."""
    queries, rows = 11_582_723, 1_281_167
    operations = 2 * queries * rows * 2 * WIDTH
    seconds = operations / (H100_FLOPS * H100_SHARE) + 2 * queries * SECONDS_A_QUERY_LOOKED_AGAIN
    print(f"{queries:,} x {rows:,} x (256 + 256) on one H100, projected: {seconds:.0f} s")
    print(f"  {operations:.2e} operations at {H100_SHARE:.0%} of {H100_FLOPS / 1e12:.0f} TFLOP/s")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--full", action="store_true", help="the full size, after the comparison")
    parser.add_argument("--queries", type=int, default=100_000, help="searched at the full size")
    parser.add_argument("--spread", type=float, default=0.6)
    options = parser.parse_args()
    if options.full:
        full(100_000, 1_000_000, options.queries, options.spread)
    else:
        compare(4000, 200_000, options.spread)
    projection()


if __name__ == "__main__":
    main()
