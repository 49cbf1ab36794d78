"""Time of extraction, fit and score of all detectors, over the best plain forward passes.

Run by hand::

    python -m tests.benchmarks.shared_pass --network resnet50 [--images DIR] [--peer] [--only TEXTS]
    python -m tests.benchmarks.shared_pass --network NAME --accelerator gpu --precision bf16-mixed

Unit = one plain forward over the same fit, val and eval images, at the batch size and in the memory
format that are fastest in this run, timed just before and after. Beside it what ODIN takes at least
(``ODIN's floor``), ``Trainer.predict`` at the default batch size and, with ``--peer``, the first 13
detectors one by one through pytorch-ood's own fit and predict on loaders. Images are in memory:
decoding is not part of it. Random images and weights cost what real ones cost; ``--images`` takes a
folder of real ones.

Peak memory is counted above the process as it is when the pass begins: with the network and the
images, but without a bank. Detectors that refuse a network or its features are left out and named.
``ODIN, iODIN, AdaSCALE`` take two gradients at their defaults, of the cross entropy at T = 1,000
and of the largest logit: 2 + 2.2 forward passes for each at most, 6.4 together.
"""

from __future__ import annotations

import argparse
import copy
import logging
import statistics
import tempfile
import time
import warnings
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, NamedTuple

import lightning
import numpy as np
import pytorch_ood.detector as peer
import torch
from PIL import Image
from torch import Tensor, nn
from torch.nn import functional as F
from torch.utils.data import DataLoader, Dataset

from ood_lab import detectors as own
from ood_lab.api.detector_settings import chosen_detectors
from ood_lab.detectors.base import Detector, DetectorRefusal, checked_score
from ood_lab.detectors.support.compute_device import computing_on
from ood_lab.features.bank import FeatureBank
from ood_lab.features.extraction_pass import collate
from ood_lab.models.backbone import Backbone
from ood_lab.models.loading.timm_networks import module_backbone, timm_backbone
from tests.bank_extraction import extract

MEAN, STD = (0.485, 0.456, 0.406), (0.229, 0.224, 0.225)
CLASSES = 10
SIZES = (4, 8, 16, 32, 64, 128, 256)
LARGE = (512, 1024)  # on a GPU


class Chunk(NamedTuple):
    """Images that go through the network together, and how they are in memory."""

    size: int
    channels_last: bool = False

    @property
    def memory_format(self) -> torch.memory_format:
        return torch.channels_last if self.channels_last else torch.contiguous_format

    def describe(self) -> str:
        return f"{self.size} at a time, {self.memory_format}"


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

    def forward(self, x: Tensor) -> Tensor:
        x = self.layer3(self.layer2(self.layer1(self.act1(self.bn1(self.conv1(x))))))
        return self.linear(x.mean(dim=(2, 3)))


class Pictures(Dataset):
    """Images in memory; their labels are what the network says, so that every fit has its own."""

    transform, groups = "in memory", None

    def __init__(self, name: str, images: Tensor, labels: Tensor) -> None:
        self.name, self.identity, self.images = name, name, images
        self.labels = labels.tolist()

    def __len__(self) -> int:
        return len(self.images)

    def __getitem__(self, index: int) -> dict:
        return {"image": self.images[index], "index": index, "label": self.labels[index]}


def pictures(folder: Path | None, n: int, side: int) -> Tensor:
    """``[n, 3, side, side]`` normalised: files under a folder, repeated if too few, or noise."""
    if folder is None:
        return torch.randn(n, 3, side, side, generator=torch.Generator().manual_seed(0))
    files = sorted(p for p in folder.rglob("*") if p.suffix.lower() in (".jpg", ".jpeg", ".png"))
    order = np.random.default_rng(0).permutation(len(files))[:n]
    arrays = [np.asarray(Image.open(files[i]).convert("RGB").resize((side, side))) for i in order]
    images = torch.from_numpy(np.stack(arrays)).permute(0, 3, 1, 2) / 255
    images = (images - torch.tensor(MEAN).view(3, 1, 1)) / torch.tensor(STD).view(3, 1, 1)
    return images[torch.arange(n) % len(images)]


