"""Memory over time of a run over very many small images. Run by hand:

    python -m tests.benchmarks.scale predict --images 1000000 --folder DIR
    python -m tests.benchmarks.scale score --images 300000 --folder DIR
    python -m tests.benchmarks.scale start --images 10000000 --folder DIR
    python -m tests.benchmarks.scale shards --images 10000000 --folder DIR

The images are 1,000 PNGs of 32 pixels under as many names as are asked for (links to their folder).
``predict`` and ``score`` (``task.keep_features=false``) start ``eval.py`` with a tiny network of
random weights and look at the memory of all its processes each second: what is private, pages that
processes share being divided among them (PSS, anonymous). Printed and drawn (``DIR/TASK.png``): it
has to be flat but for the scores. ``start`` lists the paths alone, in this process, and ``shards``
the members of tar shards (links to one of 10,000 samples).
"""

from __future__ import annotations

import argparse
import io
import os
import resource
import subprocess
import sys
import tarfile
import time
from collections.abc import Sequence
from pathlib import Path

import numpy as np
import psutil
import torch
from PIL import Image
from torch import Tensor, nn

ROOT = Path(__file__).resolve().parents[2]
MIB = 2**20
POOL, SIZE, SHARD = 1000, 32, 10_000


class Tiny(nn.Module):
    """Random weights, the same every time."""

    def __init__(self, classes: int = 4) -> None:
        super().__init__()
        state = torch.get_rng_state()
        torch.manual_seed(0)
        self.conv = nn.Conv2d(3, 32, 4, stride=4)
        self.head = nn.Linear(32, classes)
        torch.set_rng_state(state)

    def forward(self, image: Tensor) -> Tensor:
        return self.head(self.conv(image).relu().mean((2, 3)))


