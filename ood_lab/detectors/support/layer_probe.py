"""The sub-modules of a backbone that yield feature maps, found by one forward pass."""

from __future__ import annotations

from typing import NamedTuple

import torch
from torch import Tensor, nn

from ood_lab.common.tensor_file import Tensors
from ood_lab.detectors.base import DetectorRefusal
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
    generator = torch.Generator().manual_seed(0)
    noise = torch.randn((1, *backbone.data_config["input_size"]), generator=generator)
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
