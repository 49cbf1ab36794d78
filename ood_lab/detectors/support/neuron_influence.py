"""Influence of the neurons of several layers on the decision, computed in the extraction pass."""

from __future__ import annotations

import torch
from torch import Tensor

from ood_lab.common.tensor_file import Tensors
from ood_lab.detectors.base import DetectorRefusal
from ood_lab.detectors.support.layer_probe import channels_first
from ood_lab.detectors.support.layer_statistics import LayerColumn
from ood_lab.models.backbone import Backbone
from ood_lab.models.output import Output


class InfluenceColumn(LayerColumn):
    r"""Activation times gradient of every channel of every layer, as :class:`LayerColumn` packs it.

    .. math::
        \Big(\sum_{HW} a_l\Big) \odot
        \Big(\sum_{HW} \frac{\partial\,\mathrm{KL}}{\partial a_l}\Big), \qquad
        \mathrm{KL} = -\tfrac1C \sum_c \log p_c

    with the maps a_l ``[C_l, H, W]``: the sums are multiplied, as in the code of NAC's authors
    (pytorch-ood sums the products). One backward pass, which ends at the first of the layers.
    """

    owner = "nac"
    title = "NAC"
    needs_input_grad = True

    def __init__(self, layers: str | list[str]) -> None:
        super().__init__(layers)
        self.key = f"influence(layers={self.chosen})"

    def layers(self, backbone: Backbone) -> list[str]:
        """The layers of :class:`LayerColumn`.

        Raises:
            DetectorRefusal: one of them yields no map.
        """
        try:
            return super().layers(backbone)
        except DetectorRefusal as refusal:
            raise DetectorRefusal(
                f"{refusal}; the input of the last layer is called 'features'"
            ) from None

    def of_map(self, map_: Tensor) -> Tensor:
        """The sum over the positions of one layer's maps, or of their gradient."""
        return map_.float().sum(dim=2)

    def width_of(self, channels: int) -> int:
        """One number per channel."""
        return channels

    def compute(self, backbone: Backbone, image: Tensor, output: Output, maps: Tensors) -> Tensor:
        """One backward pass through the shared forward; ``layers`` must have been called before."""
        with torch.no_grad():
            towards = output.logits.double().softmax(dim=1) - 1 / output.logits.shape[1]
            # Where the network is sure of nothing, half precision would lose it.
            scale = towards.abs().amax(dim=1, keepdim=True).clamp(min=1e-30)
        chosen = [maps[name] for name in self.names]
        unit = (towards / scale).to(output.logits.dtype)
        gradients = torch.autograd.grad(output.logits, chosen, unit)
        with torch.no_grad():
            pairs = zip(chosen, gradients, strict=True)
            sums = [[self.of_map(channels_first(backbone, one)) for one in pair] for pair in pairs]
            return self.packed([(a * g.double() * scale).float() for a, g in sums])
