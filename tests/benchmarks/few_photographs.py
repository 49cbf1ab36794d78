"""Detectors by the number of images per class, as Markdown.

    python ../shared/data/photographs/make_task.py TASK
    python -m tests.benchmarks.few_photographs TASK EFFICIENTNET CIFAR RESNET \
        > docs/results/few-photographs.md

    python -m tests.benchmarks.few_photographs TASK EFFICIENTNET   # only frames of scenes

TASK and CIFAR are folders with ``id/train/CLASS``, ``id/test/CLASS`` and ``ood/NAME``; the other
two are weights of ``tf_efficientnet_lite0`` and of the ResNet-20 of ``../shared/data``. A few
minutes of one core.
"""

from __future__ import annotations

import datetime
import itertools
import logging
import sys
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

import numpy as np
import pandas as pd
import scipy
import timm
import torch
from PIL import Image, ImageEnhance
from safetensors.torch import load_file
from timm.data import create_transform, resolve_data_config
from torch import nn
from torch.utils.data import DataLoader, Dataset
from torchvision import transforms
from torchvision.datasets import ImageFolder

sys.path.insert(0, str(Path(__file__).parents[1]))
from cifar_resnet import ResNet20
from cross_fitted import cross_fitted

import ood_lab
from ood_lab.detectors import KNN
from ood_lab.features.bank import FeatureBank
from ood_lab.neighbours import near_copies

SIZES = (1, 2, 5, 10, 30, 100, 1000)
DRAWS = 3
RESAMPLES = 200
PRESETS = ("auto", "openood")
#: Frames of scenes: numbers of both, the kind that ID and new scenes are of, and others.
SCENES, FRAMES, SCENE_DRAWS = (20, 45, 90), (1, 2, 4, 8), 5
OWN, OTHERS = ("dog", "bird"), ("vehicle", "instrument", "food")
CROP, DIM = 0.94, 0.08
SCENE_HEAD = """## Frames of scenes

Output of `python -m tests.benchmarks.few_photographs TASK EFFICIENTNET`, {}.
A scene is one of 177 photographs of dogs and birds; its frames are crops of 94% of the sides with a
brightness within 8%. `knn` on EfficientNet-lite0 of ImageNet is fitted on the frames of some scenes
and calibrated on them. Flagged at alpha 0.05, mean and 95% interval over {} draws of scenes.
*Own kind*: one frame of each other scene. *Others*: frames of vehicles, instruments and food.
*Images*: each image counts (`data.group=none`). *No setting*: near copies are found from the
features. *Groups*: each scene counts (`data.group`).
"""
NAMES = {"value": "auroc", "ci_low": "low", "ci_high": "high"}
OFFICIAL = "With the settings of OpenOOD (`detector_preset=openood`), where they differ:"
COMMAND = "python -m tests.benchmarks.few_photographs TASK EFFICIENTNET CIFAR RESNET"
HEAD = """# Detectors of few photographs

Mean AUROC in % over the OOD sets and 3 draws of training images, by images per class.
Classes that have fewer images give all. Settings: `detector_preset=auto`.
The detectors are those of the default set that read features, logits and the head.
"""


