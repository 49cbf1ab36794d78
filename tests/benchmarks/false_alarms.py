"""False alarms of cross-fitted p-values on real features of few photographs.

Run it by ``python -m tests.benchmarks.false_alarms``.
Draws of n ID and 50 new images, disjoint, of the 1,000 photographs in
``../shared/data/photographs``, under EfficientNet-lite0: all are of one population, so that each
flagged image and each significant group is a false alarm.
"""

from __future__ import annotations

import tarfile
import tempfile
from pathlib import Path

import numpy as np
import timm
import torch
from cross_fitted import cross_fitted
from PIL import Image
from safetensors.torch import load_file

import ood_lab
from ood_lab.detectors import KNN, MDS, Detector
from ood_lab.metrics import group_comparison

PHOTOGRAPHS = Path(__file__).parents[3] / "shared" / "data" / "photographs"
DRAWS, NEW, SIZES, ALPHAS = 200, 50, (20, 50, 200), (0.01, 0.05, 0.1)


def features() -> torch.Tensor:
    """``[1000, 1280]``, in a random order."""
    net = timm.create_model("tf_efficientnet_lite0", num_classes=0)
    net.load_state_dict(load_file(PHOTOGRAPHS / "tf_efficientnet_lite0.safetensors"), strict=False)
    net.eval()
    transform = timm.data.create_transform(**timm.data.resolve_model_data_config(net))
    found = []
    with tempfile.TemporaryDirectory() as folder, torch.inference_mode():
        with tarfile.open(PHOTOGRAPHS / "images.tar") as archive:
            archive.extractall(folder, filter="data")
        for path in sorted(Path(folder).rglob("*.jpg")):
            found.append(net(transform(Image.open(path).convert("RGB"))[None]))
    return torch.cat(found)


def rates(make: type[Detector], x: torch.Tensor, n: int) -> list[str]:
    """Share of new images flagged, with its standard error; share of groups with p <= 0.05."""
    shares, groups = np.zeros((DRAWS, len(ALPHAS))), np.zeros(DRAWS)
    for draw in range(DRAWS):
        order = torch.randperm(len(x), generator=torch.Generator().manual_seed(draw))
        bank, new = (
            ood_lab.features_from_arrays(x[rows]) for rows in (order[:n], order[n : n + NEW])
        )
        it = cross_fitted(make().fit(bank), bank)
        scores = it.score(new)
        shares[draw] = [float(it.at(a).is_ood(scores).double().mean()) for a in ALPHAS]
        groups[draw] = group_comparison(it.id_scores, scores).p_value <= 0.05
    errors = shares.std(axis=0, ddof=1) / DRAWS**0.5
    cells = [f"{s:.2%} ± {e:.2%}" for s, e in zip(shares.mean(axis=0), errors, strict=True)]
    return [*cells, f"{groups.mean():.1%}"]


def main() -> None:
    """Prints the table of docs/results/uncertainty.md."""
    x = features()
    projection = torch.randn(x.shape[1], 64, generator=torch.Generator().manual_seed(0))
    print("| detector | ID images | alpha 0.01 | alpha 0.05 | alpha 0.1 | groups, p ≤ 0.05 |")
    print("|---|---|---|---|---|---|")
    for make, given in ((KNN, x), (MDS, x @ projection)):
        for n in SIZES:
            print(f"| `{make.name}` | {n} | {' | '.join(rates(make, given, n))} |", flush=True)


if __name__ == "__main__":
    main()
