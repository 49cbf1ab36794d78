"""How well scenes are found in features, and how often images that only look alike are joined.

    python -m tests.benchmarks.near_copies PHOTOGRAPHS EFFICIENTNET ALIKE... \
        > docs/results/near-copies.md

PHOTOGRAPHS is a folder of photographs, of which no two show one thing, EFFICIENTNET has the weights
of ``tf_efficientnet_lite0``, and each of ALIKE is a folder of different images of one kind. Ten
minutes of one core.
"""

from __future__ import annotations

import datetime
import io
import itertools
import random
import sys
from collections.abc import Iterator
from pathlib import Path

import timm
import torch
from PIL import Image, ImageEnhance
from safetensors.torch import load_file
from timm.data import create_transform, resolve_data_config
from torch import Tensor
from torch.utils.data import DataLoader, Dataset

import ood_lab
from ood_lab.neighbours import near_copies

#: Photographs that become scenes, scenes of a draw, and draws.
POOL, SCENES, DRAWS = 45, (20, 45), 3
FRAMES = {"crops of 94%": 4, "crops of 85%": 2, "crops of 70%": 2, "bursts": 2, "JPEG": 2}
HEAD = """# Near copies

Output of `python -m tests.benchmarks.near_copies PHOTOGRAPHS EFFICIENTNET ALIKE...`, {}.
Features of EfficientNet-lite0 of ImageNet, without labels.
[The rule](../how-to/set-a-threshold.md#near-copies-are-found).

## Scenes

Scenes are photographs, and frames are made of one photograph each: crops with a brightness within
8%, bursts that are shifted and turned by up to 3 degrees, and JPEG of quality 30 to 90. Range over
{} draws of scenes. *Whole*: share of scenes of which all frames are one group. *Mixed*: share of
images in a group with another scene.
"""
ALIKE = """
## Images that only look alike

Share of images in a group, of all images and of random ones ({} draws).
"""


def frame(image: Image.Image, kind: str, rng: random.Random) -> Image.Image:
    """One of the images of a scene."""
    if kind == "JPEG":
        file = io.BytesIO()
        image.save(file, "JPEG", quality=rng.choice([30, 50, 70, 90]))
        return Image.open(file)
    if kind == "bursts":
        image = image.rotate(rng.uniform(-3, 3), Image.Resampling.BICUBIC)
    share = 0.9 if kind == "bursts" else int(kind[-3:-1]) / 100
    sides = [int(side * share) for side in image.size]
    left, top = (
        rng.randint(0, whole - side) for whole, side in zip(image.size, sides, strict=True)
    )
    cut = image.crop((left, top, left + sides[0], top + sides[1]))
    return ImageEnhance.Brightness(cut).enhance(rng.uniform(0.92, 1.08))


class Frames(Dataset):
    """Frames of photographs; of ``kind`` "" the photographs themselves."""

    def __init__(self, files: list[Path], kind: str, transform: object) -> None:
        self.files, self.kind, self.transform = files, kind, transform
        self.each = FRAMES.get(kind, 1)

    def __len__(self) -> int:
        return len(self.files) * self.each

    def __getitem__(self, row: int) -> Tensor:
        image = Image.open(self.files[row // self.each]).convert("RGB")
        if self.kind:
            image = frame(image, self.kind, random.Random(row))
        return self.transform(image.convert("RGB"))


def joined(features: Tensor) -> float:
    """Share of the images that are in a group of several."""
    _, codes, sizes = near_copies(features).unique(return_inverse=True, return_counts=True)
    return float((sizes[codes] > 1).double().mean())


def scene_rows(features: Tensor, each: int, kind: str) -> Iterator[list[str]]:
    """A row for each number of scenes and frames."""
    for scenes, frames in itertools.product(SCENES, [n for n in (2, 4, 8) if n <= each]):
        numbers: dict[str, list[float]] = {"groups": [], "whole": [], "mixed": []}
        for draw in range(DRAWS):
            order = torch.randperm(POOL, generator=torch.Generator().manual_seed(draw))
            rows = order[:scenes, None] * each + torch.arange(frames)
            groups = near_copies(features[rows.flatten()]).view(scenes, frames)
            scene = torch.arange(scenes)[:, None].expand_as(groups)
            other = [bool((scene[groups == code] != own).any()) for own, code in
                     zip(scene.flatten(), groups.flatten(), strict=True)]  # fmt: skip
            numbers["groups"].append(len(groups.unique()))
            numbers["whole"].append(float((groups == groups[:, :1]).all(dim=1).double().mean()))
            numbers["mixed"].append(sum(other) / len(other))
        yield [
            kind,
            f"{scenes} x {frames}",
            *(
                span(values, "{:.0%}" if name != "groups" else "{}")
                for name, values in numbers.items()
            ),
        ]


def span(values: list[float], show: str) -> str:
    """The values, as their range."""
    low, high = show.format(min(values)), show.format(max(values))
    return low if low == high else f"{low} to {high}"


def main() -> None:
    """Prints the page."""
    photographs, weights, *alike = map(Path, sys.argv[1:])
    net = timm.create_model("tf_efficientnet_lite0").eval()
    net.load_state_dict(load_file(weights))
    transform = create_transform(**resolve_data_config({}, model=net))
    net.reset_classifier(0)

    def features(files: list[Path], kind: str = "") -> Tensor:
        images = DataLoader(Frames(files, kind, transform), 16)
        return ood_lab.extract_features(net, images, head="none").features

    print(HEAD.format(datetime.datetime.now(datetime.UTC).date(), DRAWS))
    print("| frames | scenes x frames | groups | whole | mixed |\n|---|---|---|---|---|")
    files = sorted(photographs.rglob("*.jpg"))
    pool = random.Random(0).sample(files, POOL)
    for kind, each in FRAMES.items():
        for row in scene_rows(features(pool, kind), each, kind):
            print(f"| {' | '.join(row)} |", flush=True)
    print(ALIKE.format(DRAWS))
    print("| images of | n | all | 20 of them | 60 of them |\n|---|---|---|---|---|")
    for folder in (photographs, *alike):
        rows = features(sorted(f for f in folder.rglob("*") if f.is_file()))
        parts = [span([joined(rows)], "{:.1%}")]
        for n in (20, 60):
            orders = (
                torch.randperm(len(rows), generator=torch.Generator().manual_seed(draw))
                for draw in range(DRAWS)
            )
            parts.append(span([joined(rows[order[:n]]) for order in orders], "{:.1%}"))
        print(f"| {folder.name} | {len(rows)} | {' | '.join(parts)} |", flush=True)


if __name__ == "__main__":
    main()
