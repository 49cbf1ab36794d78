"""The KNN detector: 50,000 queries x a bank of 200,000 x 2,048, k = 50 and 1,000. Run by hand:

    python -m tests.benchmarks.knn_detector [--queries 2000] [--bank 50000] [--k 50 1000]

Compares ``KNN.score``, preparation included, with the float32 search that it had before (blocks
of 1,024 x 4,096 products, merged by NumPy's partition on one thread), by turns in one process, and
prints the largest differences of scores. A busy machine moves both; take the ratio.

Features are made as those of a network's last layer are: 64 latent dimensions, noise around 1,000
class centres in them, a linear map to the width and a ReLU. Isotropic noise in 2,048 dimensions,
in which all distances are equal, would leave nothing to search.

Limits, from 2,000 queries on: at least 1.5 times as fast where half precision is kept (bfloat16
products are at least twice as fast as float32 ones, and k is small beside the bank: 1,000 of
200,000 is, of 50,000 is not), and nowhere slower than 0.9 of it, which allows for noise and for
the look at the bank that decides.
"""

from __future__ import annotations

import argparse
import time
from collections.abc import Callable

import torch
from torch import Tensor
from torch.nn.functional import normalize

from ood_lab.detectors import KNN
from ood_lab.features.bank import FeatureBank
from ood_lab.neighbours.multiplication_speed import bfloat16_gain, fastest_dtype

LATENT, CLASSES = 64, 1000


def features(rows: int, width: int, seed: int) -> Tensor:
    """Rows like those of a network's last layer, ``[rows, width] float32``, made in chunks."""
    generator = torch.Generator().manual_seed(0)
    centres = torch.randn(CLASSES, LATENT, generator=generator)
    layer = torch.randn(LATENT, width, generator=generator) / LATENT**0.5
    generator.manual_seed(seed)
    out = torch.empty(rows, width)
    for part in out.split(8192):
        label = torch.randint(CLASSES, (len(part),), generator=generator)
        latent = centres[label] + torch.randn(len(part), LATENT, generator=generator)
        torch.mm(latent, layer, out=part)
        part.sub_(0.5).relu_()
    return out


def bank_of(rows: Tensor) -> FeatureBank:
    n, width = rows.shape
    unknown = torch.zeros(n).long()
    head = (torch.zeros(10, width), torch.zeros(10))
    return FeatureBank(rows, torch.zeros(n, 10), unknown, torch.arange(n), *head)


def float32_search(detector: KNN, queries: Tensor) -> Tensor:
    """The scores as the detector computed them before, for comparison."""
    bank, inverse, half, k = (
        detector.fitted[name] for name in ("bank", "inverse_norm", "half_square", "k")
    )
    return torch.cat([_distance(part, bank, inverse, half, int(k)) for part in queries.split(1024)])


def _distance(queries: Tensor, bank: Tensor, inverse: Tensor, half: Tensor, k: int) -> Tensor:
    queries = normalize(queries, dim=1, eps=1e-12)
    best = queries.new_full((len(queries), k), -torch.inf)
    for block, scale, less in zip(*(t.split(4096) for t in (bank, inverse, half)), strict=True):
        near = torch.cat([best, torch.addmm(-less, queries, (block * scale[:, None]).T)], dim=1)
        near.numpy().partition(near.shape[1] - k, axis=1)
        best = near[:, -k:].clone()
    square = queries.double().square().sum(dim=1) - 2 * best.amin(dim=1).double()
    return square.clamp(min=0).sqrt()


def timed(run: Callable[[], Tensor]) -> tuple[float, float, Tensor]:
    """Wall seconds, processor seconds and the result."""
    wall, cpu = time.perf_counter(), time.process_time()
    result = run()
    return time.perf_counter() - wall, time.process_time() - cpu, result


def compare(train: FeatureBank, some: FeatureBank, k: int, repeats: int) -> tuple[float, bool]:
    """How many times faster the detector is, and whether half precision was kept.

    Of wall and processor time the better ratio, each of the best repeats.
    """
    ours, before = [], []
    for _ in range(repeats):
        detector = KNN(k=k).fit(train)
        ours.append(timed(lambda d=detector: d.score(some)))
        before.append(timed(lambda d=detector: float32_search(d, some.features)))
    score, reference = ours[0][2], before[0][2]
    apart = (score - reference).abs()
    wall, cpu = (min(b[i] for b in before) / min(o[i] for o in ours) for i in (0, 1))
    print(
        f"k={k:,}: score {min(o[0] for o in ours):.1f} s, before {min(b[0] for b in before):.1f} s"
    )
    print(f"  ratio {wall:.2f} wall, {cpu:.2f} processor; half precision kept: ", end="")
    halved = detector._search().halved
    print(halved)
    print(
        f"  median score {float(score.median()):.3f}; largest difference {float(apart.max()):.1e}"
    )
    print(f"  largest relative difference {float((apart / reference).max()):.1e}")
    return max(wall, cpu), halved


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    for option, value in (("queries", 50_000), ("bank", 200_000), ("width", 2048), ("repeats", 1)):
        parser.add_argument(f"--{option}", type=int, default=value)
    parser.add_argument("--k", type=int, nargs="+", default=[50, 1000])
    options = parser.parse_args()
    train = bank_of(features(options.bank, options.width, 1))
    some = bank_of(features(options.queries, options.width, 2))
    gain, dtype = bfloat16_gain(), fastest_dtype(train.features.device)
    print(f"{options.queries:,} x {options.bank:,} x {options.width:,}, ", end="")
    print(f"{torch.get_num_threads()} threads; bfloat16 {gain:.1f} x float32: {dtype} first")
    found = {k: compare(train, some, k, options.repeats) for k in options.k}
    if options.queries >= 2000:
        for k, (ratio, halved) in found.items():
            least = 1.5 if halved else 0.9
            assert ratio >= least, f"k={k}: expected {least} times as fast, got {ratio:.2f}"


if __name__ == "__main__":
    main()