def network(name: str, weights: Path | None, side: int) -> Backbone:
    """A network with random weights, or those of a file, in evaluation mode."""
    torch.manual_seed(0)
    if name == "resnet20":
        backbone: Backbone = module_backbone(
            ResNet20(), "linear", input_size=side, mean=MEAN, std=STD, crop_pct=1.0
        )
        if weights is not None:
            backbone.load(weights)
    else:
        backbone = timm_backbone(
            name, num_classes=CLASSES, weights=weights, new_head=weights is not None, mean=MEAN,
            std=STD, allow_transform_mismatch=True,
        )  # fmt: skip
    return backbone.eval().requires_grad_(False)


def outputs(backbone: Backbone, images: Tensor, device: torch.device) -> tuple[Tensor, Tensor]:
    """Logits and features on the CPU, where the network is before and after."""
    backbone.to(device)
    with torch.inference_mode():
        parts = [backbone(x.to(device)) for x in images.split(16)]
    backbone.to("cpu")
    return torch.cat([p.logits for p in parts]).cpu(), torch.cat([p.features for p in parts]).cpu()


def spread_classes(backbone: Backbone, images: Tensor, device: torch.device) -> None:
    """Without this a random network says the same class to everything."""
    _, features = outputs(backbone, images, device)
    features = features - features.mean(dim=0)
    head = backbone.head
    head.weight.data = torch.linalg.svd(features, full_matrices=False).Vh[:CLASSES].clone()
    head.weight.data *= 3 / (features @ head.weight.T).std()
    head.bias.data.zero_()
    head.bias.data -= outputs(backbone, images, device)[0].mean(dim=0)


def trainer_on(accelerator: str, precision: str) -> lightning.Trainer:
    return lightning.Trainer(
        accelerator=accelerator,
        precision=precision,
        devices=1,
        logger=False,
        enable_progress_bar=False,
        enable_model_summary=False,
        enable_checkpointing=False,
    )


class Plain(lightning.LightningModule):
    """What anyone would write to predict with a network."""

    def __init__(self, backbone: Backbone) -> None:
        super().__init__()
        self.backbone = backbone

    def predict_step(self, batch: dict[str, Tensor], batch_idx: int) -> Tensor:
        return self.backbone(batch["image"]).logits


