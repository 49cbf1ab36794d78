"""CPU time of extraction, fit and score of all detectors, over plain forward passes.

Run by hand: ``python -m tests.benchmarks.shared_pass``. A ResNet-20 at 32 x 32; unit = one plain
forward over the same fit, val and eval images through the same DataLoader, timed just before and
after. With ``--peer`` the same 13 detectors also run one by one through pytorch-ood's own fit and
predict on loaders. Random images and weights cost what real ones cost; ``--images`` and
``--weights`` take real ones.
"""

from __future__ import annotations

import argparse
import logging
import statistics
import tempfile
import time
import warnings
from collections.abc import Callable, Iterator
from pathlib import Path

import lightning
import numpy as np
import pytorch_ood.detector as peer
import torch
from PIL import Image
from torch import Tensor, nn
from torch.nn import functional as F
from torch.utils.data import DataLoader, Dataset

from ood_lab import detectors as own
from ood_lab.detectors.base import Detector, checked_score
from ood_lab.features.extract import extract
from ood_lab.features.passes import build_loader
from ood_lab.models.build import module_backbone
from ood_lab.notebook.detectors import chosen_detectors

MEAN, STD = (0.485, 0.456, 0.406), (0.229, 0.224, 0.225)
STAGES = ["act1", "layer1", "layer2", "layer3"]


class Block(nn.Module):
    def __init__(self, inputs: int, outputs: int, stride: int) -> None:
        super().__init__()
        self.conv1 = nn.Conv2d(inputs, outputs, 3, stride, 1, bias=False)
        self.bn1 = nn.BatchNorm2d(outputs)
        self.conv2 = nn.Conv2d(outputs, outputs, 3, 1, 1, bias=False)
        self.bn2 = nn.BatchNorm2d(outputs)
        self.stride, self.more = stride, outputs - inputs

    def forward(self, x: Tensor) -> Tensor:
        y = self.bn2(self.conv2(F.relu(self.bn1(self.conv1(x)))))
        if self.more:
            half = self.more // 2
            x = F.pad(x[:, :, :: self.stride, :: self.stride], (0, 0, 0, 0, half, half))
        return F.relu(y + x)


class ResNet20(nn.Module):
    """3 stages of 3 blocks, 16-32-64 channels, shortcuts without parameters."""

    def __init__(self) -> None:
        super().__init__()
        self.conv1, self.bn1 = nn.Conv2d(3, 16, 3, 1, 1, bias=False), nn.BatchNorm2d(16)
        self.act1 = nn.ReLU()
        self.layer1 = nn.Sequential(*(Block(16, 16, 1) for _ in range(3)))
        self.layer2 = nn.Sequential(Block(16, 32, 2), *(Block(32, 32, 1) for _ in range(2)))
        self.layer3 = nn.Sequential(Block(32, 64, 2), *(Block(64, 64, 1) for _ in range(2)))
        self.linear = nn.Linear(64, 10)

    def stages(self) -> list[nn.Module]:
        stem = nn.Sequential(self.conv1, self.bn1, self.act1)
        return [stem, self.layer1, self.layer2, self.layer3]

    def features(self, x: Tensor) -> Tensor:
        for stage in self.stages():
            x = stage(x)
        return x.mean(dim=(2, 3))

    def forward(self, x: Tensor) -> Tensor:
        return self.linear(self.features(x))


class Pictures(Dataset):
    """Images in memory; their labels are what the network says, so that every fit has its own."""

    transform = "in memory"

    def __init__(self, name: str, images: Tensor, net: nn.Module) -> None:
        self.name, self.identity, self.images = name, name, images
        with torch.inference_mode():
            self.labels = torch.cat([net(x).argmax(1) for x in images.split(200)]).tolist()

    def __len__(self) -> int:
        return len(self.images)

    def __getitem__(self, index: int) -> dict:
        return {"image": self.images[index], "index": index, "label": self.labels[index]}


