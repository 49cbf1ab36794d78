"""Quantities that need the network, computed inside the extraction pass."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Sequence

import torch
from torch import Tensor

from ood_lab.common.tensor_file import Tensors
from ood_lab.features.bank import TILES
from ood_lab.models.backbone import Backbone
from ood_lab.models.output import Output


class BankColumn(ABC):
    """One tensor per image, computed from the forward pass that also yields the features.

    Attributes:
        key: name in ``FeatureBank.columns``; contains everything that changes the values, so
            two settings never share a key.
        needs_input_grad: the pass runs with ``image.requires_grad`` and keeps the graph of
            ``output`` (parameters never require gradients).
        needed_for_fit: also computed on the split the detector is fitted on.
        traceable: ``compute`` reads only ``maps``, and can be part of an ONNX graph.
        of_tiles: of an image that passes as tiles, the values of each tile are kept; else their
            mean, or of whole numbers their most frequent value.
        names: of the sub-modules that it reads, of a column that chooses them by the backbone.
    """

    key: str
    needs_input_grad: bool = False
    needed_for_fit: bool = False
    traceable: bool = False
    of_tiles: bool = True
    names: Sequence[str] = ()

    def layers(self, backbone: Backbone) -> list[str]:
        """Names of the sub-modules whose outputs ``compute`` reads; by default none.

        Raises:
            UserError: the backbone cannot serve this column; the message says why.
        """
        return []

    @abstractmethod
    def compute(self, backbone: Backbone, image: Tensor, output: Output, maps: Tensors) -> Tensor:
        """Returns ``[B, ...] float32`` for the batch.

        ``image [B, 3, H, W]`` is normalised; ``output`` carries a graph to ``image`` when
        ``needs_input_grad``; ``maps`` holds the outputs of ``layers``. Must not modify any of
        them, must not depend on the other images of the batch, and must leave no gradient
        behind in the backbone.
        """


Columns = Sequence[BankColumn]


class TilesColumn(BankColumn):
    """Features and logits of the tiles of an image, ``[B, T, D + C]``."""

    key = TILES

    def compute(self, backbone: Backbone, image: Tensor, output: Output, maps: Tensors) -> Tensor:
        """``[B, D + C]`` of tiles."""
        return torch.cat([output.features.float(), output.logits.float()], dim=1)


class GradientColumn(BankColumn):
    """A column that reads one gradient of the logits at the image.

    That gradient is ∂(vᵀz)/∂image with v = :meth:`direction`, by default that of the largest logit.
    Columns of equal ``direction_key`` share one backward pass, and all of them the forward pass of
    the features.

    Attributes:
        direction_key: contains everything that changes the direction.
    """

    needs_input_grad = True
    direction_key = "largest logit"

    def direction(self, logits: Tensor) -> Tensor:
        """V of every image, ``[B, C]``, of the logits ``[B, C]``."""
        return torch.zeros_like(logits).scatter(1, logits.argmax(dim=1, keepdim=True), 1)

    @abstractmethod
    def of_gradient(
        self, backbone: Backbone, image: Tensor, output: Output, gradient: Tensor
    ) -> Tensor:
        """:meth:`compute` given the gradient ``[B, 3, H, W]``; runs without a graph."""

    def compute(self, backbone: Backbone, image: Tensor, output: Output, maps: Tensors) -> Tensor:
        """One backward pass through the shared forward, then :meth:`of_gradient`."""
        gradient = input_gradients([self], image, output.logits)[self.direction_key]
        with torch.no_grad():
            return self.of_gradient(backbone, image.detach(), output, gradient)


def input_gradients(columns: Sequence[GradientColumn], image: Tensor, logits: Tensor) -> Tensors:
    """The gradient of every ``direction_key``, each by one backward pass; frees the graph."""
    different = {column.direction_key: column for column in columns}
    gradients = {}
    for place, (key, column) in enumerate(different.items(), 1):
        with torch.no_grad():
            towards = column.direction(logits).to(logits.dtype)
        more = place < len(different)
        (gradients[key],) = torch.autograd.grad(logits, image, towards, retain_graph=more)
    return gradients
