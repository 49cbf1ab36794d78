"""The examples of a fine-tuning, in batches."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Annotated, Any

import lightning as L
from annotated_types import Ge
from torch.utils.data import DataLoader, Dataset, Sampler

from ood_lab.common.arguments import Count
from ood_lab.common.training_epoch import coming_epoch
from ood_lab.data.datamodules.epoch_sampler import DeviceShare, EpochSampler


class Chats(L.LightningDataModule):
    """Training and validation examples.

    Args:
        train: examples to learn from.
        val: examples to choose the epoch by; None = the last one is taken.
        batch_size: examples a training batch, on each device.
        eval_batch_size: examples a validation batch.
        num_workers: loader processes.
        seed: of the order.

    Attributes:
        collate: makes a batch; set by those who know the model.
    """

    collate: Callable[[Sequence[Any]], Any]

    def __init__(
        self,
        train: Dataset[Any],
        val: Dataset[Any] | None = None,
        batch_size: Count = 32,
        eval_batch_size: Count = 64,
        num_workers: Annotated[int, Ge(0)] = 0,
        seed: Annotated[int, Ge(0)] = 0,
    ) -> None:
        super().__init__()
        self.train = train
        self.val = val
        self.batch_size = batch_size
        self.eval_batch_size = eval_batch_size
        self.num_workers = num_workers
        self.seed = seed

    def _epoch(self) -> int:
        return coming_epoch(self.trainer)

    def train_dataloader(self) -> DataLoader[Any]:
        """Batches in an order that depends only on seed and epoch."""
        size = len(self.train)  # type: ignore[arg-type]  # ours have a length
        order: Sampler[Any] = EpochSampler(size, self.seed, self._epoch)
        if self.trainer:
            devices, device = self.trainer.world_size, self.trainer.global_rank
            order = DeviceShare(order, devices, device)  # type: ignore[arg-type]
        return DataLoader(
            self.train,
            self.batch_size,
            sampler=order,
            collate_fn=self.collate,
            num_workers=self.num_workers,
        )

    def val_dataloader(self) -> DataLoader[Any] | list[Any]:
        """Batches in order; none without validation examples."""
        if not self.val:  # none, or an empty one
            return []
        return DataLoader(
            self.val,
            self.eval_batch_size,
            collate_fn=self.collate,
            num_workers=self.num_workers,
        )