@dataclass(frozen=True)
class Task:
    """Features of all images of a folder.

    Attributes:
        about: what it is, in a sentence.
        banks: ``train``, ``test`` and every OOD set.
        head: False = a linear head is fitted to the images that are drawn.
    """

    about: str
    banks: dict[str, FeatureBank]
    head: bool

    @classmethod
    def of(cls, about: str, folder: Path, net: nn.Module, transform: object, head: bool) -> Task:
        """Features of ``id/train``, ``id/test`` and every folder of ``ood``."""
        banks = {}
        for place in (*(folder / "id" / split for split in ("train", "test")), folder / "ood"):
            images = ImageFolder(str(place), transform)
            others = None if head else len(images.classes)
            loader = DataLoader(images, batch_size=32)
            bank = ood_lab.extract_features(net, loader, label_classes=others)
            if place.name == "ood":
                rows = {name: bank.labels == label for label, name in enumerate(images.classes)}
                banks |= {name: bank.rows(chosen) for name, chosen in rows.items()}
            else:
                banks[place.name] = bank
        return cls(about, banks, head)

    def draws(self) -> Iterator[pd.DataFrame]:
        """AUROC and its 95% interval of every detector and OOD set, of one draw."""
        train, test = (self.banks[split] for split in ("train", "test"))
        ood = {name: bank for name, bank in self.banks.items() if name not in ("train", "test")}
        largest = int(train.labels.bincount().max())
        for n in [size for size in SIZES if size <= largest]:
            for seed in range(DRAWS):
                order = torch.randperm(len(train), generator=torch.Generator().manual_seed(seed))
                labels = train.labels[order]
                some = train.rows(torch.cat([order[labels == c][:n] for c in labels.unique()]))
                sets = {"train": some, "val": some, "test": test, "ood": ood}
                if not self.head:
                    sets = {k: (v.features, v.labels) for k, v in sets.items() if k != "ood"}
                    sets["ood"] = {name: bank.features for name, bank in ood.items()}
                for preset in PRESETS:
                    chosen = {"detectors": "default", "detector_preset": preset}
                    rows = ood_lab.evaluate(**sets, **chosen, n_bootstrap=RESAMPLES).results
                    rows = rows[rows["dataset"].isin(ood) & (rows["metric"] == "auroc")]
                    yield rows.rename(columns=NAMES).assign(n=n, draw=seed, preset=preset)

    def tables(self) -> str:
        """Means, the best detector of few images first, and what is below chance."""
        rows = pd.concat(self.draws(), ignore_index=True)
        rows[[*NAMES.values()]] *= 100
        auto, official = (rows[rows["preset"] == preset] for preset in PRESETS)
        means, before = (each.pivot_table("auroc", "detector", "n") for each in (auto, official))
        few = means.iloc[:, :4].mean(axis=1).sort_values(ascending=False)
        means, before = means.loc[few.index], before.reindex(few.index)
        before = before[((means - before).abs() > 0.05).any(axis=1) | before.isna().any(axis=1)]
        means.loc["interval of a set, ±"] = (
            ((auto["high"] - auto["low"]) / 2).groupby(auto["n"]).mean()
        )
        return "\n\n".join([markdown(means), OFFICIAL, markdown(before), below_chance(auto)])