class Bench:
    def __init__(self, args: argparse.Namespace) -> None:
        side = 32 if args.network == "resnet20" else 224
        self.backbone = network(args.network, args.weights, side)
        self.batch_size = args.batch_size
        sizes = {"train": args.fit, "val": args.val, "eval": args.eval}
        self.trainer = trainer_on(args.accelerator, args.precision)
        self.device = self.trainer.strategy.root_device
        images = pictures(args.images, sum(sizes.values()), side)
        if args.weights is None:
            spread_classes(self.backbone, images[: args.fit], self.device)
        labels = outputs(self.backbone, images, self.device)[0].argmax(1)
        parts = zip(*(x.split(list(sizes.values())) for x in (images, labels)), strict=True)
        self.sets = {name: Pictures(name, *part) for name, part in zip(sizes, parts, strict=True)}
        self.sizes = SIZES if self.device.type == "cpu" else (*SIZES, *LARGE)
        self.best = Chunk(min(16, self.batch_size))
        self.extraction = (0.0, 0.0)
        self.refusals: set[str] = set()

    def loader(self, split: str) -> DataLoader:
        return DataLoader(self.sets[split], self.batch_size, collate_fn=collate)

    def find_unit(self) -> Chunk:
        """The fastest batch size and memory format for a plain forward.

        The best of two runs, but for sizes that are far from the best already.
        """
        images = self.sets["train"].images[: max(256, max(self.sizes))]
        found: dict[Chunk, float] = {}
        clock = 0 if self.device.type == "cpu" else 1  # a GPU's time is no processor's
        for channels_last in (False, True):
            for size in (s for s in self.sizes if s <= len(images)):
                chunk, some = Chunk(size, channels_last), images[: max(size, 32)]
                self.forward(some[: min(size, 32)], chunk)
                for _ in range(2):
                    seconds = timed(lambda s=some, c=chunk: self.forward(s, c))[clock] / len(some)
                    found[chunk] = min(seconds, found.get(chunk, seconds))
                    if seconds > 1.2 * min(found.values()):
                        break
        for chunk, seconds in found.items():
            print(f"plain forward: {chunk.describe()}: {1e3 * seconds:.2f} ms per image")
        self.best = min(found, key=found.__getitem__)
        return self.best

    def forward(self, images: Tensor, chunk: Chunk) -> None:
        self.backbone.to(self.device, memory_format=chunk.memory_format)
        with torch.inference_mode(), self.trainer.precision_plugin.forward_context():
            for part in images.split(chunk.size):
                some = part.to(self.device)
                self.backbone(some.contiguous(memory_format=chunk.memory_format))
        self.backbone.to(memory_format=torch.contiguous_format)

    def forwards(self) -> None:
        for data in self.sets.values():
            self.forward(data.images, self.best)

    def odin_floor(self) -> None:
        """What ODIN takes at least: the fit's images as always, twice and a gradient for others."""
        self.backbone.to(self.device, memory_format=self.best.memory_format)
        with self.trainer.precision_plugin.forward_context():
            for split, data in self.sets.items():
                for part in data.images.split(self.best.size):
                    part = part.to(self.device)
                    some = part.contiguous(memory_format=self.best.memory_format)
                    if split != "train":
                        some.requires_grad_()
                        loss = torch.logsumexp(self.backbone(some).logits / 1000, dim=1).sum()
                        some = some - 0.0014 * torch.autograd.grad(loss, some)[0].sign()
                    with torch.inference_mode():
                        self.backbone(some)
        self.backbone.to(memory_format=torch.contiguous_format)

    def predict(self) -> None:
        """Lightning's own loop at the default batch size."""
        for split in self.sets:
            self.trainer.predict(Plain(self.backbone), self.loader(split), return_predictions=False)

    def shared(self, detectors: list[Detector]) -> None:
        """Extraction to disk, fit, score: everything that a run does, but for decoding."""
        with tempfile.TemporaryDirectory() as root:
            banks = {}
            cpu, wall = time.process_time(), time.perf_counter()
            for split, dataset in self.sets.items():
                columns = [
                    d.extraction_hook
                    for d in detectors
                    if d.extraction_hook and (split == "eval" or d.fit_split == split)
                ]
                banks[split] = extract(
                    self.trainer, self.backbone, dataset, root, columns, batch_size=self.batch_size
                )
            self.extraction = time.process_time() - cpu, time.perf_counter() - wall
            with computing_on(str(self.device)):
                self.score(detectors, banks)

    def score(self, detectors: list[Detector], banks: dict[str, FeatureBank]) -> None:
        for detector in detectors:
            try:
                if detector.fit_split:
                    detector.fit(banks[detector.fit_split])
                checked_score(detector, banks["eval"])
            except DetectorRefusal as refusal:  # as of a network whose features have a sign
                self.refusals.add(str(refusal))

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
        backbone, head = self.backbone, self.backbone.head
        w, b = head.weight, head.bias

        def logits(x: Tensor) -> Tensor:
            return backbone(x).logits

        def features(x: Tensor) -> Tensor:
            return backbone(x).features

        def pooled(x: Tensor) -> Tensor:
            return features(x)[:, :, None, None]

        trainable = copy.deepcopy(backbone.net).requires_grad_(True)
        last = f"{backbone.reading.names[0]}.weight"
        found: list[tuple[peer.api.Detector, str | None]] = [
            (peer.MaxSoftmax(logits), None),
            (peer.EnergyBased(logits), None),
            (peer.MaxLogit(logits), None),
            (peer.KLMatching(logits), "val"),
            (peer.OpenMax(logits), "train"),
            (peer.GradNorm(trainable, param_filter=lambda n: n == last), None),
            (peer.KNN(features), "train"),
            (peer.Mahalanobis(features), "train"),
            (peer.ViM(features, 32, w, b), "train"),
            (peer.DICE(features, w, b, p=0.9), "train"),
            (peer.ReAct(pooled, lambda x: head(x.flatten(1))), "val"),
            (peer.ODIN(logits, norm_std=list(STD)), None),
        ]
        if cut := stages(backbone.net):
            end = nn.Sequential(nn.AdaptiveAvgPool2d(1), nn.Flatten(), head)
            found.append((peer.Gram(end, cut, CLASSES), "train"))
        else:
            print("pytorch-ood's Gram needs a network cut into stages: left out")
        return found


