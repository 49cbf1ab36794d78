"""Every default detector of the bank at ImageNet's size, one process each. Run by hand::

    python -m tests.benchmarks.imagenet_bank --scale 0.1 --folder DIR [--limit-gib 8]
    python -m tests.benchmarks.imagenet_bank --folder DIR --detectors knn,vim --device cuda
    python -m tests.benchmarks.imagenet_bank --folder DIR --together [--before REV]

A synthetic bank (1,281,167 x 2,048 features, 1,000 classes; 50,000 ID and 50,000 OOD queries) is
written to DIR as plain float32 files, 16 GB at scale 1, and mapped by every process, read-only.
``--scale`` takes a share of all three. A bank that is already there is used again; ``--delete``
removes it at the end. Every detector is fitted on the large set, those that by default take the
smaller val split too.

Seconds are of fit and of score (both sets of queries). ``above the bank`` is the largest private
memory of the process (RssAnon, read every 10 ms) less what it had before the fit: pages of the
mapped bank do not count, since the system drops them when memory runs short. ``--limit-gib`` makes
more impossible: it sets RLIMIT_DATA, which counts private memory and not the mapped files (under
RLIMIT_AS, 16 GB of address space for the bank would already be too much). Limit: 4 GiB above the
mapped bank on a CPU. On a GPU, its own peak is printed as well.

``--together``: all fits in one process, and beside it those of an older commit, see
:mod:`tests.benchmarks.imagenet_fits`.
"""

from __future__ import annotations

import argparse
import json
import logging
import resource
import shutil
import subprocess
import sys
import threading
import time
import warnings
from pathlib import Path

import numpy as np
import torch
from torch import Tensor

from ood_lab.api.detector_settings import chosen_detectors
from ood_lab.common.files import require_space
from ood_lab.detectors import Detector, checked_score
from ood_lab.detectors.support.compute_device import compute_device, computing_on
from ood_lab.features.bank import FeatureBank

GIB = 2**30
SIZES = {"train": 1_281_167, "test": 50_000, "ood": 50_000}
WIDTH, CLASSES = 2048, 1000
#: What is made at a time.
ROWS = 8192
#: Private memory above the mapped bank.
LIMIT = 4 * GIB


def head() -> tuple[Tensor, Tensor]:
    """Weight ``[C, D]`` and bias ``[C]`` of the bank's last layer."""
    generator = torch.Generator().manual_seed(0)
    weight = torch.randn(CLASSES, WIDTH, generator=generator) / WIDTH**0.5
    return weight, 0.1 * torch.randn(CLASSES, generator=generator)


def labels_of(name: str, n: int) -> Tensor:
    """Every class in turn, a seventh of them the next one by mistake; -1 for OOD."""
    labels = torch.arange(n) % CLASSES
    labels[::7] = (labels[::7] + 1) % CLASSES
    return torch.full((n,), -1) if name == "ood" else labels


def write(folder: Path, name: str, n: int) -> None:
    """Features around the weights of the class under ReLU, and their logits."""
    weight, bias = head()
    generator = torch.Generator().manual_seed(len(name))
    means = weight * WIDTH**0.5 * (0.4 if name != "ood" else 0.1)
    classes = (torch.arange(n) % CLASSES).split(ROWS)
    paths = (folder / f"{name}-features", folder / f"{name}-logits")
    with paths[0].open("wb") as features, paths[1].open("wb") as logits:
        for rows in classes:
            x = torch.randn(len(rows), WIDTH, generator=generator).add_(means[rows]).relu_()
            features.write(x.numpy().tobytes())
            logits.write((x @ weight.T + bias).numpy().tobytes())


def mapped(path: Path, n: int, width: int) -> Tensor:
    """The rows of a file, which nobody may write to."""
    with warnings.catch_warnings():
        warnings.filterwarnings("ignore", "The given NumPy array is not writ", UserWarning)
        return torch.from_numpy(np.memmap(path, np.float32, "r", shape=(n, width)))


def bank(folder: Path, name: str, n: int) -> FeatureBank:
    """A set as detectors see it."""
    features = mapped(folder / f"{name}-features", n, WIDTH)
    logits = mapped(folder / f"{name}-logits", n, CLASSES)
    return FeatureBank(features, logits, labels_of(name, n), torch.arange(n), *head())


def private() -> int:
    """Bytes of this process that are no file."""
    lines = Path("/proc/self/status").read_text().splitlines()
    return next(int(line.split()[1]) * 1024 for line in lines if line.startswith("RssAnon"))


class Peak(threading.Thread):
    """The largest :func:`private` while it runs."""

    def __init__(self) -> None:
        super().__init__(daemon=True)
        self.bytes, self._done = private(), threading.Event()

    def run(self) -> None:
        while not self._done.wait(0.01):
            self.bytes = max(self.bytes, private())

    def stop(self) -> int:
        """Ends the thread; the peak."""
        self._done.set()
        self.join()
        return max(self.bytes, private())