class Frames(Dataset):
    """Photographs as a video would show them: crops of 94% of the sides, brightness within 8%."""

    def __init__(self, photographs: list[Path], frames: int, transform: Callable) -> None:
        self.photographs, self.frames, self.transform = photographs, frames, transform

    def __len__(self) -> int:
        return len(self.photographs) * self.frames

    def __getitem__(self, row: int) -> dict:
        rng = np.random.default_rng(row)
        image = Image.open(self.photographs[row // self.frames]).convert("RGB")
        sides = [round(CROP * side) for side in image.size]
        left, top = (int(rng.integers(0, size - round(CROP * size) + 1)) for size in image.size)
        frame = image.crop((left, top, left + sides[0], top + sides[1]))
        frame = ImageEnhance.Brightness(frame).enhance(rng.uniform(1 - DIM, 1 + DIM))
        return {"image": self.transform(frame), "label": -1, "group": row // self.frames}


def scene_table(task: Path, net: nn.Module, transform: Callable) -> str:
    """Images flagged by ``knn`` at alpha 0.05, fitted on frames of scenes, by what counts."""

    def bank(kinds: Sequence[str], frames: int) -> FeatureBank:
        files = sorted(f for kind in kinds for f in task.glob(f"id/*/{kind}/*.jpg"))
        return ood_lab.extract_features(net, DataLoader(Frames(files, frames, transform), 32))

    own, others = bank(OWN, max(FRAMES)), bank(OTHERS, 1)
    frame = torch.arange(len(own)) % max(FRAMES)
    rows = []
    for scenes, frames in itertools.product(SCENES, FRAMES):
        for draw in range(SCENE_DRAWS):
            order = torch.randperm(
                len(own) // max(FRAMES), generator=torch.Generator().manual_seed(draw)
            )
            inside = torch.isin(own.groups, order[:scenes])
            fit, new = own.rows(inside & (frame < frames)), own.rows(~inside & (frame == 0))
            ways = {"images": None, "no setting": near_copies(fit.features), "groups": fit.groups}
            for counted, groups in ways.items():
                known = replace(fit, groups=groups)
                it = cross_fitted(KNN().fit(known), known)
                for kind, images in {"own kind": new, "others": others}.items():
                    share = float(it.is_ood(it.score(images)).double().mean())
                    rows.append((scenes, frames, f"{kind}, {counted}", share))
    table = pd.DataFrame(rows, columns=["scenes", "frames", "flagged", "share"])
    shares = table.groupby(["scenes", "frames", "flagged"], sort=False)["share"]
    half = shares.sem() * scipy.stats.t.ppf(0.975, SCENE_DRAWS - 1)
    cells = shares.mean().map("{:.0%} ± ".format) + (100 * half).map("{:.0f}".format)
    wide = cells.unstack("flagged", sort=False)
    lines = [["scenes", "frames", *wide.columns], ["---"] * (len(wide.columns) + 2)]
    lines += [[*map(str, key), *row] for key, row in wide.T.items()]
    return "\n".join(f"| {' | '.join(line)} |" for line in lines)


def below_chance(rows: pd.DataFrame) -> str:
    """Sets that a detector ranks below the ID images, and another one above them."""
    found_by_others = rows["low"].groupby([rows[c] for c in ("n", "draw", "dataset")])
    low = rows[(rows["high"] < 50) & (found_by_others.transform("max") > 50)]
    if low.empty:
        return "No interval is below 50 where that of another detector is above it."
    of = low["detector"] + ", " + low["n"].astype(str) + " a class, draw " + low["draw"].astype(str)
    shown = low.set_index(of + ", " + low["dataset"])[[*NAMES.values()]]
    found = "Intervals below 50, where that of another detector is above it"
    return f"{found} ({len(low)} of {len(rows):,}):\n\n{markdown(shown, 'detector')}"


def markdown(table: pd.DataFrame, index: str = "images per class") -> str:
    """The rows of a table, numbers with one digit."""
    lines = [[index, *map(str, table.columns)], ["---"] * (len(table.columns) + 1)]
    for name, row in table.iterrows():
        code = f"`{name}`" if str(name).isidentifier() else str(name)
        lines.append([code, *("–" if v != v else f"{v:.1f}" for v in row)])
    return "\n".join(f"| {' | '.join(line)} |" for line in lines)


def main() -> None:
    """Prints the page."""
    logging.disable(logging.WARNING)
    photographs, efficientnet, *of_cifar = map(Path, sys.argv[1:5])
    large = timm.create_model("tf_efficientnet_lite0").eval()
    large.load_state_dict(load_file(efficientnet))
    crop = create_transform(**resolve_data_config({}, model=large))
    if not of_cifar:
        print(SCENE_HEAD.format(datetime.datetime.now(datetime.UTC).date(), SCENE_DRAWS))
        large.reset_classifier(0)
        print(scene_table(photographs, large, crop))
        return
    cifar, resnet = of_cifar
    small = ResNet20().eval()
    small.load_state_dict(torch.load(resnet))
    normalise = transforms.Normalize((0.485, 0.456, 0.406), (0.229, 0.224, 0.225))
    tasks = {
        "Photographs": Task.of(
            "EfficientNet-lite0 of ImageNet, a linear head fitted to the images that are drawn.\n"
            "OOD: other animals, other objects, ID images blurred and darkened.",
            *(photographs, large, crop, False),
        ),
        "CIFAR-10": Task.of(
            "ResNet-20 trained on all of CIFAR-10.\nOOD: ImageNet photographs of 32 pixels, and "
            "crops of them.",
            *(cifar, small, transforms.Compose([transforms.ToTensor(), normalise]), True),
        ),
    }
    print(HEAD, end="")
    source = f"Output of `{COMMAND}`, {datetime.datetime.now(datetime.UTC).date()}."
    for name, task in tasks.items():
        print(f"\n## {name}\n\n{source}\n{task.about}\n\n{task.tables()}")


if __name__ == "__main__":
    main()
