"""Random numbers of the network that depend only on the seed and the epoch."""

from __future__ import annotations

import random
from typing import Any

import numpy as np
import torch
from lightning.pytorch import Callback, LightningModule, Trainer


class EpochSeed(Callback):
    """Seeds dropout and other draws inside the network at the start of every epoch.

    A resumed training has the numbers of an uninterrupted one.

    Args:
        seed: of the run.
    """

    def __init__(self, seed: int) -> None:
        self.seed = seed

    def on_train_batch_start(
        self, trainer: Trainer, pl_module: LightningModule, batch: Any, batch_idx: int
    ) -> None:
        """Seeds torch, numpy and ``random``, differently on every process."""
        # Not on_train_epoch_start, which Lightning leaves out when a training is resumed.
        if batch_idx == 0:
            entropy = [self.seed, trainer.current_epoch, trainer.global_rank]
            state = int(np.random.SeedSequence(entropy).generate_state(1)[0])
            torch.manual_seed(state)
            np.random.seed(state)
            random.seed(state)
