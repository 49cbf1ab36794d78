"""OpenOOD's folders with noise in place of its images."""

from pathlib import Path

import numpy as np
import torch
from PIL import Image

from ood_lab.models import ResNet18For32

FAR = ("mnist", "svhn", "texture", "places365")


def cifar10_tree(root: Path) -> Path:
    """The folder ``data``: lists of CIFAR-10's benchmark, and their images."""
    rng = np.random.default_rng(0)

    def fill(name: str, folder: str, n: int, classes: int) -> None:
        lines = []
        for i in range(n):
            path = root / "images_classic" / folder / f"{i}.png"
            path.parent.mkdir(parents=True, exist_ok=True)
            Image.fromarray(rng.integers(0, 256, (32, 32, 3), dtype=np.uint8)).save(path)
            lines.append(f"{folder}/{i}.png {i % classes if classes else -1}")
        file = root / "benchmark_imglist" / "cifar10" / f"{name}.txt"
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_text("\n".join(lines) + "\n")

    for split, n in (("train", 40), ("val", 20), ("test", 20)):
        fill(f"{split}_cifar10", f"cifar10/{split}", n, 10)
    for name in ("cifar100", "tin", *FAR):
        fill(f"test_{name}", f"{name}/test", 12, 0)
    fill("val_tin", "tin/val", 12, 0)
    fill("test_cifar10c", "cifar10c", 10, 10)
    return root


def checkpoints(root: Path, seeds: int = 3) -> Path:
    """The folder of a training: ``s0/best.ckpt`` and so on."""
    for seed in range(seeds):
        torch.manual_seed(seed)
        file = root / f"s{seed}" / "best.ckpt"
        file.parent.mkdir(parents=True)
        torch.save(ResNet18For32().state_dict(), file)
    return root
