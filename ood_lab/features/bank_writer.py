"""Writes what the extraction pass computes, a batch at a time, without talking to other ranks."""

from __future__ import annotations

from collections.abc import Collection
from pathlib import Path
from typing import Any

import torch
from lightning.pytorch import LightningModule, Trainer
from lightning.pytorch.callbacks import BasePredictionWriter
from torch import Tensor

from ood_lab.common.errors import UserError
from ood_lab.common.files import require_space
from ood_lab.common.tensor_file import Tensors, save_tensors
from ood_lab.features.bank_store import COLUMNS, PARTIAL, column_folder
from ood_lab.features.disk_space import writing
from ood_lab.features.moments import FILE, Moments
from ood_lab.features.row_shards import shard_name


class FeatureWriter(BasePredictionWriter):
    """Collects the rows of one process in a fixed buffer and flushes it to shards.

    Args:
        staging: folder of the pass; rank 0's holds for all.
        dataset: the dataset of the pass (``name``, ``table``, length), for messages.
        dtype: type of the features on disk.
        moments: parts of the moments that are gathered from the rows; none, of no rows.
        rows: of the dataset that the pass computes; None = all.
        first_part: number of the first shard of every process.
    """

    #: Size of the buffer, and so of a shard.
    shard_bytes = 256 * 2**20

    def __init__(
        self,
        staging: Path,
        dataset: Any,
        dtype: torch.dtype,
        moments: Collection[str] = (),
        rows: int | None = None,
        first_part: int = 0,
    ) -> None:
        super().__init__(write_interval="batch")
        self.staging = staging
        self.dataset = dataset
        self.dtype = dtype
        self._moments = Moments({"means", *moments}) if moments else None
        self._buffer: dict[str, Tensors] = {}
        self._capacity = 0
        self._filled = 0
        self._rows = len(dataset) if rows is None else rows
        self._part = first_part

    def on_predict_start(self, trainer: Trainer, pl_module: LightningModule) -> None:
        """Agrees on the folder: every process of a script that ddp started has named its own."""
        self.staging = Path(trainer.strategy.broadcast(str(self.staging)))

    def write_on_batch_end(
        self, trainer: Trainer, pl_module: LightningModule, prediction: dict[str, Any], *_: Any
    ) -> None:
        """Copies the rows of a batch into the buffer.

        Raises:
            UserError: features or logits are not finite, or the disk cannot hold the bank.
        """
        rows = _by_folder(prediction)
        size = len(prediction["index"])
        if not self._buffer:
            self._allocate(rows, size)
        if self._filled + size > self._capacity:
            self._flush(trainer)
        end = self._filled + size
        for folder, tensors in rows.items():
            for name, values in tensors.items():
                self._buffer[folder][name][self._filled : end] = values
        self._require_finite(slice(self._filled, end))
        self._filled = end

    def on_predict_end(self, trainer: Trainer, pl_module: LightningModule) -> None:
        """Flushes; afterwards the shards of all processes are complete."""
        self._flush(trainer)
        self._buffer = {}
        if self._moments and self._moments.sums:
            own, file = self._moments.gathered(), f"{trainer.global_rank:05d}.safetensors"
            FILE.write(self.staging / PARTIAL / file, own.sums, own.description(""))
        trainer.strategy.barrier("features written")

    def _allocate(self, rows: dict[str, Tensors], size: int) -> None:
        """Sizes the buffer by the first batch, the first moment the columns' sizes are known."""

        def buffer(length: int) -> dict[str, Tensors]:
            return {
                folder: {
                    name: torch.empty(
                        (length, *values.shape[1:]),
                        dtype=self.dtype if name == "features" else values.dtype,
                    )
                    for name, values in tensors.items()
                }
                for folder, tensors in rows.items()
            }

        n = self._rows
        row_bytes = sum(row.nbytes for tensors in buffer(1).values() for row in tensors.values())
        require_space(self.staging, n * row_bytes, f"the features of '{self.dataset.name}'")
        self._capacity = max(size, min(n, self.shard_bytes // row_bytes))
        self._buffer = buffer(self._capacity)
        for folder in rows:
            (self.staging / folder).mkdir(parents=True, exist_ok=True)

    def _require_finite(self, rows: slice) -> None:
        base = self._buffer.get("", {})
        for name in ("logits", "features"):
            if name in base:
                require_finite(name, base[name][rows], base["index"][rows], self.dataset)

    def _flush(self, trainer: Trainer) -> None:
        if not self._filled:
            return
        for folder, tensors in self._buffer.items():
            prefix = "column" if folder else "base"
            name = shard_name(prefix, trainer.global_rank, trainer.world_size, self._part)
            rows = {key: values[: self._filled] for key, values in tensors.items()}
            with writing(self.staging.parents[1]):
                save_tensors(rows, self.staging / folder / name)
            if self._moments and not folder:
                x, z, y = (rows[key] for key in ("features", "logits", "labels"))
                self._moments.update(x, z, y, trainer.strategy.root_device)
        self._part += 1
        self._filled = 0


def require_finite(name: str, values: Tensor, index: Tensor, dataset: Any) -> None:
    """Raises :class:`UserError` where ``values [n, D]`` of rows ``index [n]`` are not finite."""
    if torch.isfinite(values).all():
        return
    rows = index[~torch.isfinite(values).all(dim=1)][:3].tolist()
    table = getattr(dataset, "table", None)
    paths = f" ({', '.join(table['path'].iloc[rows])})" if table is not None else ""
    raise UserError(
        f"{name} of '{dataset.name}' are not finite in rows {rows}{paths}: check the weights of "
        "the backbone, these images, and the precision"
    )


def _by_folder(prediction: dict[str, Any]) -> dict[str, Tensors]:
    """Sorts a prediction by sub-folder: the base in ``""``, each column in its own."""
    index = prediction["index"]
    rows = {
        f"{COLUMNS}/{column_folder(key)}": {"index": index, "values": values}
        for key, values in prediction["columns"].items()
    }
    if "features" in prediction:
        names = ("index", "features", "logits", "labels")
        rows[""] = {name: prediction[name] for name in names}
    return rows
