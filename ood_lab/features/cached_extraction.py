"""Extraction into the cache: banks of features, or only their sums."""

from __future__ import annotations

import logging
import shutil
from collections.abc import Collection, Sequence
from contextlib import ExitStack
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any

import torch
from lightning.pytorch import Trainer

from ood_lab.common.english import counted
from ood_lab.common.errors import UserError
from ood_lab.common.file_records import json_sha256
from ood_lab.common.files import require_space
from ood_lab.features.bank import TILES, FeatureBank, weight_and_bias
from ood_lab.features.bank_identity import FORMAT, NetworkIdentity, transform_text, versions
from ood_lab.features.bank_store import BankStore, FeatureWriter, load
from ood_lab.features.extraction_hooks import Columns, TilesColumn
from ood_lab.features.extraction_pass import (
    BlockConsumer,
    DatasetParts,
    Images,
    ReadErrors,
    check_takes_all,
    pass_through,
)
from ood_lab.features.lightning_extractor import Extractor, frozen
from ood_lab.features.moments import Derived, Moments
from ood_lab.features.process_agreement import agreed, join
from ood_lab.models.backbone import Backbone
from ood_lab.models.determinism_check import deviation, tolerances
from ood_lab.models.image_tiles import tile_count
from ood_lab.models.output import Output
from ood_lab.schema.run_record import BankRecord

log = logging.getLogger(__name__)

#: What a pass computes with, by the precision of the trainer. The "true" half precisions would
#: convert, and so change, the weights that key the bank.
PRECISIONS = {"32-true": torch.float32, "16-mixed": torch.float16, "bf16-mixed": torch.bfloat16}
#: Images of a set that pass again before its bank is read.
PROBE = 8


