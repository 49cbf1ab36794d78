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
        traceable: ``compute`` reads only ``maps``, and can be part of an ONNX graph.
        of_tiles: of an image that passes as tiles, the values of each tile are kept; else their
            mean, or of whole numbers their most frequent value.
    """

    key: str
    traceable: bool = False
    of_tiles: bool = True

    def layers(self, backbone: Backbone) -> list[str]:
        """Names of the sub-modules whose outputs ``compute`` reads; by default none.

        Raises:
            UserError: the backbone cannot serve this column; the message says why.
        """
        return []

    def compute(self, backbone: Backbone, image: Tensor, output: Output, maps: Tensors) -> Tensor:
        """Returns ``[B, ...] float32`` for the batch; runs without a graph.

        ``image [B, 3, H, W]`` is normalised; ``maps`` holds the outputs of ``layers``. Must not
        modify any of them, and must not depend on the other images of the batch.
        """
        raise NotImplementedError


Columns = Sequence[BankColumn]


class TilesColumn(BankColumn):
    """Features and logits of the tiles of an image, ``[B, T, D + C]``."""

    key = TILES

    def compute(self, backbone: Backbone, image: Tensor, output: Output, maps: Tensors) -> Tensor:
        """``[B, D + C]`` of tiles."""
        return torch.cat([output.features.float(), output.logits.float()], dim=1)


class GradientColumn(BankColumn):
    """A column that reads one gradient of the logits.

    That gradient is ∂(vᵀz)/∂x, of the :meth:`inputs` x, with v = :meth:`direction`: by default that
    of the largest logit at the image. Columns of equal ``direction_key`` share one backward pass,
    and all of them the forward pass of the features.

    Attributes:
        direction_key: contains everything that changes the direction and the inputs.
    """

    direction_key = "largest logit"

    def direction(self, logits: Tensor) -> Tensor:
        """V of every image, ``[B, C]``, of the logits ``[B, C]``."""
        return torch.zeros_like(logits).scatter(1, logits.argmax(dim=1, keepdim=True), 1)

    def inputs(self, image: Tensor, maps: Tensors) -> list[Tensor]:
        """Where the gradient is taken."""
        return [image]

    @abstractmethod
    def of_gradient(
        self,
        backbone: Backbone,
        image: Tensor,
        output: Output,
        maps: Tensors,
        gradient: Sequence[Tensor],
    ) -> Tensor:
        """As :meth:`compute`, given the gradient at each of the inputs."""


def input_gradients(
    columns: Sequence[GradientColumn], image: Tensor, logits: Tensor, maps: Tensors
) -> dict[str, Sequence[Tensor]]:
    """The gradient of every ``direction_key``, each by one backward pass; frees the graph."""
    different = {column.direction_key: column for column in columns}
    gradients: dict[str, Sequence[Tensor]] = {}
    for place, (key, column) in enumerate(different.items(), 1):
        with torch.no_grad():
            towards = column.direction(logits).to(logits.dtype)
        more, inputs = place < len(different), column.inputs(image, maps)
        gradients[key] = torch.autograd.grad(logits, inputs, towards, retain_graph=more)
    return gradients
