"""Images per second of what surrounds the network. Run by hand::

    python -m tests.benchmarks.throughput extraction [--network efficientnet_lite0]
    python -m tests.benchmarks.throughput files [--network resnet50] [--accelerator gpu]
    python -m tests.benchmarks.throughput loading [--images DIR]
    python -m tests.benchmarks.throughput training [--network resnet10s]

- ``extraction``: ``extract`` to disk against a bare loop of the same network over the same
  DataLoader, in the chunk and memory format that extraction has chosen: at least 0.95.
- ``files``: ``extract`` of JPEGs, in as many loader processes as it takes, against a bare loop with
  ``--workers``; ``--accelerator gpu --workers 2`` shows what more of them do for a GPU.
- ``loading``: the loader of ``data=folder`` against torchvision's ImageFolder with the same
  transform, over JPEGs of real size (500 x 375, made where no folder is given): at least 1.0.
- ``training``: ``Trainer.fit`` of our classifier against a bare loop with the same optimiser, data
  in memory: at least 0.9.

Both sides run by turns in one process; the ratio of the medians is printed. A busy machine moves
both; take the ratio.
"""

from __future__ import annotations

import argparse
import functools
import logging
import statistics
import tempfile
import time
import warnings
from collections.abc import Callable
from pathlib import Path
from typing import Any

import lightning
import numpy as np
import torch
from PIL import Image
from torch import Tensor
from torch.nn import functional as F
from torch.utils.data import DataLoader, Dataset
from torchvision.datasets import ImageFolder

from ood_lab.data.datamodules.folder import FolderDataModule
from ood_lab.features.extraction_pass import collate
from ood_lab.models import Classifier
from ood_lab.models.backbone import Backbone
from ood_lab.models.loading.timm_networks import timm_backbone
from tests.bank_extraction import extract

QUICKSTART = {"layers": [1, 1, 1, 1], "channels": [32, 64, 128, 256]}


class InMemory(Dataset):
    """Random images and labels."""

    name, transform, groups = "in memory", "none", None

    def __init__(self, n: int, side: int, classes: int) -> None:
        generator = torch.Generator().manual_seed(0)
        self.identity = f"{n} of {side} pixels"
        self.images = torch.randn(n, 3, side, side, generator=generator)
        self.labels = torch.randint(classes, (n,), generator=generator).tolist()

    def __len__(self) -> int:
        return len(self.images)

    def __getitem__(self, index: int) -> dict:
        return {"image": self.images[index], "index": index, "label": self.labels[index]}


def network(name: str, classes: int) -> tuple[Backbone, int]:
    """A backbone with random weights, and its input size."""
    torch.manual_seed(0)
    if name == "resnet10s":
        settings = {"input_size": 64, "mean": 0.5, "std": 0.5, "crop_pct": 1.0}
        return timm_backbone("resnet18", classes, kwargs=QUICKSTART, **settings), 64
    backbone = timm_backbone(name, classes)
    return backbone, int(backbone.data_config["input_size"][-1])


def trainer(accelerator: str = "cpu", **options: object) -> lightning.Trainer:
    return lightning.Trainer(
        accelerator=accelerator, devices=1, logger=False, enable_progress_bar=False,
        enable_model_summary=False, enable_checkpointing=False, **options,
    )  # fmt: skip


def compare(ours: Callable[[], None], bare: Callable[[], None], n: int, repeats: int) -> None:
    """Prints images per second of both and their ratio, in processor and wall time."""
    spent: dict[str, list[tuple[float, float]]] = {"ours": [], "bare": []}
    for _ in range(repeats):
        for name, work in (("ours", ours), ("bare", bare)):
            cpu, wall = time.process_time(), time.perf_counter()
            work()
            spent[name].append((time.process_time() - cpu, time.perf_counter() - wall))
    for place, clock in enumerate(("processor", "wall")):
        a, b = (statistics.median(run[place] for run in spent[name]) for name in ("ours", "bare"))
        print(f"{clock:10} {n / a:9.1f} images/s, bare {n / b:9.1f}: ratio {b / a:.3f}")


def extraction(args: argparse.Namespace) -> None:
    backbone, side = network(args.network, 10)
    backbone.eval().requires_grad_(False)
    data, fit = InMemory(args.images_in_memory, side, 10), trainer()
    with tempfile.TemporaryDirectory() as root:
        bank = extract(fit, backbone, data, f"{root}/first", batch_size=args.batch_size)
        assert bank is not None
        size, layout = bank.record.chunk or 16, getattr(torch, bank.record.memory_format)
        print(f"{args.network}: {size} at a time, {layout}")
        folders = iter(range(1_000_000))

        def ours() -> None:
            extract(fit, backbone, data, f"{root}/{next(folders)}", batch_size=args.batch_size)

        def bare() -> None:
            backbone.to(memory_format=layout)
            with torch.inference_mode():
                for batch in DataLoader(data, args.batch_size, collate_fn=collate):
                    for part in batch["image"].split(size):
                        backbone(part.contiguous(memory_format=layout))
            backbone.to(memory_format=torch.contiguous_format)

        compare(ours, bare, len(data), args.repeats)


