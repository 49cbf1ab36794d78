"""Stochastic partial swap: features of other images as noise on middle layers.

Huang, Wang and Tao, Stochastic Partial Swap: Enhanced Model Generalization and Interpretability
for Fine-grained Recognition, ICCV 2021.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, NamedTuple

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from ood_lab.common.tensor_file import Batch, Tensors
from ood_lab.models.fgvc.base import FGVCModule, FGVCNet, fused_head
from ood_lab.models.output import Output

_REPEATS = 3  # swaps in one step


class SPSOutput(NamedTuple):
    """Ensemble's logits ``[B, C]``, those of the last map, and of every swap of the branch."""

    logits: Tensor
    high: Tensor
    mid: list[Tensor]


class Middle(nn.Module):
    """Pooled features of a middle map, ``z = GMP(ReLU(conv1x1(C4)))``."""

    def __init__(self, channels: int) -> None:
        super().__init__()
        self.conv = nn.Conv2d(channels, channels, 1)

    def forward(self, middle: Tensor) -> Tensor:
        """Maps ``[B, D, H, W]`` to ``z [B, D]``."""
        return self.conv(middle).relu().amax((2, 3))


class SPSNet(FGVCNet):
    """A linear layer on the pooled last map, and a branch on the map before it.

    At test the logits are the sum of ``high = W GAP(C5)`` and of the branch's ``W_m z``; the
    features are ``[GAP(C5), z]``. In training ``z`` is swapped in part between the images of a
    batch, three times again. The released code may have a second branch.

    Settings: ``swap`` = smallest and largest share of swapped features.
    """

    method = "SPS"
    strides = (16, 32)

    def add_heads(self, swap: Sequence[float] = (0.3, 0.5)) -> None:
        """Adds the branch, and the classifiers of the last map and of the branch."""
        middle, last = self.channels
        self.swap = swap[0], swap[1]
        self.middle = Middle(middle)
        self.classifiers = nn.ModuleList(
            nn.Linear(width, self.labels.classes) for width in (last, middle)
        )

    @property
    def head(self) -> nn.Linear:  # type: ignore[override]  # all classifiers in one
        """The classifiers of the last map and of the branch, ``[C, D_high + D_mid]``."""
        return fused_head(list(self.classifiers))  # type: ignore[arg-type]

    def forward(self, image: Tensor) -> Output:
        """Maps ``image [B, 3, H, W]`` to the summed logits and ``[GAP(C5), z]``."""
        features = self._features(image, detach=False)
        return Output(self._ensemble(features), torch.cat(features, dim=1))

    def train_outputs(self, image: Tensor, detach: bool = False) -> SPSOutput:
        """Logits of swapped features; outside training nothing is swapped.

        Args:
            image: ``[B, 3, H, W]``.
            detach: keep the gradient of the branch from the trunk.
        """
        features = self._features(image, detach)
        high, branch = self.classifiers
        pooled, z = features
        swapped = (random_swap(z, self.swap) if self.training else z for _ in range(_REPEATS))
        return SPSOutput(self._ensemble(features), high(pooled), [branch(z) for z in swapped])

    def _features(self, image: Tensor, detach: bool) -> list[Tensor]:
        middle, last = self.maps(image)
        middle = middle.detach() if detach else middle
        return [last.mean((2, 3)), self.middle(middle)]

    def _ensemble(self, features: Sequence[Tensor]) -> Tensor:
        logits = [linear(z) for linear, z in zip(self.classifiers, features, strict=True)]
        return torch.stack(logits).sum(0)


class SPS(FGVCModule):
    """``CE(high) + sum over swaps of CE(mid)``, weights 1.

    Args:
        detach_epoch: the branch trains the trunk from this epoch on, counted from 0; 60 of 160
            epochs in the released code.
        **kwargs: see :class:`FGVCModule`.
    """

    backbone: SPSNet

    def __init__(self, detach_epoch: int = 60, **kwargs: Any) -> None:
        super().__init__(**kwargs)
        self.detach_epoch = detach_epoch

    def outputs(self, batch: Batch) -> SPSOutput:
        """The training outputs of this epoch."""
        detach = self.current_epoch < self.detach_epoch
        return self.backbone.train_outputs(batch["image"], detach)

    def losses(self, outputs: SPSOutput, batch: Batch) -> Tensors:
        """The term of the last map, and the sum of all others."""
        label, smoothing = batch["label"], self.smoothing
        high, *mid = (
            F.cross_entropy(logits.float(), label, label_smoothing=smoothing)
            for logits in (outputs.high, *outputs.mid)
        )
        return {"high": high, "mid": torch.stack(mid).sum()}


def random_swap(features: Tensor, shares: tuple[float, float]) -> Tensor:
    """Swaps a random part of the features between the images of a batch.

    A share uniform in ``[low, high]`` decides for each of the D features, alike in all images,
    whether it comes from another image by one random permutation.

    Args:
        features: ``[B, D]``.
        shares: the smallest and the largest.
    """
    (low, high), (images, width) = shares, features.shape
    share = low + (high - low) * torch.rand((), device=features.device)
    mask = torch.rand(width, device=features.device) < share
    return swap(features, mask, torch.randperm(images, device=features.device))


def swap(features: Tensor, mask: Tensor, order: Tensor) -> Tensor:
    """``z'_bd = z_{order(b) d}`` where ``mask_d``, else ``z_bd``.

    Args:
        features: ``z [B, D]``.
        mask: ``[D] bool``.
        order: permutation ``[B]``.
    """
    return torch.where(mask, features[order], features)
