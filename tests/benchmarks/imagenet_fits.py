"""Fits all detectors of :mod:`tests.benchmarks.imagenet_bank` in one process, as a run does.

``--together`` of that module. With ``--before REV`` the package of an older commit does the same
work in a process of its own, each step right after that of the present one, so that both meet the
same machine. Seconds are of the processor. The unit is one plain pass for a second moment,
measured by both sides; the smaller counts. Moments are gathered in steps of their own: an
extraction gathers them as it goes.
"""

from __future__ import annotations

import argparse
import json
import os
import shutil
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from functools import partial
from pathlib import Path

import torch

from tests.benchmarks.imagenet_bank import GIB, ROWS, SIZES, WIDTH, Peak, bank, detectors, private

ROOT = Path(__file__).resolve().parents[2]
UNIT, GATHERING, EIGEN = "a plain second moment", "gathering the moments", "eigenvectors, once"

Found = dict[str, float]


def serve(options: argparse.Namespace) -> None:
    """Does the step that a line of the standard input names, and answers with a line of JSON."""
    train = bank(options.folder, "train", round(options.scale * SIZES["train"]))
    chosen = detectors(options.knn_bank)

    def plain() -> None:
        scatter = torch.zeros(WIDTH, WIDTH, dtype=torch.float64)
        for x in train.features.split(ROWS // 2):
            centered = x.double() - 0.5
            scatter.addmm_(centered.T, centered)

    def gather() -> None:
        if hasattr(train, "derived"):
            for part in ("means", "within", "gram"):
                train.derived.moments({part})

    def eigen() -> None:
        x = train.features[: 2 * WIDTH].double()
        torch.linalg.eigh(x.T @ x)

    steps: dict[str, Callable[[], object]] = {UNIT: plain, GATHERING: gather, EIGEN: eigen}
    steps |= {name: partial(detector.fit, train) for name, detector in chosen.items()}
    for line in sys.stdin:
        before, peak = private(), Peak()
        peak.start()
        start = time.process_time()
        steps[line.strip()]()
        seconds = time.process_time() - start
        print(json.dumps({"seconds": seconds, "above": peak.stop() - before}), flush=True)


@contextmanager
def older(revision: str) -> Iterator[Path]:
    """A work tree of an older commit, with the benchmarks of the present one."""
    with tempfile.TemporaryDirectory() as folder:
        tree = Path(folder) / "tree"
        git = ["git", "-C", str(ROOT), "worktree"]
        subprocess.run([*git, "add", "--quiet", "--detach", str(tree), revision], check=True)
        try:
            shutil.rmtree(tree / "tests")
            (tree / "tests").symlink_to(ROOT / "tests")
            yield tree
        finally:
            subprocess.run([*git, "remove", "--force", str(tree)], check=True)


class Side:
    """The package of a tree, at work in a process of its own."""

    def __init__(self, tree: Path, folder: Path, arguments: list[str]) -> None:
        command = [sys.executable, "-m", "tests.benchmarks.imagenet_bank", *arguments]
        command += ["--folder", str(folder.resolve()), "--serve"]
        environment = os.environ | {"PYTHONPATH": str(tree)}
        pipe = subprocess.PIPE
        self.process = subprocess.Popen(
            command, stdin=pipe, stdout=pipe, text=True, cwd=tree, env=environment
        )

    def step(self, name: str) -> Found:
        assert self.process.stdin
        assert self.process.stdout
        print(name, file=self.process.stdin, flush=True)
        found: Found = json.loads(self.process.stdout.readline())
        return found

    def close(self) -> None:
        self.process.communicate()


def together(options: argparse.Namespace, arguments: list[str]) -> None:
    """Prints seconds and memory of every step of all sides, and the sums in units."""
    with ExitStack() as stack:
        trees = {"now": ROOT}
        if options.before:
            trees = {"before": stack.enter_context(older(options.before))} | trees
        sides = {name: Side(tree, options.folder, arguments) for name, tree in trees.items()}
        for side in sides.values():
            stack.callback(side.close)
        fitted = [name for name, d in detectors(options.knn_bank).items() if d.fit_split]
        header = [f"{what} {name}" for what in ("seconds", "GiB") for name in sides]
        print(f"{'':<24}" + "".join(f"{text:>17}" for text in header), flush=True)
        found: dict[str, dict[str, Found]] = {}
        for name in [UNIT, GATHERING, EIGEN, *fitted]:
            found[name] = {of: side.step(name) for of, side in sides.items()}
            cells = [f"{each['seconds']:.1f}" for each in found[name].values()]
            cells += [f"{each['above'] / GIB:.2f}" for each in found[name].values()]
            print(f"{name:<24}" + "".join(f"{cell:>17}" for cell in cells), flush=True)
    unit = min(each["seconds"] for each in found[UNIT].values())
    for of in sides:
        fits = sum(found[name][of]["seconds"] for name in fitted)
        gathering = found[GATHERING][of]["seconds"]
        print(
            f"{of}: fits {fits:.1f} s = {fits / unit:.2f} of the plain second moment, gathering "
            f"{gathering / unit:.2f}; load {os.getloadavg()[1]:.1f}"
        )
