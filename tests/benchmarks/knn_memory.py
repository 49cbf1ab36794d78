"""Peak memory of KNN with a 200,000 x 2,048 bank and 50,000 queries. Run by hand:

    python -m tests.benchmarks.knn_memory [--scored 8192]

Limit: the bank's own size plus 1 GiB, over what the process held before any data was made. All
queries exist; ``--scored`` of them are scored (all by default). The peak does not depend on how
many, as they go through in chunks of 8,192, so that as many measure it.

Features are made as those of a network's last layer are: 64 latent dimensions, noise around 1,000
class centres in them, a linear map to the width and a ReLU.
"""

import argparse
import resource
import time
from dataclasses import replace
from pathlib import Path

import torch
from torch import Tensor

from ood_lab.detectors import KNN
from ood_lab.features.bank import FeatureBank

GIB = 2**30
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


def resident() -> int:
    """Bytes of this process in memory now."""
    pages = int(Path("/proc/self/statm").read_text().split()[1])
    return pages * resource.getpagesize()


def peak() -> int:
    """Largest value of ``resident`` so far (Linux: KiB)."""
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024


def main() -> None:
    parser = argparse.ArgumentParser()
    for option, value in (("bank", 200_000), ("queries", 50_000), ("width", 2048), ("k", 50)):
        parser.add_argument(f"--{option}", type=int, default=value)
    parser.add_argument("--scored", type=int, default=None)
    options = parser.parse_args()

    before = resident()
    bank = bank_of(features(options.bank, options.width, 1))
    queries = bank_of(features(options.queries, options.width, 2))
    # A view, so that all queries stay in memory.
    some = replace(queries, features=queries.features[: options.scored])
    size = bank.features.numel() * 4
    held = resident()

    start = time.perf_counter()
    detector = KNN(k=options.k).fit(bank)
    fitted = time.perf_counter()
    scores = detector.score(some)
    scored = time.perf_counter()

    over = peak() - before - size
    print(f"bank                       {size / GIB:6.3f} GiB")
    print(f"peak - bank, with queries  {over / GIB:6.3f} GiB (limit 1 GiB)")
    print(f"fit and score alone        {(peak() - held) / GIB:6.3f} GiB")
    print(f"process before any data    {before / GIB:6.3f} GiB")
    print(f"fit {fitted - start:.1f} s, score {scored - fitted:.1f} s for {len(scores):,} queries")
    assert over < GIB, "KNN needs more than its bank and 1 GiB"


if __name__ == "__main__":
    main()
