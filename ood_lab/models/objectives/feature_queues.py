"""The last features of each class, of which VOS and NPOS make virtual outliers."""

from __future__ import annotations

import torch
from torch import Tensor, nn

from ood_lab.common.errors import UserError
from ood_lab.models.backbone import Backbone

#: Bytes of all queues together.
_MOST = 2**30


class FeatureQueues(nn.Module):
    """Queues ``[C, length, D]``; in several processes they are those of the first one.

    Args:
        backbone: says C and D.
        length: features that are kept of each class.

    Raises:
        UserError: they need more than 1 GiB.
    """

    def __init__(self, backbone: Backbone, length: int) -> None:
        super().__init__()
        classes, width = backbone.num_classes, backbone.num_features
        if classes * length * width * 4 > _MOST:
            raise UserError(
                f"loss.queue={length} keeps more than 1 GiB of features for {classes:,} "
                f"classes: set loss.queue={max(1, _MOST // (classes * width * 4))}"
            )
        self.features = nn.Buffer(torch.zeros(classes, length, width))
        self.count = nn.Buffer(torch.zeros(classes, dtype=torch.int64))

    @property
    def full(self) -> bool:
        """All of them."""
        return bool((self.count >= self.features.shape[1]).all())

    def remember(self, features: Tensor, label: Tensor) -> None:
        """Puts features ``[B, D]`` into the queues of their classes, over the oldest."""
        for vector, c in zip(features, label.tolist(), strict=True):
            self.features[c, self.count[c] % self.features.shape[1]] = vector
            self.count[c] += 1