def detectors(knn_bank: int | None) -> dict[str, Detector]:
    """The default detectors that need no network."""
    chosen = chosen_detectors("default", "openood")
    chosen["knn"].max_bank = knn_bank
    return {name: detector for name, detector in chosen.items() if detector.extraction_hook is None}


def measure(name: str, options: argparse.Namespace) -> dict[str, float]:
    """Fits and scores one detector in this process."""
    if options.limit_gib:
        limit = int(options.limit_gib * GIB)
        resource.setrlimit(resource.RLIMIT_DATA, (limit, limit))
    sizes = {part: round(options.scale * n) for part, n in SIZES.items()}
    banks = {part: bank(options.folder, part, n) for part, n in sizes.items()}
    detector = detectors(options.knn_bank)[name]
    before, peak = private(), Peak()
    peak.start()
    with computing_on(options.device):
        start = time.perf_counter()
        if detector.fit_split:
            detector.fit(banks["train"])
        fitted = time.perf_counter()
        for part in ("test", "ood"):
            checked_score(detector, banks[part])
        scored = time.perf_counter()
        gpu = compute_device().type == "cuda"
    found = {"fit": fitted - start, "score": scored - fitted, "above": peak.stop() - before}
    return found | ({"gpu": torch.cuda.max_memory_allocated()} if gpu else {})


def apart(name: str, arguments: list[str]) -> dict[str, float] | str:
    """:func:`measure` in a process of its own, or the last line of what went wrong."""
    command = [sys.executable, "-m", "tests.benchmarks.imagenet_bank", *arguments, "--only", name]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    if done.returncode:
        return (done.stderr.strip().splitlines() or [f"exit status {done.returncode}"])[-1]
    found: dict[str, float] = json.loads(done.stdout.splitlines()[-1])
    return found


def prepare(folder: Path, scale: float) -> None:
    """Writes what is not there in full."""
    sizes = {part: round(scale * n) for part, n in SIZES.items()}
    folder.mkdir(parents=True, exist_ok=True)
    for name, n in sizes.items():
        file, needed = folder / f"{name}-features", 4 * n * WIDTH
        if not file.exists() or file.stat().st_size != needed:
            require_space(folder, 4 * n * (WIDTH + CLASSES), f"the set '{name}'")
            write(folder, name, n)


def options_of(arguments: list[str]) -> argparse.Namespace:
    parser = argparse.ArgumentParser()
    parser.add_argument("--folder", type=Path, required=True)
    parser.add_argument("--scale", type=float, default=1.0)
    parser.add_argument("--detectors", help="names, with commas; by default all")
    parser.add_argument("--knn-bank", type=int, default=50_000, help="0: the whole bank")
    parser.add_argument("--device", default="cpu", choices=("cpu", "cuda"))
    parser.add_argument("--limit-gib", type=float, help="private memory of a process")
    parser.add_argument("--together", action="store_true", help="fits in one process, no scores")
    parser.add_argument("--before", metavar="REV", help="with --together: an older commit, too")
    parser.add_argument("--delete", action="store_true", help="removes the bank at the end")
    parser.add_argument("--only", help=argparse.SUPPRESS)
    parser.add_argument("--serve", action="store_true", help=argparse.SUPPRESS)
    found = parser.parse_args(arguments)
    found.knn_bank = found.knn_bank or None
    return found


def separately(options: argparse.Namespace, arguments: list[str]) -> None:
    """Prints seconds and memory of every detector, each in a process of its own."""
    too_much = []
    known = detectors(options.knn_bank)
    print(f"{'detector':<14}{'fit s':>9}{'score s':>9}{'above the bank, GiB':>21}", flush=True)
    for name in options.detectors.split(",") if options.detectors else known:
        found = apart(name, arguments)
        if isinstance(found, str):
            print(f"{name:<14}  {found}", flush=True)
            too_much.append(name)
            continue
        gpu = f"{found['gpu'] / GIB:10.2f} on the GPU" if "gpu" in found else ""
        line = f"{name:<14}{found['fit']:>9.1f}{found['score']:>9.1f}{found['above'] / GIB:>21.2f}"
        print(line + gpu, flush=True)
        too_much += [name] if found["above"] > LIMIT else []
    assert not too_much, f"failed, or above the limit of {LIMIT / GIB:g} GiB: {too_much}"


def main(arguments: list[str]) -> None:
    options = options_of(arguments)
    logging.disable(logging.WARNING)
    if options.only:
        print(json.dumps(measure(options.only, options)))
        return
    # That module takes this one's banks.
    from tests.benchmarks.imagenet_fits import serve, together

    if options.serve:
        serve(options)
        return
    prepare(options.folder, options.scale)
    (together if options.together else separately)(options, arguments)
    if options.delete:
        shutil.rmtree(options.folder)


if __name__ == "__main__":
    main(sys.argv[1:])