def pictures(folder: Path | None, n: int) -> Tensor:
    """``[n, 3, 32, 32]`` normalised: the files under a folder, repeated if too few, or noise."""
    if folder is None:
        return torch.randn(n, 3, 32, 32, generator=torch.Generator().manual_seed(0))
    files = sorted(p for p in folder.rglob("*") if p.suffix.lower() in (".jpg", ".jpeg", ".png"))
    order = np.random.default_rng(0).permutation(len(files))[:n]
    arrays = [np.asarray(Image.open(files[i]).convert("RGB").resize((32, 32))) for i in order]
    images = torch.from_numpy(np.stack(arrays)).permute(0, 3, 1, 2) / 255
    images = (images - torch.tensor(MEAN).view(3, 1, 1)) / torch.tensor(STD).view(3, 1, 1)
    return images[torch.arange(n) % len(images)]


def network(weights: Path | None) -> ResNet20:
    torch.manual_seed(0)
    net = ResNet20().eval().requires_grad_(False)
    if weights is not None:
        net.load_state_dict(torch.load(weights, weights_only=True))
    else:  # without this a random network says the same class to everything
        net.linear.bias -= net(pictures(None, 200)).mean(dim=0)
    return net


class Bench:
    def __init__(self, args: argparse.Namespace) -> None:
        self.net, self.batch_size = network(args.weights), args.batch_size
        sizes = {"train": args.fit, "val": args.val, "eval": args.eval}
        images = pictures(args.images, sum(sizes.values())).split(list(sizes.values()))
        self.sets = {k: Pictures(k, x, self.net) for k, x in zip(sizes, images, strict=True)}
        self.backbone = module_backbone(
            self.net, "linear", input_size=32, mean=MEAN, std=STD, crop_pct=1.0
        )
        self.trainer = lightning.Trainer(
            accelerator="cpu",
            devices=1,
            logger=False,
            enable_progress_bar=False,
            enable_model_summary=False,
            enable_checkpointing=False,
        )

    def loader(self, split: str) -> DataLoader:
        return build_loader(self.trainer, self.sets[split], self.batch_size, 0)

    def forwards(self) -> None:
        with torch.inference_mode():
            for split in self.sets:
                for batch in self.loader(split):
                    self.net(batch["image"])

    def shared(self, detectors: list[Detector]) -> None:
        """Extraction to disk, fit, score: everything that a run does, but for decoding."""
        with tempfile.TemporaryDirectory() as root:
            banks = {}
            for split, dataset in self.sets.items():
                columns = [
                    d.column
                    for d in detectors
                    if d.column
                    and (split == "eval" or (d.column.needed_for_fit and d.fit_split == split))
                ]
                banks[split] = extract(
                    self.trainer, self.backbone, dataset, root, columns, batch_size=self.batch_size
                )
            for detector in detectors:
                if detector.fit_split:
                    detector.fit(banks[detector.fit_split])
                checked_score(detector, banks["eval"])

    def pairs(self, split: str) -> Iterator[tuple[Tensor, Tensor]]:
        for batch in self.loader(split):
            yield batch["image"], batch["label"]

    def one_by_one(self) -> None:
        """pytorch-ood: every detector fits on a loader and predicts on a loader."""
        for detector, split in self.peers():
            gradients = isinstance(detector, peer.ODIN | peer.GradNorm)
            with torch.set_grad_enabled(gradients):
                if split:
                    detector.fit(Sized(self, split))
                for image, _ in self.pairs("eval"):
                    detector.predict(image)

    def peers(self) -> list[tuple[peer.api.Detector, str | None]]:
        net, w, b = self.net, self.net.linear.weight, self.net.linear.bias

        def pooled(x: Tensor) -> Tensor:
            return net.features(x)[:, :, None, None]

        def head(x: Tensor) -> Tensor:
            return net.linear(x.flatten(1))

        end = nn.Sequential(nn.AdaptiveAvgPool2d(1), nn.Flatten(), net.linear)
        trainable = network(None)
        trainable.load_state_dict(net.state_dict())
        trainable.requires_grad_(True)
        return [
            (peer.MaxSoftmax(net), None),
            (peer.EnergyBased(net), None),
            (peer.MaxLogit(net), None),
            (peer.KLMatching(net), "val"),
            (peer.OpenMax(net), "train"),
            (peer.GradNorm(trainable, param_filter=lambda n: n == "linear.weight"), None),
            (peer.KNN(net.features), "train"),
            (peer.Mahalanobis(net.features), "train"),
            (peer.ViM(net.features, 32, w, b), "train"),
            (peer.DICE(net.features, w, b, p=0.9), "train"),
            (peer.ReAct(pooled, head), "val"),
            (peer.ODIN(net, norm_std=list(STD)), None),
            (peer.Gram(end, net.stages(), 10), "train"),
        ]


