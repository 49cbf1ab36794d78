"""The bank of a set of which nothing but sums is gathered while its images pass."""

from __future__ import annotations

import shutil
from collections.abc import Collection
from functools import partial
from pathlib import Path
from typing import Any

import torch
from lightning.pytorch import Trainer

from ood_lab.features.bank import FeatureBank, weight_and_bias
from ood_lab.features.bank_identity import NetworkIdentity
from ood_lab.features.bank_store import BankStore
from ood_lab.features.cached_extraction import made_from
from ood_lab.features.derived_statistics import Derived
from ood_lab.features.extraction_pass import (
    BlockConsumer,
    DatasetParts,
    Images,
    pass_through,
)
from ood_lab.features.moments import FILE, Moments
from ood_lab.models.backbone import Backbone


class _Sums(BlockConsumer):
    """The moments of every part, as a file."""

    def __init__(self, folder: Path, wanted: Collection[str], trainer: Trainer) -> None:
        super().__init__()
        # Every process of a script that ddp started has named a folder of its own.
        self._folder = Path(trainer.strategy.broadcast(str(folder)))
        self._wanted, self._device = {"means", *wanted}, trainer.strategy.root_device
        self._moments = Moments(self._wanted)

    def block(self, rows: FeatureBank) -> None:
        self._moments.update(rows.features, rows.logits, rows.labels, self._device)

    def closed(self, part: int, errors: dict[int, str]) -> None:
        moments = self._moments.gathered()
        file = self._folder / f"{part:05d}.safetensors"
        FILE.write(file, moments.sums, moments.description(""))
        self._moments = Moments(self._wanted)


def sums_bank(
    trainer: Trainer,
    backbone: Backbone,
    dataset: Any,
    moments: Collection[str],
    root: Path,
    *,
    batch_size: int,
    num_workers: int = 0,
    network: NetworkIdentity | None = None,
) -> FeatureBank | None:
    """A bank for detectors that learn only from sums: moments, labels and head, without rows.

    Args:
        trainer: its processes share the images out.
        backbone: left as it was.
        dataset: with ``labels [N]`` and its transform set.
        moments: parts of the :class:`~ood_lab.features.moments.Moments` to gather.
        root: folder of all banks, where the processes leave their sums for a moment.
        batch_size: images a forward, on each process.
        num_workers: loader processes, for each process.
        network: see :func:`~ood_lab.features.cached_extraction.extract`.

    Returns:
        The bank, its ``features`` and ``logits`` without content (PyTorch's ``meta`` device), on
        the main process; None on the others.

    Raises:
        UserError: see :func:`~ood_lab.features.extraction_pass.pass_through`.
    """
    images: Images = dataset
    record = made_from(trainer, backbone, images, network=network)
    n, folder = len(images), BankStore(root, record.key).stage()
    parts = DatasetParts.of_processes(n, batch_size, trainer.world_size)
    try:
        sums = partial(_Sums, folder, moments)
        pass_through(trainer, backbone, images, (), parts, sums, num_workers=num_workers)
        if trainer.global_rank != 0:
            return None
        files = [FILE.read(file) for file in sorted(folder.glob("*.safetensors"))]
    finally:
        shutil.rmtree(folder, ignore_errors=True)
    gathered = Moments.merged(Moments(of["parts"], sums) for of, sums in files)
    weight, bias = weight_and_bias(backbone.head)
    features = torch.empty((n, backbone.num_features), device="meta")
    logits = torch.empty((n, backbone.num_classes), device="meta")
    return FeatureBank(
        features=features,
        logits=logits,
        labels=(labels := dataset.labels),
        index=torch.arange(n),
        head_weight=weight,
        head_bias=bias,
        record=record.model_copy(update={"n": n}),
        label_classes=backbone.label_classes,
        groups=dataset.groups,
        derived=Derived(features, logits, labels, moments=gathered),
    )
