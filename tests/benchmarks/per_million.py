"""What each step costs for a million images; ``python -m tests.benchmarks.per_million``.

Processor seconds of one thread (fairer than the clock on a busy machine), the smaller of two runs
on few images, and what they come to for a million: the table in docs/results/performance.md.
"""

from __future__ import annotations

import tempfile
import time
from collections.abc import Callable
from pathlib import Path

import numpy as np
import timm
import torch
import torch.nn.functional as F
from PIL import Image
from timm.data import create_transform

from ood_lab.api.detector_settings import chosen_detectors
from ood_lab.builtin.scenes import ScenesDataset
from ood_lab.detectors import Detector
from ood_lab.features.bank import FeatureBank
from ood_lab.lvlm.chat.transformers import TransformersChat
from ood_lab.metrics.record import OF_SETS
from ood_lab.shift import Decomposition, ShiftMeter
from tests.benchmarks.asking import requests
from tests.metrics.resampling.drawn_metrics import bootstrap

MILLION = 10**6


def seconds(run: Callable[[], object]) -> float:
    """The smaller of two runs, in processor seconds."""
    found = []
    for _ in range(2):
        start = time.process_time()
        run()
        found.append(time.process_time() - start)
    return min(found)


def say(step: str, spent: float, n: int, note: str = "") -> None:
    """Seconds for n, each, and hours for a million."""
    hours = spent / n * MILLION / 3600
    print(f"{step}: {spent:.2f} s for {n:,} = {1e3 * spent / n:.3g} ms each; {hours:.3g} h {note}")


def extraction(folder: Path) -> None:
    """A ResNet-50 at 224 pixels, from JPEGs of 500 x 375."""
    rng, files = np.random.default_rng(0), [folder / f"{n}.jpg" for n in range(32)]
    for file in files:
        small = Image.fromarray(rng.integers(0, 255, (47, 63, 3), dtype=np.uint8))
        small.resize((500, 375), Image.Resampling.BICUBIC).save(file, quality=90)
    transform = create_transform(224, is_training=False)

    def load() -> torch.Tensor:
        return torch.stack([transform(Image.open(file).convert("RGB")) for file in files])

    say("load", seconds(load), len(files))
    network = timm.create_model("resnet50").eval().to(memory_format=torch.channels_last)
    images = load().contiguous(memory_format=torch.channels_last)
    with torch.inference_mode():
        chunks = images.split(8)
        say("forward", seconds(lambda: [network(chunk) for chunk in chunks]), len(files))


def measuring(queries: int = 2000, rows: int = 50_000) -> None:
    """Both halves of 256; a million images to 1.28 million."""
    unit = [F.normalize(torch.randn(n, 512), dim=1) for n in (rows, queries)]
    meter = ShiftMeter(Decomposition("laid", torch.eye(512), 256, {}, 10), unit[0])
    spent = seconds(lambda: meter(unit[1]))
    say(
        "k-NN shift", spent * 1.28e6 / rows, queries, f"to 1.28 million ({spent:.2f} s to {rows:,})"
    )


def scoring(queries: int = 2000, rows: int = 20_000) -> None:
    """2,048 features, 1,000 classes."""
    head = torch.randn(1000, 2048) / 45, torch.zeros(1000)

    def bank(n: int) -> FeatureBank:
        x = torch.randn(n, 2048).relu()
        y = torch.arange(n) % 1000
        return FeatureBank(
            x,
            x @ head[0].T,
            y,
            index=torch.arange(n),
            head_weight=head[0],
            head_bias=head[1],
            columns={},
        )

    train, asked = bank(rows), bank(queries)
    for name, detector in chosen_detectors(["msp", "mls", "vim", "mds", "knn"], "openood").items():
        fitted: Detector = detector.fit(train)
        spent = seconds(lambda d=fitted: d.score(asked))
        scale = 1.28e6 / rows if name == "knn" else 1
        say(f"score {name}", spent * scale, queries)


def asking(folder: Path, images: int = 32) -> None:
    """One yes/no question an image, the shipped tiny model; and the client of a server."""
    scenes = ScenesDataset("test", images, 0)
    for number in range(images):
        scenes.load_image(number).save(folder / f"{number}.png")
    chat = TransformersChat("shipped:tiny", device="cpu", batch_size=16)
    asked = requests(folder, images, 1)
    say("ask tiny", seconds(lambda: list(chat.ask(asked))), images)


def resampling() -> None:
    """13 detectors, 1,000 draws, 50,000 ID and a million OOD images in 64 cells."""
    rng = np.random.default_rng(0)
    known, cells = rng.normal(size=(50_000, 13)), [rng.normal(size=(1000, 13)) for _ in range(4)]
    spent = seconds(lambda: bootstrap(known, cells, draws=20, metrics=OF_SETS[:3]))
    print(f"bootstrap: {spent:.2f} s for 20 draws of 4,000 OOD images beside 50,000 ID")


if __name__ == "__main__":
    torch.set_num_threads(1)
    torch.manual_seed(0)
    with tempfile.TemporaryDirectory() as place:
        extraction(Path(place))
        measuring()
        scoring()
        asking(Path(place))
        resampling()
