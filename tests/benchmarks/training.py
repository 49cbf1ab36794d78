"""Training objectives against cross-entropy, as Markdown.

    python -m tests.benchmarks.training RUNS [NAME...] > docs/results/training.md

It trains what RUNS lacks (all names, or NAME...), so a stopped measurement goes on, and prints
what has three seeds. Images are those of ``../shared/data``. An hour or more of one core.
"""

from __future__ import annotations

import contextlib
import datetime
import functools
import json
import sys
import tarfile
import time
from pathlib import Path

import numpy as np
import pandas as pd
import torch
from hydra.utils import instantiate
from omegaconf import OmegaConf
from scipy.stats import t

sys.path.insert(0, str(Path(__file__).parents[1]))
from cifar_openood import ARCHIVE
from cli import ROOT, call, run_folders

from ood_lab.metrics.resampling.significance import holm, placements
from ood_lab.models import Classifier, Objective, timm_backbone
from ood_lab.models.objectives.feature_queues import FeatureQueues

SEEDS = (0, 1, 2)
#: What the papers score with; other names have a score of their own, or `msp`.
SCORES = {"vos": "ebo", "energy_reg": "ebo", "palm": "mds", "ish": "scale"}
SCORES |= {"cider": "knn", "npos": "knn"}
FINE_TUNED = ("energy_reg", "mixoe", "ish")
NAMES = ["cross_entropy", "logit_norm", "rotpred"]
NAMES += [f.stem for f in sorted((ROOT / "conf/loss").glob("*.yaml")) if f.stem not in NAMES]
#: Few steps: terms of virtual outliers need full queues, and clusters enough images.
SMALL = {
    "vos": ["loss.queue=50", "loss.draws=1000"],
    "npos": ["loss.queue=50", "loss.k=20", "loss.boundary=20"],
    "udg": ["loss.clusters=50"],
}
COMMON = "trainer.accelerator=cpu logger=none task=score task.report=false trainer.max_epochs=5"
COMMON += " data.batch_size=32 data.num_workers=0"
HEAD = """# Training objectives

Output of `python -m tests.benchmarks.training RUNS`, {date}{stopped}.

**Small scale**: networks for a CPU, 1,100 (vessels) and 1,000 (CIFAR-10) training images, 5 epochs,
default settings, three seeds. It says how methods behave after a short training, not after the
papers' 100 epochs. Queues of `vos` and `npos` and the clusters of `udg` are smaller than by
default. `energy_reg`, `mixoe` and `ish` fine-tune the network of cross-entropy, so they have 10
epochs.

AUROC in %: mean over OOD datasets and seeds. *More*: points above cross-entropy with `msp` (own
score) or `knn`, on the same seeds and images. The 95% interval adds the variance between seeds to
DeLong's of the images (t, 2 degrees of freedom), so it is rather too wide. p is Holm-adjusted over
the methods of a table; intervals are not. *Time*: of one core for a step of 32 images with all
terms, in units of cross-entropy's, with other programs beside it.
"""
STOPPED = """, stopped before its end: the tables
hold what has three seeds"""


def score_of(name: str) -> str:
    """The detector that belongs to an objective."""
    if name in SCORES or name == "cross_entropy":
        return SCORES.get(name, "msp")
    own = getattr(instantiate(OmegaConf.load(ROOT / f"conf/loss/{name}.yaml")), "own_score", None)
    return own or "msp"


def data_of(place: Path) -> dict[str, tuple[list[str], Path]]:
    """Overrides and the folder of outliers, by the name of the data.

    Photographs of one half of the ImageNet classes are outliers of CIFAR-10, the others OOD.
    """
    cifar = place / "cifar"
    if not cifar.exists():
        with tarfile.open(ARCHIVE) as archive:
            archive.extractall(cifar, filter="data")
        for i, file in enumerate(sorted((cifar / "ood/imagenet32").iterdir())):
            half = cifar / ("outliers" if i % 2 else "evaluated")
            half.mkdir(exist_ok=True)
            file.rename(half / file.name)
    vessels = "data=vessels data.train=1100 data.val=110 data.test=550 data.per_shift_set=100"
    sets = [f"data.id.{part}={cifar}/id/{part}" for part in ("train", "val", "test")]
    folder = f"data=folder data.ood.imagenet={cifar}/evaluated data.shots=100 data.check=headers"
    network = "model=module model.net._target_=cifar_resnet.ResNet20 model.head=linear"
    return {
        "vessels": ([*vessels.split(), "data.per_cell=0"], cifar / "id/val"),
        "cifar10": (
            [*sets, *folder.split(), *network.split(), "model.backbone.input_size=32"],
            cifar / "outliers",
        ),
    }


