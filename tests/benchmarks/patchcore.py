"""``patch_knn`` next to the plain forward, and next to anomalib's PatchCore. Run by hand::

    python -m tests.benchmarks.patchcore SOLAR EFFICIENTNET [--anomalib PYTHON]

SOLAR is the unpacked ``solar`` of ``../shared/data/fields``, EFFICIENTNET the weights of
``tf_efficientnet_lite0``, PYTHON an interpreter that has anomalib. Both have the same weights,
layers, images, number of places (PatchCore-1%) and weight of the score. Both choose places greedily
from a random start; the last row has those of ``patch_knn`` in anomalib. Times are of the processor
of one thread; those of scores include the forward.
"""

from __future__ import annotations

import argparse
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import timm
import torch
from PIL import Image
from safetensors.torch import load_file
from timm.data import create_transform, resolve_data_config
from torch import Tensor

NETWORK, LAYERS, SHARE = "tf_efficientnet_lite0", ["blocks.2", "blocks.4"], 0.01
BATCH = 16


def seconds(*calls: Callable[[], Any], rounds: int = 2) -> list[float]:
    """The smallest of each, by turns."""
    best = [float("inf")] * len(calls)
    for _ in range(rounds):
        for number, call in enumerate(calls):
            start = time.process_time()
            call()
            best[number] = min(best[number], time.process_time() - start)
    return best


@torch.inference_mode()
def of_anomalib(place: Path, weights: Path) -> None:
    """Scores the sets of ``place`` with anomalib, which this interpreter has."""
    from anomalib.models.image.patchcore.torch_model import PatchcoreModel

    sets: dict[str, Tensor] = torch.load(place)
    kept = sets.pop("kept")
    model = PatchcoreModel(LAYERS, NETWORK, pre_trained=False, num_neighbors=9)
    model.feature_extractor.feature_extractor.load_state_dict(load_file(weights), strict=False)
    start = time.process_time()
    model.train()
    model.feature_extractor.eval()
    for batch in sets.pop("train").split(BATCH):
        model(batch)
    model.subsample_embedding(sampling_ratio=SHARE)
    fit = time.process_time() - start
    model.eval()
    (score,) = seconds(lambda: [model(batch) for batch in sets["own"].split(BATCH)])
    results = {}
    for name, bank in {"anomalib": model.memory_bank, "anomalib, the same places": kept}.items():
        model.memory_bank = bank
        scores = {
            n: torch.cat([model(x).pred_score for x in s.split(BATCH)]) for n, s in sets.items()
        }
        results[name] = {"scores": scores, "fit": fit, "score": score / len(sets["own"])}
    torch.save(results, place)


def of_package(sets: dict[str, Tensor], net: torch.nn.Module) -> dict[str, Any]:
    """The same with ``patch_knn``."""
    import ood_lab
    from ood_lab.detectors import PatchKNN
    from ood_lab.detectors.base import Detector

    def bank(images: Tensor, detector: Detector) -> ood_lab.FeatureBank:
        return ood_lab.extract_features(net, images, detectors=detector)

    new = torch.cat([images for name, images in sets.items() if name != "train"])
    new = new.to(memory_format=torch.channels_last)

    @torch.inference_mode()
    def forward() -> None:
        for batch in new.split(BATCH):
            net(batch)

    layers = [f"net.{layer}" for layer in LAYERS]
    start = time.process_time()
    train = bank(sets["train"], PatchKNN(layers))
    one_percent = int(len(train) * 28 * 28 * SHARE)
    theirs = PatchKNN(layers, places=one_percent, reweight=True).fit(train)
    fit = time.process_time() - start
    few = PatchKNN(layers).fit(train)
    full = PatchKNN(layers, places=None, choice="random").fit(train)
    banks = {name: bank(images, theirs) for name, images in sets.items() if name != "train"}
    plain, extraction = (t / len(new) for t in seconds(forward, lambda: bank(new, theirs)))
    some, costs = banks["own"].rows(torch.arange(BATCH)), []
    for of in (theirs, few, full):
        (scoring,) = seconds(lambda of=of: of.score(some))
        costs.append(extraction + scoring / BATCH)
        print(f"{of.used['places']:,} places: {costs[-1] / plain:.2f} of the plain forward")
    scores = {name: theirs.score(images) for name, images in banks.items()}
    return {"scores": scores, "fit": fit, "score": costs[0], "kept": theirs.fitted["bank"]}


def main() -> None:
    """Prints the costs, and the comparison where anomalib is."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawTextHelpFormatter
    )
    parser.add_argument("solar", type=Path)
    parser.add_argument("weights", type=Path)
    parser.add_argument("--anomalib", metavar="PYTHON", help="an interpreter that has it")
    options = parser.parse_args()
    torch.set_num_threads(1)
    if options.solar.is_file():  # called by the lines below
        of_anomalib(options.solar, options.weights)
        return
    from ood_lab.metrics import SortedScores

    net = timm.create_model(NETWORK).eval()
    net.load_state_dict(load_file(options.weights))
    transform = create_transform(**resolve_data_config({}, model=net))
    sets = {
        folder.name: torch.stack(
            [transform(Image.open(file).convert("RGB")) for file in sorted(folder.iterdir())]
        )
        for folder in sorted(options.solar.iterdir())
    }
    results = {"patch_knn": of_package(sets, net)}
    if options.anomalib:
        with tempfile.TemporaryDirectory() as folder:
            place = Path(folder) / "sets.pt"
            torch.save(sets | {"kept": results["patch_knn"]["kept"]}, place)
            line = [options.anomalib, __file__, str(place), str(options.weights)]
            subprocess.run(line, check=True, stdout=sys.stderr)
            results |= torch.load(place)
    else:
        print("anomalib is skipped: --anomalib PYTHON names an interpreter that has it")
    ood = [name for name in sets if name not in ("train", "own")]
    print(f"\n| | {' | '.join(ood)} | fit | score |\n|{' --- |' * (len(ood) + 3)}")
    for name, of in results.items():
        own = of["scores"]["own"].double().numpy()
        aurocs = [SortedScores.of(own, of["scores"][s].double().numpy()).auroc() for s in ood]
        cells = " | ".join(f"{auroc:.1%}" for auroc in aurocs)
        print(f"| `{name}` | {cells} | {of['fit']:.0f} s | {1000 * of['score']:.0f} ms an image |")


if __name__ == "__main__":
    main()
