"""One pass over the images of a dataset, and what is needed to start and end it well."""

from __future__ import annotations

import logging
import shutil
import time
import warnings
from collections.abc import Collection
from pathlib import Path
from typing import Any, Protocol

import torch
from lightning.pytorch import Callback, Trainer
from torch import Tensor
from torch.utils.data import DataLoader, Subset, default_collate

from ood_lab.common.cpu_cores import fitting_processes, loading_processes
from ood_lab.common.english import counted
from ood_lab.common.errors import UserError, user_error_in
from ood_lab.common.tensor_file import Tensors
from ood_lab.features.bank import weight_and_bias
from ood_lab.features.bank_store import BankStore, Begun
from ood_lab.features.bank_writer import FeatureWriter
from ood_lab.features.lightning_extractor import Extractor, frozen
from ood_lab.schema.run_record import BankRecord

log = logging.getLogger(__name__)


class Images(Protocol):
    """What extraction needs of a dataset; samples hold ``image``, ``index`` and ``label``."""

    name: str
    identity: str
    transform: Any

    @property
    def groups(self) -> Tensor | None:
        """See :class:`~ood_lab.data.dataset.ImageDataset`."""

    def __len__(self) -> int: ...

    def __getitem__(self, index: int) -> dict[str, Any]: ...


def collate(samples: list[dict[str, Any]]) -> Tensors:
    """Batches what the pass reads; the other entries of a sample are found by its index."""
    keys = ("image", "index", "label")
    batch: Tensors = default_collate([{k: sample[k] for k in keys} for sample in samples])
    return batch


def build_loader(
    trainer: Trainer,
    dataset: Images,
    batch_size: int,
    num_workers: int,
    done: Tensor | None = None,
) -> DataLoader[dict[str, Any]]:
    """Images in dataset order but the rows that are done; Lightning shares them out."""
    images: Any = dataset
    if done is not None:
        left = torch.ones(len(dataset), dtype=torch.bool)
        left[done] = False
        images = Subset(images, left.nonzero().flatten().tolist())
    batches = -(-len(images) // batch_size)
    workers = loading_processes(trainer, num_workers, batches)
    size = min(batch_size, len(images))
    return DataLoader(
        images,
        batch_size=batch_size,
        num_workers=fitting_processes(workers, size, lambda: images[0], trainer.num_devices),
        collate_fn=collate,
        pin_memory=trainer.strategy.root_device.type == "cuda",
    )


def run_extraction(
    trainer: Trainer,
    extractor: Extractor,
    loader: DataLoader[dict[str, Any]],
    dataset: Images,
    store: BankStore,
    record: BankRecord,
    moments: Collection[str] = (),
    begun: Begun | None = None,
) -> None:
    """Runs the pass on all processes; the main one publishes what they have written.

    Args:
        trainer: of the pass.
        extractor: computes the rows.
        loader: of the images that are left to do.
        dataset: all of them.
        store: of the bank.
        record: what the bank is made from.
        moments: that are gathered, unless the pass resumes one that was killed.
        begun: what that one has left.

    Raises:
        UserError: whatever ends the pass; what it has written is removed.
    """
    main, dtype, left = trainer.global_rank == 0, getattr(torch, record.dtype), len(dataset)
    if begun is None:
        staging = store.stage()
        writer = FeatureWriter(staging, dataset, dtype, moments)
    else:
        staging, left = begun.folder, left - len(begun.rows)
        writer = FeatureWriter(staging, dataset, dtype, (), left, begun.parts)
        if main:
            log.info("features of '%s': %s to go", dataset.name, counted(left, "image"))
    start = time.perf_counter()
    try:
        predict(trainer, extractor, loader, writer)
        if main:
            extractor.keep_chunk()
            sealed = record.model_copy(update=extractor.chunk.describe() if extractor.chunk else {})
            head = weight_and_bias(extractor.backbone.head) if extractor.base else None
            store.publish(staging, len(dataset), extractor.column_keys, sealed, head)
            log.info(
                "features of '%s': extracted %s in %.1f s%s",
                dataset.name,
                counted(left, "image"),
                time.perf_counter() - start,
                extractor.told,
            )
    except Exception:
        _discard(staging, main or begun is None)
        raise
    # Not where the pass was interrupted: it goes on after what it has written.
    _discard(staging, main or begun is None)


def _discard(staging: Path, own: bool) -> None:
    """Removes the folder of a pass; that of a killed one belongs to the main process."""
    if own:
        shutil.rmtree(staging, ignore_errors=True)


def check_takes_all(trainer: Trainer, name: str) -> None:
    """Raises :class:`UserError` where the trainer would omit images of the set ``name``."""
    limit = trainer.limit_predict_batches
    if isinstance(limit, int) or limit < 1.0:  # an integer counts batches: 1 is not 1.0
        raise UserError(
            f"the trainer would omit images of '{name}': extraction needs "
            "trainer.limit_predict_batches=1.0 and no fast_dev_run"
        )


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
    except Exception as error:
        if (plain := user_error_in(error)) is None:
            raise
        raise plain from error
    finally:
        extractor.close()
        trainer.callbacks.remove(writer)  # type: ignore[attr-defined]
        loop.inference_mode = inference_mode
