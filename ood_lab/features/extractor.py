"""The extraction pass as Lightning sees it: one forward a batch, everything read from it."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager
from typing import Any

import torch
from lightning.pytorch import LightningModule
from torch import Tensor
from torch.nn import functional as F

from ood_lab.features.column import Column, GradientColumn, input_gradients
from ood_lab.models.backbone import Backbone
from ood_lab.models.output import Output


@contextmanager
def frozen(backbone: Backbone) -> Iterator[None]:
    """Puts the backbone into eval mode without parameter gradients, and back afterwards."""
    training = {module: module.training for module in backbone.modules()}
    gradients = {parameter: parameter.requires_grad for parameter in backbone.parameters()}
    backbone.eval().requires_grad_(False)
    try:
        yield
    finally:
        for module, mode in training.items():
            module.training = mode
        for parameter, required in gradients.items():
            parameter.requires_grad_(required)


class Extractor(LightningModule):
    """Computes features, logits and columns of a batch; use it inside :func:`frozen`.

    ``predict_step`` returns ``index [B]``, ``columns {key: [B, ...]}`` and, with ``base``,
    ``features [B, D] float32``, ``logits [B, C] float32``, ``labels [B]``.

    Args:
        backbone: the network.
        columns: what to compute besides.
        base: whether features, logits and labels are wanted.
        description: what the progress bar shows.

    Raises:
        UserError: the backbone cannot serve a column.
    """

    def __init__(
        self,
        backbone: Backbone,
        columns: Sequence[Column] = (),
        base: bool = True,
        description: str = "Extracting",
    ) -> None:
        super().__init__()
        self.backbone = backbone
        self.base = base
        self.description = description
        self.needs_input_grad = any(column.needs_input_grad for column in columns)
        self._columns = list(columns)
        self._layers = {column.key: column.layers(backbone) for column in columns}
        self._maps: dict[str, Tensor] = {}
        self._hooks = ExitStack()

    @property
    def column_keys(self) -> list[str]:
        """Keys of the columns that ``predict_step`` computes."""
        return [column.key for column in self._columns]

    def on_predict_start(self) -> None:
        """Places the hooks once, in the process that predicts: they cannot travel to another."""
        layers = sorted({layer for layers in self._layers.values() for layer in layers})
        if layers:
            self._maps = self._hooks.enter_context(self.backbone.capture(layers))

    def close(self) -> None:
        """Removes the hooks; also needed after a pass that failed."""
        self._hooks.close()
        self._maps = {}

    def predict_step(self, batch: dict[str, Tensor], batch_idx: int) -> dict[str, Any]:
        """Computes what the class says of one batch of ``image``, ``index``, ``label``."""
        image = batch["image"]
        output, maps = self._forward(image, self.needs_input_grad)
        prediction: dict[str, Any] = {"index": batch["index"]}
        if self.base:
            features = output.features.detach().float()
            prediction["features"] = features
            prediction["logits"] = self._logits(output.logits.detach(), features)
            prediction["labels"] = batch["label"]
        prediction["columns"] = self._compute_columns(image, output, maps)
        return prediction

    def _forward(self, image: Tensor, graph: bool) -> tuple[Output, dict[str, Tensor]]:
        if not graph:
            return self.backbone(image), dict(self._maps)
        with torch.enable_grad():
            output = self.backbone(image.requires_grad_())
        # A column may run the network again, which overwrites what the hooks collected.
        return output, dict(self._maps)

    def _logits(self, logits: Tensor, features: Tensor) -> Tensor:
        """Logits that agree with the stored features where autocast has rounded the head."""
        if logits.dtype == torch.float32:
            return logits
        head = self.backbone.head
        with torch.autocast(features.device.type, enabled=False):
            bias = None if head.bias is None else head.bias.float()
            return F.linear(features, head.weight.float(), bias)

    def _compute_columns(
        self, image: Tensor, output: Output, maps: dict[str, Tensor]
    ) -> dict[str, Tensor]:
        plain_output = Output(output.logits.detach(), output.features.detach())
        plain_maps = {layer: value.detach() for layer, value in maps.items()}
        by_gradient = [c for c in self._columns if isinstance(c, GradientColumn)]
        values: dict[str, Tensor] = {}
        for column in self._columns:
            if not column.needs_input_grad:
                value = column.compute(self.backbone, image.detach(), plain_output, plain_maps)
                values[column.key] = value
        if by_gradient:
            gradients = input_gradients(by_gradient, image, output.logits)
            for shared in by_gradient:
                gradient = gradients[shared.direction_key]
                values[shared.key] = shared.of_gradient(
                    self.backbone, image.detach(), plain_output, gradient
                )
        values |= self._on_graphs(image, output, maps, fresh=not by_gradient)
        return {
            key: value.detach().float() if value.is_floating_point() else value.detach()
            for key, value in values.items()
        }

    def _on_graphs(
        self, image: Tensor, output: Output, maps: dict[str, Tensor], fresh: bool
    ) -> dict[str, Tensor]:
        """The columns that need a graph of their own; ``fresh``: that of ``output`` is unused."""
        values: dict[str, Tensor] = {}
        for column in self._columns:
            if isinstance(column, GradientColumn) or not column.needs_input_grad:
                continue
            # A backward pass frees the graph; the next column needs its own.
            if not fresh:
                output, maps = self._forward(image, graph=True)
            fresh = False
            with torch.enable_grad():
                values[column.key] = column.compute(self.backbone, image, output, maps)
        return values
