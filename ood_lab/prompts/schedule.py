"""The learning rate of CoOp's official code, which LoCoOp shares."""

from __future__ import annotations

import math

from torch.optim import Optimizer
from torch.optim.lr_scheduler import LambdaLR


def warmup_cosine(optimizer: Optimizer, T_max: int, warmup_lr: float = 1e-5) -> LambdaLR:
    """One epoch at a constant small rate, then a cosine that never reaches 0.

    ``lr(0) = warmup_lr``; ``lr(e) = lr/2 (1 + cos(π (e - 1) / E))`` for e = 1 .. E - 1.

    Args:
        optimizer: its ``lr`` is that of the cosine.
        T_max: E, the epochs of the training; named as torch's own cosine names it, so that it is
            filled in where the configuration leaves it open.
        warmup_lr: of epoch 0.
    """
    lr = float(optimizer.defaults["lr"])

    def factor(epoch: int) -> float:
        if epoch == 0:
            return warmup_lr / lr
        return 0.5 * (1 + math.cos(math.pi * (epoch - 1) / T_max))

    return LambdaLR(optimizer, factor)