def extract(
    trainer: Trainer,
    backbone: Backbone,
    dataset: Images,
    root: Path | str,
    columns: Columns = (),
    *,
    batch_size: int = 256,
    num_workers: int = 0,
    network: NetworkIdentity | None = None,
    moments: Collection[str] = (),
) -> FeatureBank | None:
    """Returns the bank of a dataset with the given columns, computing only what is missing.

    Everything missing is computed in one pass over the images: with nothing there, the base and
    all columns; with the base there, only the missing columns. Where the key of the bank may not
    say all (:attr:`NetworkIdentity.complete`), some images pass first, and outputs that are no
    longer those of the bank make a new one.

    Args:
        trainer: its devices and strategy share the images out, its precision is part of the key.
        backbone: left as it was, its training mode and gradient flags included.
        dataset: with its transform set.
        root: folder of all banks; on several nodes, a shared one.
        columns: what the detectors want of this dataset. Equal keys are computed once.
        batch_size: images a forward, on each process.
        num_workers: loader processes, for each process.
        network: ``NetworkIdentity.of(backbone)`` where the caller has it.
        moments: parts of the :class:`~ood_lab.features.moments.Moments` that fits will ask for,
            gathered in a pass that computes the features; they change no number.

    Returns:
        The bank on the main process, None on the others.

    Raises:
        UserError: the dataset is smaller than the number of processes, features are not finite,
            the disk is full or read-only, a column cannot be served by the backbone, or the
            trainer's precision would alter the weights.
    """
    network = network or NetworkIdentity.of(backbone)
    record = made_from(trainer, backbone, dataset, network)
    store = BankStore(Path(root), record.key)
    wanted = {column.key: column for column in columns}
    if (tiles := tile_count(dataset.transform)) > 1:
        wanted[TILES] = TilesColumn()
        batch_size = max(1, batch_size // tiles)
    main = trainer.global_rank == 0
    join(trainer)
    with ExitStack() as stack:
        missing = store.missing(list(wanted))
        bank, fault = None, ""
        if main and not missing.base:
            kept = [key for key in wanted if key not in missing.columns]
            bank, fault = _sound(trainer, backbone, dataset, store, kept, network)
        if main and (missing or fault):
            stack.enter_context(store.locked())
            missing, bank = store.missing(list(wanted)), None
            if fault or (missing.base and store.folder.exists()):
                store.discard(fault or "is damaged")
                missing = store.missing(list(wanted))
        # Before the first pass has connected the processes, each finds the same answer on disk:
        # the main process has removed what is damaged and holds the lock, so nobody else can
        # have changed it.
        missing = agreed(trainer, missing)
        if missing:
            begun = store.begun(missing, len(dataset), trainer.world_size)
            if main:
                store.tidy(begun)
            begun = agreed(trainer, begun)
            left = len(dataset) - (0 if begun is None else len(begun.rows))
            if len(dataset) < trainer.world_size:
                raise UserError(
                    f"'{dataset.name}' has {len(dataset)} images for {trainer.world_size} "
                    "processes: lower trainer.devices or trainer.num_nodes so that each process "
                    "has at least one"
                )
            check_takes_all(trainer, dataset.name)
            if missing.base:
                # Features and logits as float32, index and label.
                row_bytes = (backbone.num_features + backbone.num_classes) * 4 + 16
                require_space(store.folder, left * row_bytes, f"the features of '{dataset.name}'")
            chosen = [wanted[key] for key in missing.columns]
            if main and begun is not None:
                log.info("features of '%s': %s to go", dataset.name, counted(left, "image"))
            staging = store.stage() if begun is None else begun.folder
            writer = partial(
                FeatureWriter,
                staging,
                dataset,
                base=missing.base,
                moments=moments if begun is None else (),
                rows=left,
                first_part=0 if begun is None else begun.parts,
            )
            try:
                extractor = pass_through(
                    trainer,
                    backbone,
                    dataset,
                    chosen,
                    DatasetParts.of_processes(left, batch_size, trainer.world_size),
                    writer,
                    rows=None if begun is None else begun.rows_left(len(dataset)),
                    num_workers=num_workers,
                    keeps=True,
                )
                if main:
                    sealed = record.model_copy(update=extractor.chunk_facts)
                    head = weight_and_bias(backbone.head) if missing.base else None
                    store.publish(staging, len(dataset), missing.columns, sealed, head)
            except Exception:
                _discard(staging, main or begun is None)
                raise
            # Not where the pass was interrupted: it goes on after what it has written.
            _discard(staging, main or begun is None)
        elif main:
            log.info("features of '%s': read from the cache", dataset.name)
    if not main:
        return None
    bank = load(store.folder, list(wanted)) if bank is None else bank
    return replace(bank, label_classes=backbone.label_classes, groups=dataset.groups)


def _discard(staging: Path, mine: bool) -> None:
    """Removes the folder of a pass; that of a killed one belongs to the main process."""
    if mine:
        shutil.rmtree(staging, ignore_errors=True)


def _sound(
    trainer: Trainer,
    backbone: Backbone,
    dataset: Images,
    store: BankStore,
    columns: Sequence[str],
    network: NetworkIdentity,
) -> tuple[FeatureBank | None, str]:
    """The bank on disk, and what is wrong with it.

    Outputs of :data:`PROBE` images are compared with the bank's, beyond rounding.
    """
    try:
        bank = load(store.folder, columns)
    except UserError as error:
        return None, f"cannot be used ({error})"
    if network.complete or backbone.chance:
        return bank, ""
    rows = torch.linspace(0, len(bank) - 1, min(PROBE, len(bank))).long()
    device = trainer.strategy.root_device
    image = torch.stack([dataset[row]["image"] for row in rows.tolist()]).to(device)
    with frozen(backbone), trainer.precision_plugin.forward_context():
        outputs = Extractor(backbone.to(device)).outputs(image)
        rounding, _ = tolerances(backbone)
    rounding = max(rounding, 16 * torch.finfo(PRECISIONS[str(trainer.precision)]).eps)
    now = Output(outputs["logits"].cpu(), outputs["features"].cpu())
    moved = deviation(Output(bank.logits[rows], bank.features[rows]), now, rounding)
    return bank, f"has other features than {backbone.name} now ({moved})" if moved else ""


def made_from(
    trainer: Trainer,
    backbone: Backbone,
    dataset: Images,
    network: NetworkIdentity,
) -> BankRecord:
    """What the bank is made from; its ``key`` hashes all of it but the dataset's name."""
    if trainer.precision not in PRECISIONS:
        raise UserError(
            f"trainer.precision={trainer.precision} would alter the weights of the backbone: "
            f"choose one of {', '.join(PRECISIONS)}"
        )
    parts = {
        "weights_sha256": network.weights_sha256,
        "parts_sha256": network.parts_sha256,
        "transform": transform_text(dataset.transform, dataset.name),
        "dataset_identity": dataset.identity,
        "precision": trainer.precision,
        "versions": versions(),
    }
    key = json_sha256({**parts, "format": FORMAT})[:32]
    return BankRecord.model_validate({"key": key, "dataset": dataset.name, **parts})


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

    def closed(self, part: int, errors: ReadErrors) -> None:
        self._moments.gathered().save(self._folder / f"{part:05d}.safetensors")
        self._moments = Moments(self._wanted)


def sums_bank(
    trainer: Trainer,
    backbone: Backbone,
    dataset: Any,
    moments: Collection[str],
    root: Path,
    *,
    batch_size: int,
    num_workers: int,
    network: NetworkIdentity,
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
        network: what the features depend on, in addition to the images.

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
        sums_of_all = Moments.of_processes(folder)
    finally:
        shutil.rmtree(folder, ignore_errors=True)
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
        derived=Derived(features, logits, labels, moments=sums_of_all),
    )
