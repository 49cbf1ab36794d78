"""Quantities that need the network, computed inside the extraction pass."""

from __future__ import annotations

from abc import ABC, abstractmethod

from torch import Tensor

from ood_lab.models.backbone import Backbone
from ood_lab.models.output import Output


class Column(ABC):
    """One tensor per image, computed from the forward pass that also yields the features.

    Attributes:
        key: name in ``FeatureBank.columns``; contains everything that changes the values, so
            two settings never share a key.
        needs_input_grad: the pass runs with ``image.requires_grad`` and keeps the graph of
            ``output`` (parameters never require gradients).
        needed_for_fit: also computed on the split the detector is fitted on.
    """

    key: str
    needs_input_grad: bool = False
    needed_for_fit: bool = False

    @abstractmethod
    def layers(self, backbone: Backbone) -> list[str]:
        """Names of the sub-modules whose outputs ``compute`` reads (may be empty).

        Raises:
            UserError: the backbone cannot serve this column; the message says why.
        """

    @abstractmethod
    def compute(
        self, backbone: Backbone, image: Tensor, output: Output, maps: dict[str, Tensor]
    ) -> Tensor:
        """Returns ``[B, ...] float32`` for the batch.

        ``image [B, 3, H, W]`` is normalised; ``output`` carries a graph to ``image`` when
        ``needs_input_grad``; ``maps`` holds the outputs of ``layers``. Must not modify any of
        them, must not depend on the other images of the batch, and must leave no gradient
        behind in the backbone.
        """
