"""Feature maps of the inner layers of a backbone, and numbers of them for the feature bank."""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Sequence
from typing import NamedTuple

import torch
from torch import Tensor, nn

from ood_lab.common.tensor_arithmetic import random_numbers
from ood_lab.common.tensor_file import Tensors
from ood_lab.detectors.base import DetectorRefusal
from ood_lab.features.extraction_hooks import BankColumn
from ood_lab.models.backbone import Backbone
from ood_lab.models.output import Output
from ood_lab.models.trial_passes import evaluating

#: Blocks taken from a network whose feature maps all have one resolution (ViT, Mixer).
ISOTROPIC_BLOCKS = 4


class Probe(NamedTuple):
    """One fixed image through the backbone: ``output`` and ``maps {sub-module: its output}``."""

    output: Output
    maps: Tensors


def probe(backbone: Backbone) -> Probe:
    """Runs one fixed noise image of the backbone's own input size, in evaluation mode.

    ``maps`` has the sub-modules that were called and returned one tensor of 3 or 4 dimensions
    with more than one position (so neither logits nor pooled features), in order of completion.
    """
    noise = torch.randn((1, *backbone.data_config["input_size"]), generator=random_numbers(0))
    parameter = next(backbone.parameters())
    names = [name for name, _ in backbone.named_modules() if name]
    with evaluating(backbone), backbone.capture(names) as maps:
        output = backbone(noise.to(parameter.device, parameter.dtype))
    return Probe(output, {name: map_ for name, map_ in maps.items() if _has_positions(map_)})


def _has_positions(output: object) -> bool:
    if not isinstance(output, Tensor) or output.ndim not in (3, 4):
        return False
    return output.ndim == 3 or output.shape[2:] != (1, 1)


def stage_names(backbone: Backbone, maps: Tensors) -> list[str]:
    """The last sub-module of every spatial resolution, in network order.

    timm models list theirs (``feature_info``); of those whose entries share one resolution
    (ViT), :data:`ISOTROPIC_BLOCKS` evenly spaced blocks are taken, the last one included. In any
    other network: the outermost sub-module whose direct children work at two resolutions or
    more, and of these children the last one at each resolution.
    """
    listed = _timm_stages(backbone, maps)
    if listed:
        return listed
    parents: list[tuple[str, nn.Module]] = sorted(
        backbone.named_modules(), key=lambda item: len(item[0].split(".")) if item[0] else 0
    )
    for parent, module in parents:
        children = {_join(parent, child) for child, _ in module.named_children()}
        last = {
            map_.shape[2:]: name
            for name, map_ in maps.items()
            if name in children and map_.ndim == 4
        }
        if len(last) > 1:
            return list(last.values())
    return []


def _timm_stages(backbone: Backbone, maps: Tensors) -> list[str]:
    for prefix, module in backbone.named_modules():
        info = vars(module).get("feature_info")
        if not isinstance(info, list):
            continue
        reductions = {_join(prefix, item["module"]): item["reduction"] for item in info}
        names = [name for name in reductions if name in maps]
        if len({reductions[name] for name in names}) == 1:
            n = min(ISOTROPIC_BLOCKS, len(names))
            return [names[(i + 1) * len(names) // n - 1] for i in range(n)]
        return names
    return []


def check_names(detector: str, backbone: Backbone, names: list[str], shown: list[str]) -> None:
    """Raises :class:`DetectorRefusal` for a name that is not a sub-module or yields no map."""
    modules = dict(backbone.named_modules())
    for name in names:
        if name not in shown:
            what, some = (
                (f"sub-module '{name}' yields no feature map", "that do")
                if name in modules
                else (f"the backbone has no sub-module '{name}'", "it has")
            )
            raise DetectorRefusal(f"{detector}: {what}; some {some}: {', '.join(shown[:8])}")


def channels_first(backbone: Backbone, map_: Tensor) -> Tensor:
    """Views a feature map as ``[B, C, P]`` (channels, positions).

    ``[B, C, H, W]`` is flattened; tokens ``[B, N, D]`` are positions with D channels; so is
    ``[B, H, W, C]`` of the networks that say so (timm's ``output_fmt``, e.g. Swin).
    """
    return map_.mT if map_.ndim == 3 else grid(backbone, map_).flatten(2)


def grid(backbone: Backbone, map_: Tensor) -> Tensor:
    """``[B, C, H, W]`` of a map of 4 dimensions."""
    last = any(vars(m).get("output_fmt") == "NHWC" for m in backbone.modules())
    return map_.permute(0, 3, 1, 2) if last else map_


def _join(prefix: str, name: str) -> str:
    return f"{prefix}.{name}" if prefix else name


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
        check_names(self.owner, backbone, names, list(maps))
        widths = [self.width_of(channels_first(backbone, maps[n]).shape[1]) for n in names]
        self.names, self.width = names, sum(widths) + len(names) + 1
        return names

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
                f"{self.owner}: layers must be 'stages', 'conv' or a list of names, "
                f"not '{self.choice}'"
            )
        if not names:
            raise DetectorRefusal(
                f"{self.owner}: found no layers by '{self.choice}' in this backbone; name them "
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
