"""Numbers of several layers' feature maps, computed inside the extraction pass."""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Sequence

import torch
from torch import Tensor, nn

from ood_lab.common.tensor_file import Tensors
from ood_lab.detectors.base import DetectorRefusal
from ood_lab.detectors.support.layer_probe import channels_first, check_names, probe, stage_names
from ood_lab.features.extraction_hooks import BankColumn
from ood_lab.models.backbone import Backbone
from ood_lab.models.output import Output


class LayerColumn(BankColumn):
    """The numbers of :meth:`of_map` for every layer, side by side, ``[B, Σ_l K_l + L + 1]``.

    The last L + 1 numbers of every row are the widths K_l of the L layers and L itself, so that a
    bank read from disk can be split into layers again.

    Args:
        layers: ``stages`` (last sub-module of every spatial resolution), ``conv`` (every
            Conv2d) or a list of sub-module names.

    Attributes:
        owner: key of the detector, for messages.
    """

    needed_for_fit = True
    owner: str

    def __init__(self, layers: str | Sequence[str]) -> None:
        self.choice: str | list[str] = layers if isinstance(layers, str) else list(layers)
        self.chosen = self.choice if isinstance(self.choice, str) else "+".join(self.choice)
        self.names: list[str] = []
        self.width = 0

    @abstractmethod
    def of_map(self, map_: Tensor) -> Tensor:
        """``[B, K]`` of the maps ``[B, C, P]`` of one layer."""

    def width_of(self, channels: int) -> int:
        """K of a layer with so many channels: one number of each."""
        return channels

    def layers(self, backbone: Backbone) -> list[str]:
        """Resolves the layer list on this backbone.

        Also kept as ``names``; ``width`` is then the number of floats per image adds to the bank.
        """
        maps = probe(backbone).maps
        names = self._choose(backbone, maps)
        check_names(self.title, backbone, names, list(maps))
        widths = [self.width_of(channels_first(backbone, maps[n]).shape[1]) for n in names]
        self.names, self.width = names, sum(widths) + len(names) + 1
        return names

    @property
    def title(self) -> str:
        """The name of the detector in messages."""
        return self.owner.capitalize()

    def _choose(self, backbone: Backbone, maps: Tensors) -> list[str]:
        if isinstance(self.choice, list):
            return self.choice
        if self.choice == "conv":
            modules = dict(backbone.named_modules())
            names = [name for name in maps if isinstance(modules[name], nn.Conv2d)]
        elif self.choice == "stages":
            names = stage_names(backbone, maps)
        else:
            raise DetectorRefusal(
                f"{self.title}: layers must be 'stages', 'conv' or a list of names, "
                f"not '{self.choice}'"
            )
        if not names:
            raise DetectorRefusal(
                f"{self.title}: found no layers by '{self.choice}' in this backbone; name them "
                f"with detector.{self.owner}.layers=[...]; some that yield maps: "
                f"{', '.join(list(maps)[:8])}"
            )
        return names

    @torch.no_grad()
    def compute(self, backbone: Backbone, image: Tensor, output: Output, maps: Tensors) -> Tensor:
        """Numbers of the maps of ``names``; ``layers`` must have been called before."""
        return self.packed([self.of_map(channels_first(backbone, maps[n])) for n in self.names])

    @staticmethod
    def packed(parts: list[Tensor]) -> Tensor:
        """The numbers ``[B, K_l]`` of all layers in one tensor; see the class."""
        widths = [part.shape[1] for part in parts]
        tail = torch.tensor([*widths, len(widths)], dtype=torch.float32)
        tail = tail.to(parts[0].device, non_blocking=True)
        return torch.cat([*parts, tail.expand(len(parts[0]), -1)], dim=1)


def split_layers(column: Tensor) -> tuple[Tensor, Tensor]:
    """Undoes the packing of :class:`LayerColumn`: all layers' numbers and the width of each."""
    n = int(column[0, -1])
    return column[:, : -1 - n], column[0, -1 - n : -1].long()
