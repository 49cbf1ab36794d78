"""Feature maps of the inner layers of a backbone, and numbers of them for the feature bank."""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Sequence
from typing import Literal, NamedTuple

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


#: Layers by a rule, or by the names of sub-modules.
Layers = Literal["stages", "conv"] | Sequence[str]


class ChosenLayers(BankColumn):
    """A column that reads layers which are named, or are chosen by the backbone.

    Args:
        layers: names of sub-modules; or a word for a rule (:meth:`choose`).

    Attributes:
        owner: key of the detector, and ``setting``, in which it takes names.
        hint: on names, for the message.
        least: number of layers.
        chosen: ``layers`` as a part of ``key``.
    """

    owner: str
    setting = "layers"
    hint = ""
    least = 1

    def __init__(self, layers: str | Sequence[str]) -> None:
        self.choice = layers
        self.chosen = layers if isinstance(layers, str) else "+".join(layers)
        self.names: list[str] = []

    def layers(self, backbone: Backbone) -> list[str]:
        """The sub-modules, also kept as ``names``.

        Raises:
            DetectorRefusal: there are fewer than ``least``, or one yields no feature map.
        """
        seen = probe(backbone)
        by_rule = isinstance(self.choice, str)
        names = self.choose(backbone, seen.maps) if by_rule else list(self.choice)
        if lacking := [name for name in names if name not in seen.maps]:
            problem = f"'{lacking[0]}' is no sub-module with a feature map"
        elif len(names) < self.least:
            problem = f"'{self.chosen}' chooses {len(names)} of {self.least} layers"
        else:
            self.names = names
            self.accept(backbone, seen)
            return names
        raise DetectorRefusal(
            f"{self.owner}: {problem} in {backbone.name}: name some with detector.{self.owner}."
            f"{self.setting}=[...]{self.hint}; "
            f"maps have: {', '.join(list(seen.maps)[:8]) or 'none'}"
        )

    def choose(self, backbone: Backbone, maps: Tensors) -> list[str]:
        """The layers by the rule."""
        return stage_names(backbone, maps)

    def accept(self, backbone: Backbone, seen: Probe) -> None:
        """Looks at the layers that were chosen; raises where they cannot serve."""


class LayerColumn(ChosenLayers):
    """The numbers of :meth:`of_map` for every layer, side by side, ``[B, Σ_l K_l + L + 1]``.

    The last L + 1 numbers of every row are the widths K_l of the L layers and L itself, so that a
    bank read from disk can be split into layers again. The layers are ``stages`` (last sub-module
    of every spatial resolution), ``conv`` (every Conv2d) or a list of sub-module names.

    Attributes:
        width: floats that an image adds to the bank, once the layers are known.
    """

    width = 0

    @abstractmethod
    def of_map(self, map_: Tensor) -> Tensor:
        """``[B, K]`` of the maps ``[B, C, P]`` of one layer."""

    def width_of(self, channels: int) -> int:
        """K of a layer with so many channels: one number of each."""
        return channels

    def choose(self, backbone: Backbone, maps: Tensors) -> list[str]:
        """See the class."""
        if self.choice == "stages":
            return super().choose(backbone, maps)
        modules = dict(backbone.named_modules())
        return [name for name in maps if isinstance(modules[name], nn.Conv2d)]

    def accept(self, backbone: Backbone, seen: Probe) -> None:
        """Adds the widths up."""
        maps = [channels_first(backbone, seen.maps[name]) for name in self.names]
        self.width = sum(self.width_of(map_.shape[1]) for map_ in maps) + len(maps) + 1

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