def train(place: Path, data: str, name: str, seed: int, line: list[str], outliers: Path) -> None:
    """Trains and scores one network, unless its folder is there."""
    arguments = [*COMMON.split(), *line, f"seed={seed}"]
    detectors = dict.fromkeys((score_of(name), "knn"))
    arguments += [f"detector=[{','.join(detectors)}]", f"paths.outputs={place}/{data}/{name}"]
    if name != "cross_entropy":
        arguments += [f"loss={name}", *SMALL.get(name, [])]
        wants = instantiate(OmegaConf.load(ROOT / f"conf/loss/{name}.yaml")).outliers_per_image
        arguments += [f"data.outliers={outliers}"] if wants else []
    if name in FINE_TUNED:
        first = finished(place, data, "cross_entropy")[seed]
        arguments += [f"ckpt={first}", "model.classifier.optimizer.lr=1e-3"]
    assert call("train.py", *arguments) == 0, (data, name, seed)


def finished(place: Path, data: str, name: str) -> dict[int, Path]:
    """Run folders by seed."""
    return {int(run.name.removeprefix("seed=")): run for run in run_folders(place / data / name)}


def influence(run: Path, detector: str) -> tuple[float, np.ndarray]:
    """Mean AUROC over the OOD datasets, and what each image adds to it."""
    scores = pd.read_parquet(run / "scores.parquet").set_index("dataset")[detector].to_numpy()
    names = pd.read_parquet(run / "scores.parquet").dataset.to_numpy()
    inside, sets = scores[names == "test"], [n for n in pd.unique(names) if n != "test"]
    parts = [placements(inside, scores[names == n]) for n in sets]
    over = np.concatenate([sum(p[0] for p in parts), *(p[1] for p in parts)]) / len(sets)
    value = np.mean([(inside[:, None] < scores[names == n]).mean() for n in sets])
    ties = np.mean([(inside[:, None] == scores[names == n]).mean() for n in sets])
    return float(value + ties / 2), over


def difference(runs: dict, plain: dict, detector: str, baseline: str) -> tuple[float, ...]:
    """AUROC, points above the baseline, half the width of the interval, and p."""
    pairs = [(influence(runs[s], detector), influence(plain[s], baseline)) for s in SEEDS]
    more = np.array([a[0] - b[0] for a, b in pairs])
    images = np.mean([((a[1] - b[1]) ** 2).sum() for a, b in pairs])
    error = np.sqrt(more.var(ddof=1) / len(SEEDS) + images)
    df = len(SEEDS) - 1
    p = 2 * t.sf(abs(more.mean()) / error, df) if error else 1.0
    return np.mean([a[0] for a, _ in pairs]), more.mean(), t.ppf(0.975, df) * error, p