def make_images(folder: Path, n: int) -> Path:
    """ID images, and a list of ``n`` others."""
    rng = np.random.default_rng(0)
    places = [folder / "id" / name / f"{i:03}.png" for name in "abcd" for i in range(150)]
    places += [folder / "pool" / f"{i:04}.png" for i in range(POOL)]
    for place in places:
        place.parent.mkdir(parents=True, exist_ok=True)
        if not place.exists():
            pixels = rng.integers(0, 255, (SIZE, SIZE, 3), np.uint8)
            Image.fromarray(pixels).save(place)
    links = folder / "links"
    links.mkdir(exist_ok=True)
    for number in range(-(-n // POOL)):
        if not (links / f"{number:05}").exists():
            (links / f"{number:05}").symlink_to(folder / "pool")
    file = folder / f"list_{n}.txt"
    with file.open("w") as lines:
        lines.writelines(f"{links}/{row // POOL:05}/{row % POOL:04}.png\n" for row in range(n))
    return file


def make_shards(folder: Path, n: int) -> Path:
    """A folder of links to one shard: image and label are all that a sample has."""
    folder.mkdir(parents=True, exist_ok=True)
    picture = io.BytesIO()
    Image.new("RGB", (1, 1)).save(picture, "png")
    with tarfile.open(folder / "shard", "w") as tar:
        for row in range(SHARD):
            for ending, content in (("png", picture.getvalue()), ("cls", b"7")):
                member = tarfile.TarInfo(f"{row:09}.{ending}")
                member.size = len(content)
                tar.addfile(member, io.BytesIO(content))
    links = folder / f"shards_{n}"
    links.mkdir(exist_ok=True)
    for number in range(n // SHARD):
        if not (links / f"{number:05}.tar").exists():
            (links / f"{number:05}.tar").symlink_to(folder / "shard")
    return links


def command(task: str, folder: Path, images: Path, workers: int) -> list[str]:
    """The line that is measured."""
    net = "model.net._target_=tests.benchmarks.scale.Tiny"
    line = [sys.executable, "eval.py", f"task={task}", "model=module", net, "model.head=head"]
    line += ["model.pretrained=true", f"model.backbone.input_size={SIZE}", "data=folder"]
    line += ["detector=[msp,ebo,mds,fdbd]", f"data.id.train={folder}/id", "logger=none"]
    line += [f"paths.outputs={folder}/outputs", f"data.num_workers={workers}", "force=true"]
    line += ["data.split=[0.6,0.2,0.2]", "trainer=cpu"]
    if task == "predict":
        return [*line, f"task.images={images}"]
    large = ["data.check=off", "data.identify=stat", "metrics.n_bootstrap=20", "task.report=false"]
    return [*line, f"data.ood.many={images}", "task.keep_features=false", *large]


def private_bytes(process: psutil.Process) -> int:
    """Anonymous memory of a process and its children, shared pages divided."""
    total = 0
    for each in [process, *process.children(recursive=True)]:
        try:
            rollup = Path(f"/proc/{each.pid}/smaps_rollup").read_text()
        except OSError:  # it has ended
            continue
        total += sum(
            1024 * int(line.split()[1]) for line in rollup.splitlines() if "Pss_Anon" in line
        )
    return total


def watched(line: Sequence[str], log: Path) -> tuple[list[float], list[float]]:
    """Seconds, about one apart, and MiB at each; what the command prints goes to ``log``."""
    environment = {**os.environ, "PYTHONPATH": str(ROOT), "OMP_NUM_THREADS": "1"}
    seconds, found, begun = [], [], time.perf_counter()
    with log.open("w") as output:
        run = subprocess.Popen(
            line, cwd=ROOT, env=environment, stdout=output, stderr=subprocess.STDOUT
        )
        process = psutil.Process(run.pid)
        while run.poll() is None:
            seconds.append(time.perf_counter() - begun)
            found.append(private_bytes(process) / MIB)
            time.sleep(max(0.0, 1 - (time.perf_counter() - begun - seconds[-1])))
    if run.returncode:
        sys.exit(log.read_text()[-2000:])
    return seconds, found


def draw(seconds: Sequence[float], found: Sequence[float], file: Path, title: str) -> None:
    """The curve as a picture."""
    from matplotlib.figure import Figure

    figure = Figure((7, 3), layout="constrained")
    axes = figure.add_subplot(title=title, xlabel="seconds", ylabel="private memory, MiB")
    axes.plot(seconds, found)
    axes.set_ylim(0)
    figure.savefig(file, dpi=120)


def start(images: Path) -> None:
    """Lists the paths, and computes the keys of all parts."""
    from ood_lab.evaluation.prediction.table_parts import PART
    from ood_lab.evaluation.prediction.unlabelled_images import list_images

    process = psutil.Process()
    before, begun = private_bytes(process), time.perf_counter()
    listing = list_images(str(images)).images
    listed = time.perf_counter()
    for first in range(0, len(listing), PART):
        listing.digest(range(first, min(first + PART, len(listing))))
    keyed, held = time.perf_counter(), private_bytes(process) - before
    most = 1024 * resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before
    n = len(listing)
    print(f"{n:,} images listed in {listed - begun:.1f} s, parts keyed in {keyed - listed:.1f} s")
    print(
        f"{held / MIB:,.0f} MiB private memory, {held / n:.0f} bytes each; at most {most / n:.0f}"
    )


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("task", choices=("predict", "score", "start", "shards"))
    parser.add_argument("--images", type=int, default=1_000_000)
    parser.add_argument("--folder", type=Path, required=True)
    parser.add_argument("--workers", type=int, default=0)
    options = parser.parse_args()
    folder = options.folder.resolve()
    make = make_shards if options.task == "shards" else make_images
    images = make(folder, options.images)
    if options.task in ("start", "shards"):
        start(images)
        return
    line = command(options.task, folder, images, options.workers)
    seconds, found = watched(line, folder / f"{options.task}.log")
    for tenth in range(11):
        place = min(len(found) - 1, tenth * len(found) // 10)
        print(f"{seconds[place]:7.0f} s  {found[place]:8,.0f} MiB")
    print(f"{options.images:,} images in {seconds[-1]:.0f} s, at most {max(found):,.0f} MiB")
    draw(
        seconds,
        found,
        folder / f"{options.task}.png",
        f"task={options.task}, {options.images:,} images",
    )


if __name__ == "__main__":
    main()
