"""Causes of covariate shift that the statistics of images name, on images that were corrupted.

    python -m tests.benchmarks.shift_causes [--images 100] [--photographs DIR] [--cifar DIR]

For vessels (builtin) and folders of photographs (224 px) and of CIFAR-10 (32 px): one half of the
ID images is corrupted, the other half stands for ID test. Printed are the first two causes of each
corruption at severity 3, and at how many of the severities 3 to 5 an expected cause is among the
first two. Then, of 200 random divisions of the unchanged images into halves, how many have a cause;
and the seconds of the statistics beside a forward pass of ResNet-50.
"""

from __future__ import annotations

import argparse
import time
from pathlib import Path

import numpy as np
import pandas as pd
import torch
from PIL import Image
from torch import Tensor
from torchvision.models import resnet50
from torchvision.transforms.v2 import functional as F

from ood_lab.builtin.vessels.datamodule import VesselsDataModule
from ood_lab.common.random_streams import Resampling
from ood_lab.data.transforms.corruptions import CORRUPTIONS, corrupt
from ood_lab.metrics import causes_of, named_causes
from ood_lab.schema.image_statistics import PIXELS, words_of
from ood_lab.shift import image_statistics

#: Statistics that a corruption changes by its definition.
EXPECTED = {
    "gaussian_noise": {"noise"},
    "shot_noise": {"noise"},
    "impulse_noise": {"noise"},
    "defocus_blur": {"sharpness", "high frequencies"},
    "glass_blur": {"sharpness", "high frequencies"},
    "motion_blur": {"sharpness", "high frequencies"},
    "zoom_blur": {"sharpness", "high frequencies"},
    "snow": {"brightness", "clipped white", "saturation"},
    "frost": {"brightness", "saturation", "warmth", "colourfulness"},
    "fog": {"contrast", "saturation", "high frequencies"},
    "brightness": {"brightness", "colourfulness"},  # at the same saturation, V scales both
    "contrast": {"contrast"},
    "elastic_transform": {"sharpness", "high frequencies"},
    "pixelate": {"blockiness", "sharpness", "high frequencies"},
    "jpeg_compression": {"blockiness", "noise", "high frequencies"},
}


def statistics(images: list[Image.Image], size: int) -> np.ndarray:
    """Of images as a network of that size gets them, ``[n, 11]``."""
    rows = []
    for image in images:
        x = F.to_dtype(F.pil_to_tensor(image), torch.float32, scale=True)
        if size >= 128:
            x = F.center_crop(F.resize(x, [round(size * 8 / 7)], antialias=True), [size, size])
        rows.append(image_statistics(x[None])[0])
    return torch.stack(rows).double().numpy()


def causes(inside: np.ndarray, outside: np.ndarray, draws: int = 2) -> pd.DataFrame:
    """See :func:`ood_lab.metrics.causes_of`."""
    names = list(PIXELS)
    parts = [
        pd.DataFrame(values, columns=names).assign(dataset=name)
        for name, values in (("test", inside), ("corrupted", outside))
    ]
    return causes_of(pd.concat(parts, ignore_index=True), names, resampling=Resampling(draws=draws))


def said(found: pd.DataFrame) -> str:
    """The first two causes in words."""
    rows = named_causes(found).head(2)
    return ", ".join(
        f"{words_of(str(row['statistic']))[int(row['value'] > 0.5)]} "
        f"({max(row['value'], 1 - row['value']):.0%})"
        for _, row in rows.iterrows()
    )


def report(title: str, images: list[Image.Image], size: int) -> None:
    """Prints the table of one kind of images."""
    half = len(images) // 2
    clean = statistics(images, size)
    inside, changed = clean[:half], images[half:]
    print(f"\n### {title}: {half} of ID test against {len(changed)} corrupted\n")
    print("| corruption | first two causes at severity 3 | expected among them, severity 3 to 5 |")
    print("|---|---|---|")
    right = 0
    for name in CORRUPTIONS:
        hits, words = 0, ""
        for severity in (3, 4, 5):
            made = [
                corrupt(x, name, severity, np.random.default_rng(i)) for i, x in enumerate(changed)
            ]
            found = causes(inside, statistics(made, size))
            first = set(named_causes(found)["statistic"].head(2))
            hits += bool(first & EXPECTED[name])
            words = words or said(found)
        right += hits
        print(f"| `{name}` | {words} | {hits} of 3 |", flush=True)
    rng, wrong = np.random.default_rng(0), 0
    for _ in range(200):
        order = rng.permutation(len(clean))
        wrong += len(named_causes(causes(clean[order[:half]], clean[order[half:]]))) > 0
    print(
        f"\nExpected causes: {right} of {3 * len(CORRUPTIONS)}. "
        f"Halves of unchanged images: a cause in {wrong} of 200 draws."
    )


def seconds(of, x: Tensor) -> float:
    of(x)
    start = time.process_time()
    of(x)
    return time.process_time() - start


def cost() -> None:
    """Prints the seconds of the statistics, as a share of those of ResNet-50."""
    net, x = resnet50().eval().to(memory_format=torch.channels_last), torch.rand(32, 3, 224, 224)
    x = x.to(memory_format=torch.channels_last)
    with torch.no_grad():
        pairs = [(seconds(image_statistics, x), seconds(net, x)) for _ in range(5)]
    own, forward = (float(np.median(column)) for column in zip(*pairs, strict=True))
    print(
        f"\nCost of 32 images of 224 px, CPU seconds: statistics {own:.3f}, "
        f"ResNet-50 {forward:.2f}: {own / forward:.1%}"
    )


def of_folder(folder: Path, n: int) -> list[Image.Image]:
    files = sorted(f for f in folder.rglob("*") if f.suffix.lower() in (".jpg", ".jpeg", ".png"))
    chosen = np.random.default_rng(0).permutation(len(files))[: 2 * n]
    return [Image.open(files[i]).convert("RGB") for i in chosen]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--images", type=int, default=100)
    parser.add_argument("--photographs", type=Path)
    parser.add_argument("--cifar", type=Path)
    given = parser.parse_args()
    cost()
    data = VesselsDataModule(train=60, val=20, test=2 * given.images, per_shift_set=1, per_cell=0)
    data.setup()
    test = data.splits["test"]
    report("vessels", [test.load_image(i) for i in range(2 * given.images)], 64)
    for title, folder, size in (
        ("photographs", given.photographs, 224),
        ("CIFAR-10", given.cifar, 32),
    ):
        if folder:
            report(title, of_folder(folder, given.images), size)


if __name__ == "__main__":
    main()