class Sized:
    """What pytorch-ood needs of a loader: pairs, again and again, and their number."""

    def __init__(self, bench: Bench, split: str) -> None:
        self.bench, self.split = bench, split

    def __iter__(self) -> Iterator[tuple[Tensor, Tensor]]:
        return self.bench.pairs(self.split)

    def __len__(self) -> int:
        return len(self.bench.loader(self.split))


def chosen(n: int) -> list[Detector]:
    detectors: list[Detector] = [
        own.MSP(), own.MLS(), own.EBO(), own.KLM(), own.OpenMax(), own.GradNorm(), own.KNN(),
        own.MDS(), own.ViM(), own.DICE(), own.ReAct(),
        own.ODIN(), own.Gram(layers=[f"net.{name}" for name in STAGES]),
        own.RankFeat(), own.ASH(),
    ]  # fmt: skip
    return detectors[:n]


def default(network: bool) -> list[Detector]:
    """What runs by default; ``network``: those too that work inside the extraction pass."""
    detectors = chosen_detectors("default", "openood") | {
        "gram": own.Gram(layers=[f"net.{name}" for name in STAGES])
    }
    return [d for d in detectors.values() if network or d.column is None]


def timed(work: Callable[[], None]) -> tuple[float, float]:
    cpu, wall = time.process_time(), time.perf_counter()
    work()
    return time.process_time() - cpu, time.perf_counter() - wall


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--fit", type=int, default=2000)
    parser.add_argument("--val", type=int, default=200)
    parser.add_argument("--eval", type=int, default=1600)
    parser.add_argument("--batch-size", type=int, default=200)
    parser.add_argument("--threads", type=int, default=1)
    parser.add_argument("--repeats", type=int, default=3)
    parser.add_argument("--images", type=Path, help="folder of images")
    parser.add_argument("--weights", type=Path, help="state dict of the ResNet-20")
    parser.add_argument("--peer", action="store_true", help="also pytorch-ood, one by one")
    args = parser.parse_args()
    torch.set_num_threads(args.threads)
    warnings.filterwarnings("ignore")
    logging.getLogger("lightning.pytorch").setLevel(logging.ERROR)
    bench = Bench(args)
    plans: dict[str, Callable[[], None]] = {
        "11, features and logits": lambda: bench.shared(chosen(11)),
        "13, with ODIN and Gram": lambda: bench.shared(chosen(13)),
        "15, with RankFeat and ASH": lambda: bench.shared(chosen(15)),
        f"{len(default(False))}, default without network": lambda: bench.shared(default(False)),
        f"{len(default(True))}, default": lambda: bench.shared(default(True)),
    }
    if args.peer:
        plans["13, pytorch-ood one by one"] = bench.one_by_one
    bench.forwards()
    ratios: dict[str, list[tuple[float, float]]] = {plan: [] for plan in plans}
    before = timed(bench.forwards)
    for _ in range(args.repeats):
        for plan, work in plans.items():
            spent, after = timed(work), timed(bench.forwards)
            cpu, wall = (2 * s / (b + a) for s, b, a in zip(spent, before, after, strict=True))
            ratios[plan].append((cpu, wall))
            before = after
    images = args.fit + args.val + args.eval
    print(f"\nunit = plain forward over {images:,} images: {before[0]:.2f} s CPU now")
    print(f"{'detectors':32}{'CPU':>8}{'wall':>8}   (median of {args.repeats}; min-max CPU)")
    for plan, values in ratios.items():
        cpu, wall = ([v[i] for v in values] for i in (0, 1))
        spread = f"{min(cpu):.2f}-{max(cpu):.2f}"
        print(f"{plan:32}{statistics.median(cpu):8.2f}{statistics.median(wall):8.2f}   ({spread})")


if __name__ == "__main__":
    main()