def photographs(folder: Path, n: int) -> Path:
    """JPEGs of 500 x 375 pixels, about 50 KB each, in two classes."""
    rng = np.random.default_rng(0)
    for i in range(n):
        coarse = Image.fromarray(rng.integers(0, 256, (24, 32, 3), np.uint8)).resize((500, 375))
        noise = rng.normal(0, 8, (375, 500, 3))
        pixels = np.clip(np.asarray(coarse) + noise, 0, 255).astype(np.uint8)
        path = folder / f"class{i % 2}" / f"{i}.jpg"
        path.parent.mkdir(parents=True, exist_ok=True)
        Image.fromarray(pixels).save(path, quality=90)
    return folder


def files(args: argparse.Namespace) -> None:
    backbone, _ = network(args.network, 10)
    backbone.eval().requires_grad_(False)
    fit = trainer(args.accelerator, precision=args.precision)
    device = fit.strategy.root_device
    with tempfile.TemporaryDirectory() as scratch:
        folder = args.images or photographs(Path(scratch) / "images", args.images_in_memory)
        data = datamodule(folder, args, backbone.transform).predict_dataset("test")
        folders = (f"{scratch}/{i}" for i in range(1_000_000))

        def ours() -> None:
            options = {"batch_size": args.batch_size, "num_workers": args.workers}
            extract(fit, backbone, data, next(folders), **options)

        def bare() -> None:
            backbone.to(device)
            options = {"num_workers": args.workers, "collate_fn": collate, "pin_memory": True}
            with torch.inference_mode(), fit.precision_plugin.forward_context():
                for batch in DataLoader(data, args.batch_size, **options):
                    backbone(batch["image"].to(device, non_blocking=True)).logits.cpu()
            backbone.to("cpu")

        compare(ours, bare, len(data), args.repeats)


def datamodule(folder: Path, args: argparse.Namespace, transform: Any) -> FolderDataModule:
    sets = {"train": str(folder), "test": str(folder)}
    module = FolderDataModule(
        id=sets, ood={}, check="off", batch_size=args.batch_size, num_workers=args.workers
    )
    module.use_transform(eval=transform)
    return module


def loading(args: argparse.Namespace) -> None:
    with tempfile.TemporaryDirectory() as scratch:
        folder = args.images or photographs(Path(scratch) / "images", args.images_in_memory)
        transform = network("efficientnet_lite0", 10)[0].transform
        module = datamodule(folder, args, transform)
        theirs = ImageFolder(folder, transform)

        def ours() -> None:
            for _ in module.predict_loader("test"):
                pass

        def bare() -> None:
            for _ in DataLoader(theirs, args.batch_size, num_workers=args.workers):
                pass

        compare(ours, bare, len(theirs), args.repeats)


def training(args: argparse.Namespace) -> None:
    backbone, side = network(args.network, 10)
    data = InMemory(args.images_in_memory, side, 10)
    loader = DataLoader(data, min(args.batch_size, 64), shuffle=True, drop_last=True)
    optimizer = functools.partial(torch.optim.AdamW, lr=1e-4)

    def ours() -> None:
        trainer(max_epochs=1).fit(Classifier(backbone, optimizer), loader)

    def bare() -> None:
        backbone.train()
        steps = optimizer(backbone.parameters())
        for batch in loader:
            loss: Tensor = F.cross_entropy(backbone(batch["image"]).logits, batch["label"])
            steps.zero_grad()
            loss.backward()
            steps.step()

    compare(ours, bare, len(data), args.repeats)


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    works = {"extraction": extraction, "files": files, "loading": loading, "training": training}
    parser.add_argument("what", choices=sorted(works))
    parser.add_argument("--network", default="resnet10s", help="resnet10s, or any timm model")
    parser.add_argument("--images", type=Path, help="folder of images, one sub-folder per class")
    parser.add_argument("--images-in-memory", type=int, default=1024)
    parser.add_argument("--batch-size", type=int, default=256)
    parser.add_argument("--workers", type=int, default=0)
    parser.add_argument("--threads", type=int, default=1)
    parser.add_argument("--repeats", type=int, default=3)
    parser.add_argument("--accelerator", default="cpu", choices=("cpu", "gpu"), help="of files")
    parser.add_argument("--precision", default="32-true", help="of files: bf16-mixed, for example")
    args = parser.parse_args()
    torch.set_num_threads(args.threads)
    warnings.filterwarnings("ignore")
    logging.getLogger("lightning.pytorch").setLevel(logging.ERROR)
    works[args.what](args)


if __name__ == "__main__":
    main()
