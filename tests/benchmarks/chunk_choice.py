"""How good the chosen number of images at a time is while other work keeps the machine busy::

    python -m tests.benchmarks.chunk_choice --network resnet18 [--runs 10] [--busy 2]

Every run makes its choice as an extraction does, from the same start; only the wait until a trial
is cheap beside the pass is left out (``SEARCH_SHARE``), which decides when to try and not what is
taken. A second row of runs begins with the worst choice on record and hands its own on, as runs of
the same network on the same machine do.

What a choice is worth is then measured apart, all sizes and both formats by turns: processor
seconds an image, the smallest of several rounds. ``--busy`` adds so many processes that compute
without end; what else ran is told by the load.
"""

from __future__ import annotations

import argparse
import multiprocessing
import os
import tempfile
import time
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path

import torch

from ood_lab.features import chunk_choice
from ood_lab.features.chunk_choice import ChunkSearch
from ood_lab.features.chunk_files import Chunk, ChunkFile
from ood_lab.features.lightning_extractor import Extractor, frozen
from ood_lab.models.backbone import Backbone
from tests.benchmarks.shared_pass import network

LARGEST, SIDE, ROUNDS, NEAR = 64, 224, 5, 1.3


def _compute() -> None:
    os.nice(5)
    a = torch.randn(1024, 1024)
    while True:
        a @ a


@contextmanager
def busy(processes: int) -> Iterator[None]:
    """So many processes that compute without end."""
    started = [
        multiprocessing.get_context("spawn").Process(target=_compute, daemon=True)
        for _ in range(processes)
    ]
    for process in started:
        process.start()
    try:
        yield
    finally:
        for process in started:
            process.kill()


def choice(backbone: Backbone, image: torch.Tensor, file: ChunkFile | None = None) -> Chunk:
    """What the search of one run ends with."""
    first = Chunk(8, chunk_choice.is_convolutional(backbone)), 0
    start, confirmed = (file and file.read()) or first
    search = ChunkSearch(start, LARGEST, confirmed, file)
    extractor = Extractor(backbone, batch_size=LARGEST)
    extractor._search = search
    rows = torch.arange(len(image))
    with frozen(backbone):
        while not search.settled:
            extractor.predict_step({"image": image, "index": rows, "label": rows}, 0)
        extractor.close()
    search.keep()
    return search.best


def seconds(backbone: Backbone, image: torch.Tensor) -> dict[Chunk, float]:
    """Processor seconds an image of every choice."""
    sizes = [2**power for power in range(LARGEST.bit_length())]
    best: dict[Chunk, float] = {}
    with frozen(backbone), torch.inference_mode():
        for _ in range(ROUNDS):
            for chunk in (Chunk(size, last) for last in (True, False) for size in sizes):
                backbone.to(memory_format=chunk.memory_format)
                part = image[: chunk.size].contiguous(memory_format=chunk.memory_format)
                for _ in range(2):  # the first prepares kernels and memory
                    start = time.process_time()
                    for _ in range(max(1, 8 // chunk.size)):
                        backbone(part)
                    spent = time.process_time() - start
                each = spent / (chunk.size * max(1, 8 // chunk.size))
                best[chunk] = min(best.get(chunk, each), each)
    return best


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--network", default="resnet18")
    parser.add_argument("--runs", type=int, default=10)
    parser.add_argument("--busy", type=int, default=0)
    options = parser.parse_args()
    torch.set_num_threads(1)
    chunk_choice.SEARCH_SHARE = 1e9
    backbone = network(options.network, None, SIDE)
    image = torch.randn(LARGEST, 3, SIDE, SIDE)
    with ExitStack() as stack:
        folder = Path(stack.enter_context(tempfile.TemporaryDirectory()))
        stack.enter_context(busy(options.busy))
        cost = seconds(backbone, image)
        best, worst = min(cost, key=cost.__getitem__), max(cost, key=cost.__getitem__)
        print("ms an image:", {_text(chunk): round(1000 * s, 1) for chunk, s in cost.items()})
        print(
            f"best {_text(best)}, worst {_text(worst)}, load {os.getloadavg()[0]:.1f}", flush=True
        )
        file = ChunkFile(folder, {})
        file.write(worst, chunk_choice.CONFIRMED)
        for name, kept in (("from the usual start", None), ("from the last run", file)):
            ratios = []
            for _ in range(options.runs):
                found = choice(backbone, image, kept)
                ratios.append(cost[found] / cost[best])
                print(f"  {name}: {_text(found)}, {ratios[-1]:.2f} of the best", flush=True)
            near = sum(ratio <= NEAR for ratio in ratios)
            load = os.getloadavg()[0]
            print(f"{name}: {near} of {len(ratios)} within {NEAR} of the best, load {load:.1f}")


def _text(chunk: Chunk) -> str:
    return f"{chunk.size}{' channels_last' if chunk.channels_last else ''}"


if __name__ == "__main__":
    main()
