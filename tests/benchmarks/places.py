"""Places of images against whole images, as Markdown.

    python ../shared/data/photographs/make_task.py PHOTOGRAPHS
    python -m tests.benchmarks.places FIELDS PHOTOGRAPHS EFFICIENTNET > docs/results/places.md

FIELDS holds the unpacked ``solar`` and ``cells`` of ``../shared/data/fields``, EFFICIENTNET the
weights of ``tf_efficientnet_lite0``. A quarter of an hour of one core.
"""

from __future__ import annotations

import datetime
import logging
import re
import sys
from dataclasses import replace
from pathlib import Path

import timm
import torch
from cross_fitted import cross_fitted
from PIL import Image
from safetensors.torch import load_file
from scipy.stats import binomtest
from timm.data import create_transform, resolve_data_config
from torch.utils.data import DataLoader, Dataset

import ood_lab
from ood_lab.detectors import KNN, PatchKNN
from ood_lab.features.bank import FeatureBank
from ood_lab.neighbours import near_copies

SOURCE = "Output of `python -m tests.benchmarks.places FIELDS PHOTOGRAPHS EFFICIENTNET`, {}.\n"
HEAD = """# Places of images

EfficientNet-lite0 of ImageNet at 224 pixels, no labels. `patch_knn` has its defaults: 4,096 places,
a coreset of those of the training images. `random`: `choice: random`; `reweight`: `reweight: true`;
`all_places`: `places: null, choice: random`, as many as 64 MiB hold.
AUROC in % against images of the own kind, with 95% intervals. *Own kind flagged*: of those images,
at alpha 0.05, calibrated on the training images, with 95% intervals (Wilson).
"""
WAYS = {
    "knn": KNN(),
    "patch_knn": PatchKNN(),
    "random": PatchKNN(choice="random"),
    "reweight": PatchKNN(reweight=True),
    "all_places": PatchKNN(places=None, choice="random"),
}


class Files(Dataset):
    """Images with the group that a file's name begins with."""

    def __init__(self, files: list[Path], transform: object, grouped: bool) -> None:
        self.files, self.transform, self.grouped = files, transform, grouped

    def __len__(self) -> int:
        return len(self.files)

    def __getitem__(self, row: int) -> dict:
        image = self.transform(Image.open(self.files[row]).convert("RGB"))
        group = re.sub(r"_\d+$", "", self.files[row].stem) if self.grouped else None
        return {"image": image, "label": -1} | ({"group": group} if group else {})


def table(train: FeatureBank, own: FeatureBank, ood: dict[str, FeatureBank], ways: dict) -> str:
    """A row for each detector."""
    if train.groups is None:
        train = replace(train, groups=near_copies(train.features))
    result = ood_lab.evaluate(train, own, ood, val=train, detectors=ways, n_bootstrap=1000)
    rows = result.results[result.results["metric"] == "auroc"].set_index(["detector", "dataset"])
    lines = [["", *ood, "own kind flagged"], ["---"] * (len(ood) + 2)]
    for name in ways:
        calibrated = cross_fitted(result.detectors[name], train)
        scores = result.scores.loc[result.scores["dataset"] == "test", name]
        flagged, n = int(calibrated.is_ood(torch.tensor(scores.to_numpy())).sum()), len(own)
        low, high = binomtest(flagged, n).proportion_ci(method="wilson")
        cells = [
            f"{r.value:.1%} [{r.ci_low:.1%}, {r.ci_high:.1%}]"
            for r in (rows.loc[(name, dataset)] for dataset in ood)
        ]
        cells = [cell.replace("%", "") for cell in cells]
        lines.append(
            [f"`{name}`", *cells, f"{flagged} of {n}: {flagged / n:.1%} [{low:.1%}, {high:.1%}]"]
        )
    return "\n".join(f"| {' | '.join(line)} |" for line in lines)


def main() -> None:
    """Prints the page."""
    logging.disable(logging.WARNING)
    fields, photographs, weights = map(Path, sys.argv[1:4])
    net = timm.create_model("tf_efficientnet_lite0").eval()
    net.load_state_dict(load_file(weights))
    transform = create_transform(**resolve_data_config({}, model=net))
    net.reset_classifier(0)

    def bank(files: list[Path], grouped: bool = False) -> FeatureBank:
        loader = DataLoader(Files(sorted(files), transform, grouped), 16)
        return ood_lab.extract_features(net, loader, detectors=["patch_knn"])

    source = SOURCE.format(datetime.datetime.now(datetime.UTC).date())
    print(HEAD)
    solar = {d.name: bank(list(d.iterdir())) for d in sorted((fields / "solar").iterdir())}
    train, own = solar.pop("train"), solar.pop("own")
    print(
        f"## Solar cells\n\n{source}"
        f"Good monocrystalline cells; doubtful and certain defects, and another "
        f"product.\n\n{table(train, own, solar, WAYS)}\n"
    )
    cells = {d.name: bank(list(d.iterdir()), True) for d in sorted((fields / "cells").iterdir())}
    for name, others in {"RBC": ["Platelets", "WBC"], "WBC": ["Platelets", "RBC"]}.items():
        groups = cells[name].groups
        first = groups < groups.median()
        print(
            f"## Blood cells: {name}\n\n{source}"
            f"One kind of cell, half of the microscope images for "
            "training; other kinds.\n"
        )
        print(
            table(
                cells[name].rows(first),
                cells[name].rows(~first),
                {other: cells[other] for other in others},
                WAYS,
            ),
            end="\n\n",
        )
    folders = {
        d.name: bank(list(d.rglob("*.jpg"))) for d in sorted((photographs / "ood").iterdir())
    }
    train = bank(list((photographs / "id/train").rglob("*.jpg")))
    own = bank(list((photographs / "id/test").rglob("*.jpg")))
    few = {name: WAYS[name] for name in ("knn", "patch_knn")}
    print(
        f"## Photographs\n\n{source}"
        f"Photographs of eight kinds of objects, each unlike the others: no data "
        f"for places.\n\n{table(train, own, folders, few)}"
    )


if __name__ == "__main__":
    main()