def stages(net: nn.Module) -> list[nn.Module]:
    """The stages of a residual network, the stem first; none of another network."""
    names = [f"layer{i}" for i in range(1, 5) if hasattr(net, f"layer{i}")]
    stem = [getattr(net, n) for n in ("conv1", "bn1", "act1", "maxpool") if hasattr(net, n)]
    return [nn.Sequential(*stem), *(getattr(net, n) for n in names)] if names else []


class Sized:
    """What pytorch-ood needs of a loader: pairs, again and again, and their number."""

    def __init__(self, bench: Bench, split: str) -> None:
        self.bench, self.split = bench, split

    def __iter__(self) -> Iterator[tuple[Tensor, Tensor]]:
        return self.bench.pairs(self.split)

    def __len__(self) -> int:
        return len(self.bench.loader(self.split))


class Usable(NamedTuple):
    """Detectors that the network serves, and why not the others."""

    detectors: list[Detector]
    refused: list[str]


def chosen(n: int, backbone: Backbone) -> Usable:
    """The first ``n`` of a fixed list, as far as the network serves them."""
    detectors: list[Detector] = [
        own.MSP(), own.MLS(), own.EBO(), own.KLM(), own.OpenMax(), own.GradNorm(), own.KNN(),
        own.MDS(), own.ViM(dim=32), own.DICE(), own.ReAct(), own.ODIN(), own.Gram(), own.RankFeat(),
        own.ASH(),
    ]  # fmt: skip
    usable = Usable([], [])
    for detector in detectors[:n]:
        try:
            if detector.extraction_hook is not None:
                detector.extraction_hook.layers(backbone)
            usable.detectors.append(detector)
        except DetectorRefusal as refusal:
            usable.refused.append(str(refusal))
    return usable


def default(network: bool, backbone: Backbone) -> Usable:
    """What runs by default; ``network``: those too that work inside the extraction pass."""
    usable = Usable([], [])
    for detector in chosen_detectors("default", "openood").values():
        if detector.extraction_hook is not None and not network:
            continue
        try:
            if detector.extraction_hook is not None:
                detector.extraction_hook.layers(backbone)
            usable.detectors.append(detector)
        except DetectorRefusal as refusal:
            usable.refused.append(str(refusal))
    return usable


def gradients() -> list[Detector]:
    """Those that need the gradient of the input."""
    return [own.ODIN(), own.IODIN(), own.AdaSCALEA(), own.AdaSCALEL()]


def timed(work: Callable[[], Any]) -> tuple[float, float]:
    """Processor and wall seconds, until a GPU is done as well."""
    cpu, wall = time.process_time(), time.perf_counter()
    work()
    if torch.cuda.is_available():
        torch.cuda.synchronize()
    return time.process_time() - cpu, time.perf_counter() - wall


def peak_above(work: Callable[[], Any]) -> int:
    """Bytes of memory that a piece of work takes at most, above what the process has (Linux)."""
    Path("/proc/self/clear_refs").write_text("5")  # forgets the peak so far
    before = _status("VmRSS")
    work()
    return _status("VmHWM") - before


