"""One pass over the images of a dataset, and what is needed to start and end it well."""

from __future__ import annotations

import logging
import shutil
import time
import warnings
from collections.abc import Collection
from typing import Any, Protocol

import torch
from lightning.pytorch import Callback, Trainer
from torch import Tensor
from torch.utils.data import DataLoader, default_collate

from ood_lab.errors import user_error_in
from ood_lab.features.extractor import Extractor, frozen
from ood_lab.features.store import BankStore
from ood_lab.features.writer import FeatureWriter
from ood_lab.words import counted

log = logging.getLogger(__name__)


class Images(Protocol):
    """What extraction needs of a dataset; samples hold ``image``, ``index`` and ``label``."""

    name: str
    identity: str
    transform: Any

    def __len__(self) -> int: ...

    def __getitem__(self, index: int) -> dict[str, Any]: ...


def collate(samples: list[dict[str, Any]]) -> dict[str, Tensor]:
    """Batches what the pass reads; the other entries of a sample are found by its index."""
    keys = ("image", "index", "label")
    batch: dict[str, Tensor] = default_collate([{k: sample[k] for k in keys} for sample in samples])
    return batch


def build_loader(
    trainer: Trainer, dataset: Images, batch_size: int, num_workers: int
) -> DataLoader[dict[str, Any]]:
    """Images in dataset order; Lightning shares them out among the processes."""
    return DataLoader(
        dataset,  # type: ignore[arg-type]  # a protocol, as this package does not import data
        batch_size=batch_size,
        num_workers=num_workers,
        collate_fn=collate,
        pin_memory=trainer.strategy.root_device.type == "cuda",
    )


def run_extraction(
    trainer: Trainer,
    extractor: Extractor,
    loader: DataLoader[dict[str, Any]],
    store: BankStore,
    manifest: dict[str, Any],
    moments: Collection[str] = (),
) -> None:
    """Runs the pass on all processes; the main one publishes what they have written."""
    dataset: Any = loader.dataset
    staging = store.stage()
    writer = FeatureWriter(staging, dataset, getattr(torch, manifest["dtype"]), moments)
    start = time.perf_counter()
    try:
        predict(trainer, extractor, loader, writer)
        if trainer.global_rank == 0:
            head = extractor.backbone.head if extractor.base else None
            extractor.keep_chunk()
            chosen = extractor.chunk.describe() if extractor.chunk else {}
            store.publish(staging, len(dataset), extractor.column_keys, manifest | chosen, head)
            log.info(
                "features of '%s': extracted %s in %.1f s%s",
                dataset.name,
                counted(len(dataset), "image"),
                time.perf_counter() - start,
                ", {chunk} at a time, {memory_format}".format(**chosen) if chosen else "",
            )
    except Exception as error:
        if (plain := user_error_in(error)) is None:
            raise
        raise plain from error
    finally:
        shutil.rmtree(staging, ignore_errors=True)


def predict(
    trainer: Trainer,
    extractor: Extractor,
    loader: DataLoader[dict[str, Any]],
    writer: Callback,
) -> None:
    """The pass itself; ``writer`` takes what it gives."""
    loop = trainer.predict_loop
    inference_mode = loop.inference_mode
    loop.inference_mode = False  # the extractor enters it wherever no gradient is wanted
    trainer.callbacks.append(writer)  # type: ignore[attr-defined]
    try:
        with frozen(extractor.backbone), warnings.catch_warnings():
            # The number of workers is the caller's choice; LeafSpec is Lightning's own affair.
            warnings.filterwarnings("ignore", message=".*does not have many workers|.*LeafSpec")
            trainer.predict(extractor, loader, return_predictions=False)
    finally:
        extractor.close()
        trainer.callbacks.remove(writer)  # type: ignore[attr-defined]
        loop.inference_mode = inference_mode
