"""Extraction into the cache: banks of features, or only their sums."""

from __future__ import annotations

import logging
import shutil
from collections.abc import Collection, Sequence
from contextlib import ExitStack
from dataclasses import dataclass, replace
from functools import cached_property, partial
from pathlib import Path
from typing import Any

import torch
from lightning.pytorch import Trainer

from ood_lab.common.english import counted
from ood_lab.common.errors import UserError
from ood_lab.common.file_records import json_sha256
from ood_lab.features.bank import TILES, FeatureBank, weight_and_bias
from ood_lab.features.bank_identity import FORMAT, NetworkIdentity, transform_text, versions
from ood_lab.features.bank_store import BASE, BankStore, FeatureWriter, load
from ood_lab.features.extraction_hooks import Columns, TilesColumn
from ood_lab.features.extraction_pass import (
    BlockConsumer,
    DatasetParts,
    Images,
    ReadErrors,
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


@dataclass(frozen=True)
class NetworkPasses:
    """Passes images through one network; call its methods on all processes.

    Attributes:
        trainer: its devices and strategy share the images out, its precision is part of the key.
        backbone: the network; left as it was, its training mode and gradient flags included.
        root: folder of all feature banks; on several nodes, a shared one.
        batch_size: images a forward, on each process.
        num_workers: loader processes, for each process.
    """

    trainer: Trainer
    backbone: Backbone
    root: Path
    batch_size: int
    num_workers: int

    @cached_property
    def network(self) -> NetworkIdentity:
        """What its features depend on, in addition to the images."""
        return NetworkIdentity.of(self.backbone)

    def record_of(self, images: Images) -> BankRecord:
        """What a bank is made from; its ``key`` hashes all of it but the dataset's name."""
        precision = self.trainer.precision
        if precision not in PRECISIONS:
            raise UserError(
                f"trainer.precision={precision} would alter the weights of the backbone: "
                f"choose one of {', '.join(PRECISIONS)}"
            )
        parts = {
            "weights_sha256": self.network.weights_sha256,
            "parts_sha256": self.network.parts_sha256,
            "transform": transform_text(images.transform, images.name),
            "dataset_identity": images.identity,
            "precision": precision,
            "versions": versions(),
        }
        key = json_sha256({**parts, "format": FORMAT})[:32]
        return BankRecord.model_validate({"key": key, "dataset": images.name, **parts})

    def bank(
        self, images: Images, columns: Columns = (), moments: Collection[str] = ()
    ) -> FeatureBank | None:
        """Returns the bank of a dataset with the given columns, computing only what is missing.

        Everything missing is computed in one pass over the images: with nothing there, the base and
        all columns; with the base there, only the missing columns. Where the key of the bank may
        not say all (:attr:`NetworkIdentity.complete`), some images pass first, and outputs that
        are no longer those of the bank make a new one.

        Args:
            images: with their transform set.
            columns: what the detectors want of this dataset. Equal keys are computed once.
            moments: parts of the :class:`~ood_lab.features.moments.Moments` that fits will ask for,
                gathered in a pass that computes the features; they change no number.

        Returns:
            The bank on the main process, None on the others.

        Raises:
            UserError: the dataset is smaller than the number of processes, features are not finite,
                the disk is full or read-only, a column cannot be served by the backbone, or the
                trainer's precision would alter the weights.
        """
        trainer, backbone, n = self.trainer, self.backbone, len(images)
        record = self.record_of(images)
        store = BankStore(self.root, record.key)
        wanted = {column.key: column for column in columns}
        tiles = tile_count(images.transform)
        if tiles > 1:
            wanted[TILES] = TilesColumn()
        main = trainer.global_rank == 0
        join(trainer)
        with ExitStack() as stack:
            missing, bank, fault = store.missing(wanted), None, ""
            if main and BASE not in missing:
                kept = [key for key in wanted if key not in missing]
                bank, fault = self._sound(images, store, kept)
            if main and (missing or fault):
                stack.enter_context(store.locked())
                missing, bank = store.missing(wanted), None
                if fault or (BASE in missing and store.folder.exists()):
                    store.discard(fault or "is damaged")
                    missing = store.missing(wanted)
            # Before the first pass has connected the processes, each finds the same answer on disk:
            # the main process has removed what is damaged and holds the lock, so nobody else can
            # have changed it.
            missing = agreed(trainer, missing)
            if missing:
                begun = store.begun(missing, n, trainer.world_size)
                if main:
                    store.tidy(begun)
                begun = agreed(trainer, begun)
                left = begun.rows_left(n)
                if n < trainer.world_size:
                    raise UserError(
                        f"'{images.name}' has {n} images for {trainer.world_size} processes: lower "
                        "trainer.devices or trainer.num_nodes so that each process has at least one"
                    )
                if main and len(left) < n:
                    log.info("features of '%s': %s to go", images.name, counted(len(left), "image"))
                batch_size = max(1, self.batch_size // tiles)
                try:
                    extractor = pass_through(
                        trainer,
                        backbone,
                        images,
                        [column for key, column in wanted.items() if key in missing],
                        DatasetParts.of_processes(len(left), batch_size, trainer.world_size),
                        partial(FeatureWriter, begun, images, BASE in missing, moments),
                        rows=left,
                        num_workers=self.num_workers,
                    )
                    if main:
                        sealed = record.model_copy(update=extractor.chunk_facts)
                        head = weight_and_bias(backbone.head)
                        store.publish(begun.folder, n, missing, sealed, head)
                except Exception:
                    # Not where it is interrupted: it goes on after what it has written.
                    if main:
                        shutil.rmtree(begun.folder, ignore_errors=True)
                    raise
            elif main:
                log.info("features of '%s': read from the cache", images.name)
        if not main:
            return None
        bank = load(store.folder, list(wanted)) if bank is None else bank
        return replace(bank, label_classes=backbone.label_classes, groups=images.groups)

    def _sound(
        self, images: Images, store: BankStore, columns: Sequence[str]
    ) -> tuple[FeatureBank | None, str]:
        """The bank on disk, and what is wrong with it.

        Outputs of :data:`PROBE` images are compared with the bank's, beyond rounding.
        """
        try:
            bank = load(store.folder, columns)
        except UserError as error:
            return None, f"cannot be used ({error})"
        trainer, backbone = self.trainer, self.backbone
        if self.network.complete or backbone.chance:
            return bank, ""
        rows = torch.linspace(0, len(bank) - 1, min(PROBE, len(bank))).long()
        device = trainer.strategy.root_device
        image = torch.stack([images[row]["image"] for row in rows.tolist()]).to(device)
        with frozen(backbone), trainer.precision_plugin.forward_context():
            outputs = Extractor(backbone.to(device)).outputs(image)
            rounding, _ = tolerances(backbone)
        rounding = max(rounding, 16 * torch.finfo(PRECISIONS[str(trainer.precision)]).eps)
        now = Output(outputs["logits"].cpu(), outputs["features"].cpu())
        moved = deviation(Output(bank.logits[rows], bank.features[rows]), now, rounding)
        return bank, f"has other features than {backbone.name} now ({moved})" if moved else ""

    def sums(self, images: Any, moments: Collection[str]) -> FeatureBank | None:
        """A bank for detectors that learn only from sums: moments, labels and head, without rows.

        The processes leave their sums in ``root`` for a moment.

        Args:
            images: with ``labels [N]`` and their transform set.
            moments: parts of the :class:`~ood_lab.features.moments.Moments` to gather.

        Returns:
            The bank, its ``features`` and ``logits`` without content (PyTorch's ``meta`` device),
            on the main process; None on the others.

        Raises:
            UserError: see :func:`~ood_lab.features.extraction_pass.pass_through`.
        """
        trainer, backbone, n = self.trainer, self.backbone, len(images)
        record = self.record_of(images)
        folder = BankStore(self.root, record.key).new_folder()
        parts = DatasetParts.of_processes(n, self.batch_size, trainer.world_size)
        sums = partial(_Sums, folder, moments)
        workers = self.num_workers
        try:
            pass_through(trainer, backbone, images, (), parts, sums, num_workers=workers)
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
            labels=(labels := images.labels),
            index=torch.arange(n),
            head_weight=weight,
            head_bias=bias,
            record=record.model_copy(update={"n": n}),
            label_classes=backbone.label_classes,
            groups=images.groups,
            derived=Derived(features, logits, labels, moments=sums_of_all),
        )


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