def table(place: Path, data: str) -> str:
    """A row for each method that has all seeds."""
    runs = {name: finished(place, data, name) for name in NAMES}
    runs = {name: r for name, r in runs.items() if set(SEEDS) <= set(r)}
    plain = runs.pop("cross_entropy", None)
    if not plain:
        return "Not measured.\n"
    said = {name: score_of(name) for name in runs}
    own = {n: difference(r, plain, said[n], "msp") for n, r in runs.items()}
    knn = {n: difference(r, plain, "knn", "knn") for n, r in runs.items()}
    lines = "| `loss=` | accuracy | own score | AUROC | more | p | `knn` | more | p | time |\n"
    lines += "|---|---|---|---|---|---|---|---|---|---|\n"
    first = [100 * influence(plain[s], "msp")[0] for s in SEEDS]
    near = [100 * influence(plain[s], "knn")[0] for s in SEEDS]
    seconds = step_seconds("cross_entropy")
    lines += f"| cross-entropy | {accuracy(plain):.1f} | `msp` | {np.mean(first):.1f} | | "
    lines += f"| {np.mean(near):.1f} | | | 1 |\n"
    for place_of, name in enumerate(runs):
        cells = []
        for tests in (own, knn):
            value, more, half, _ = tests[name]
            p = holm([row[3] for row in tests.values()])[place_of]
            ends = f"[{100 * (more - half):.1f}, {100 * (more + half):.1f}]"
            cells.append(f"{100 * value:.1f} | {100 * more:+.1f} {ends} | {p:.3f}")
        lines += f"| `{name}` | {accuracy(runs[name]):.1f} | `{said[name]}` "
        lines += f"| {cells[0]} | {cells[1]} | {step_seconds(name) / seconds:.1f} |\n"
    above = [_words([n for n, row in of.items() if row[1] > row[2]]) for of in (own, knn)]
    adjusted = holm([row[3] for row in own.values()])
    sure = _words([n for n, p in zip(own, adjusted, strict=True) if p < 0.05 and own[n][1] > 0])
    lines += f"\nAbove cross-entropy's `msp` by more than the interval: {above[0]}.\n"
    lines += f"With an adjusted p below 0.05: {sure}.\n"
    for name in ("rotpred", "logit_norm"):
        if name in own and own[name][1] <= own[name][2]:
            lower = ": it is lower" if own[name][1] < 0 else ""
            lines += f"`{name}` does not beat it by more than the interval{lower}.\n"
    lines += f"With `knn` on both sides, above cross-entropy by more than that: {above[1]}.\n"
    missing = [name for name in NAMES if name not in runs and name != "cross_entropy"]
    return lines + (f"Not measured: {_words(missing)}.\n" if missing else "")


def _words(names: list[str]) -> str:
    return ", ".join(f"`{name}`" for name in names) or "none"


def accuracy(runs: dict[int, Path]) -> float:
    """ID test, in percent."""
    files = [json.loads((runs[seed] / "manifest.json").read_text()) for seed in SEEDS]
    return float(np.mean([100 * f["id_accuracy"] for f in files]))


@functools.cache
def step_seconds(name: str) -> float:
    """Processor time of a training step of 32 images, the median of 9."""
    torch.manual_seed(0)
    net = {"layers": [1, 1, 1, 1], "channels": [32, 64, 128, 256]}
    network = timm_backbone("resnet18", num_classes=11, kwargs=net, input_size=64)
    file = ROOT / f"conf/loss/{name}.yaml"
    objective = instantiate(OmegaConf.load(file)) if file.exists() else Objective()
    objective.start = 0
    model = Classifier(network, functools.partial(torch.optim.SGD, lr=0.01), loss=objective)
    for queues in (m for m in objective.modules() if isinstance(m, FeatureQueues)):
        queues.features.normal_()
        queues.count.fill_(10**6)
    batch = {"image": torch.randn(32, 3, 64, 64), "label": torch.arange(32) % 11}
    for key, n in (("outliers", objective.outliers_per_image), ("views", objective.views - 1)):
        batch |= {key: torch.randn(32, n, 3, 64, 64)} if n else {}
    seconds = []
    for _ in range(9):
        start = time.process_time()
        sum(model.losses(model.outputs(batch), batch).values()).backward()
        seconds.append(time.process_time() - start)
    return float(np.median(seconds))


def main() -> None:
    """Trains what is missing, then prints the page."""
    place, names = Path(sys.argv[1]).resolve(), sys.argv[2:] or NAMES
    torch.set_num_threads(1)
    with contextlib.redirect_stdout(sys.stderr):
        for data, (line, outliers) in data_of(place).items():
            for name in names:
                for seed in SEEDS:
                    if seed not in finished(place, data, name):
                        train(place, data, name, seed, line, outliers)
    tables = [table(place, data) for data in ("vessels", "cifar10")]
    stopped = STOPPED if "Not measured" in "".join(tables) else ""
    print(HEAD.format(date=datetime.datetime.now(datetime.UTC).date(), stopped=stopped))
    print("## Vessels\n\nBundled data, five OOD datasets.\n\n" + tables[0])
    print("## CIFAR-10\n\nHalf of the ImageNet photographs.\n\n" + tables[1], end="")


if __name__ == "__main__":
    main()
