"""The examples of a fine-tuning: files of conversations, or builtin scenes."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Annotated, Any

import lightning as L
from annotated_types import Ge, Le
from torch.utils.data import DataLoader, Dataset

from ood_lab.data.sampling import EpochSampler
from ood_lab.errors import UserError
from ood_lab.lvlm.training.chat_files import ChatFile
from ood_lab.lvlm.training.examples import Example
from ood_lab.lvlm.training.scene_chats import SceneChats

Count = Annotated[int, Ge(1)]


class Chats(L.LightningDataModule):
    """Training and validation examples.

    Args:
        train: file of conversations, see :class:`ChatFile`; None = builtin scenes.
        val: another such file; None = builtin scenes, or no validation where ``train`` is a file.
        scenes: number of scenes to train on.
        val_scenes: number of scenes to validate on.
        breaks: share of scenes that break the prior of their place.
        questions: about each scene, others in every epoch.
        batch_size: examples a training batch, on each device.
        eval_batch_size: examples a validation batch.
        num_workers: loader processes.
        seed: of scenes, questions and order.

    Attributes:
        collate: makes a batch; set by those who know the model.
    """

    collate: Callable[[Sequence[Example]], dict[str, Any]]

    def __init__(
        self,
        train: str | None = None,
        val: str | None = None,
        scenes: Count = 24000,
        val_scenes: Count = 600,
        breaks: Annotated[float, Ge(0.0), Le(1.0)] = 0.3,
        questions: Count = 6,
        batch_size: Count = 32,
        eval_batch_size: Count = 64,
        num_workers: Annotated[int, Ge(0)] = 0,
        seed: Annotated[int, Ge(0)] = 0,
    ) -> None:
        super().__init__()
        if val is not None and train is None:
            raise UserError("model.chats.val is a file, so model.chats.train must be one, too")
        self.batch_size = batch_size
        self.eval_batch_size = eval_batch_size
        self.num_workers = num_workers
        self.seed = seed
        self.train: Dataset[Example]
        self.val: Dataset[Example] | None
        if train is None:
            self.train = SceneChats("train", scenes, seed, breaks=breaks, questions=questions)
            self.val = SceneChats("val", val_scenes, seed, breaks=breaks)
        else:
            self.train = ChatFile(train)
            self.val = None if val is None else ChatFile(val)

    def _epoch(self) -> int:
        return self.trainer.current_epoch if self.trainer else 0

    def train_dataloader(self) -> DataLoader[Any]:
        """Batches in an order that depends on seed and epoch alone."""
        size = len(self.train)  # type: ignore[arg-type]  # ours have a length
        return DataLoader(
            self.train,
            self.batch_size,
            sampler=EpochSampler(size, self.seed, self._epoch),
            collate_fn=self.collate,
            num_workers=self.num_workers,
        )

    def val_dataloader(self) -> DataLoader[Any] | list[Any]:
        """Batches in order; nothing without a file for it."""
        if self.val is None:
            return []
        return DataLoader(
            self.val,
            self.eval_batch_size,
            collate_fn=self.collate,
            num_workers=self.num_workers,
        )