def _status(key: str) -> int:
    lines = Path("/proc/self/status").read_text().splitlines()
    return 1024 * int(next(line.split()[1] for line in lines if line.startswith(key)))


def arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--network", default="resnet20", help="resnet20 at 32 px, or timm at 224")
    parser.add_argument("--fit", type=int, default=2000)
    parser.add_argument("--val", type=int, default=200)
    parser.add_argument("--eval", type=int, default=1600)
    parser.add_argument("--batch-size", type=int, default=256)
    parser.add_argument("--threads", type=int, default=1)
    parser.add_argument("--repeats", type=int, default=3)
    parser.add_argument("--images", type=Path, help="folder of images")
    parser.add_argument("--weights", type=Path, help="file of weights")
    parser.add_argument("--peer", action="store_true", help="also pytorch-ood, one by one")
    parser.add_argument("--accelerator", default="cpu", choices=("cpu", "gpu"))
    parser.add_argument("--precision", default="32-true", help="bf16-mixed, for example")
    parser.add_argument("--only", default="", help="texts with commas: plans with one in the name")
    return parser.parse_args()


def main() -> None:
    args = arguments()
    torch.set_num_threads(args.threads)
    warnings.filterwarnings("ignore")
    logging.getLogger("lightning.pytorch").setLevel(logging.ERROR)
    bench = Bench(args)
    plans: dict[str, Callable[[], None]] = {}
    for n in (11, 13, 15):
        usable = chosen(n, bench.backbone)
        name = f"{n} detectors" if not usable.refused else f"{len(usable.detectors)} of {n}"
        plans[name] = lambda d=usable.detectors: bench.shared(d)
    for reason in usable.refused:
        print(reason)
    for network in (False, True):
        found = default(network, bench.backbone).detectors
        text = "default" if network else "default without network"
        plans[f"{len(found)}, {text}"] = lambda d=found: bench.shared(d)
    plans["ODIN, iODIN, AdaSCALE"] = lambda: bench.shared(gradients())
    plans["msp"] = lambda: bench.shared([own.MSP()])
    plans["ODIN's floor"] = bench.odin_floor
    plans["Trainer.predict"] = bench.predict
    if args.peer:
        plans["pytorch-ood one by one"] = bench.one_by_one
    texts = args.only.split(",")
    plans = {plan: work for plan, work in plans.items() if any(text in plan for text in texts)}
    if not plans:
        raise SystemExit(f"--only {args.only!r}: no plan has such a text in its name")
    print("unit:", bench.find_unit().describe())
    largest = list(plans)[-1]
    peak = peak_above(plans[largest])
    bench.forwards()
    ratios: dict[str, list[tuple[float, float, float]]] = {plan: [] for plan in plans}
    before = timed(bench.forwards)
    for _ in range(args.repeats):
        for plan, work in plans.items():
            bench.extraction = (0.0, 0.0)
            spent, after = timed(work), timed(bench.forwards)
            cpu, wall = (2 * s / (b + a) for s, b, a in zip(spent, before, after, strict=True))
            extraction = 2 * bench.extraction[0] / (before[0] + after[0])
            ratios[plan].append((cpu, wall, extraction))
            before = after
            print(
                f"{plan}: CPU {cpu:.2f}, wall {wall:.2f}, extraction {extraction:.2f}", flush=True
            )
    images = args.fit + args.val + args.eval
    print(
        f"\n{args.network}: unit = plain forward over {images:,} images: {before[0]:.2f} s CPU, "
        f"{before[1]:.2f} s wall"
    )
    print(f"peak memory of '{largest}': {peak / 2**30:.2f} GiB")
    print(f"{'':26}{'CPU':>8}{'wall':>8}{'of it extraction':>18}   (median of {args.repeats})")
    print(*sorted(bench.refusals), sep="\n")
    for plan, values in ratios.items():
        cpu, wall, extraction = (statistics.median(v[i] for v in values) for i in range(3))
        print(f"{plan:26}{cpu:8.2f}{wall:8.2f}{extraction:18.2f}")


if __name__ == "__main__":
    main()
