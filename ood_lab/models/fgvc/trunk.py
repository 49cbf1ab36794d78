"""The trunk of a fine-grained method: a timm feature pyramid tapped at given strides."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from torch import Tensor, nn

from ood_lab.common.errors import UserError
from ood_lab.common.files import StrPath
from ood_lab.models.loading.timm_networks import create_timm
from ood_lab.models.weights import check_one_source, load_weights


def pyramid(
    name: str,
    strides: Sequence[int],
    method: str,
    pretrained: bool = False,
    weights: StrPath | None = None,
    kwargs: Mapping[str, Any] | None = None,
) -> tuple[nn.Module, list[int]]:
    """The network that yields the deepest map of each of ``strides``, and their channels.

    Args:
        name: timm model.
        strides: pixels between neighbours of a map, fine to coarse.
        method: who asks, for messages.
        pretrained: take timm's weights.
        weights: take those of this local file, saved by timm or torchvision: every tensor but
            the classifier's must fit.
        kwargs: passed to ``timm.create_model``.

    Raises:
        UserError: unknown model, no maps of these strides, or weights that are not to be had.
    """
    check_one_source(name, pretrained, weights, "model.trunk_weights")
    kwargs = dict(kwargs or {})
    probe: Any = create_timm(name, pretrained=False, features_only=True, **kwargs)
    reductions = list(probe.feature_info.reduction())
    if reductions[-1] != strides[-1] or not set(strides) <= set(reductions):
        wanted = ("strides are " if len(strides) > 1 else "stride is ") + _listed(strides)
        raise UserError(
            f"{method} needs a backbone whose last {wanted}; the maps of {name} have "
            f"{_listed(sorted(set(reductions)))}: choose a pyramid such as model.trunk=resnet50"
        )
    last = dict(zip(reductions, probe.feature_info.out_indices, strict=True))
    taps = tuple(last[stride] for stride in strides)
    trunk: Any = create_timm(name, pretrained, features_only=True, out_indices=taps, **kwargs)
    if weights is not None:
        _load(trunk, name, weights, kwargs)
    return trunk, list(trunk.feature_info.channels())


def channels_first(trunk: nn.Module, maps: Sequence[Tensor]) -> list[Tensor]:
    """The maps as ``[B, C, H, W]``; some networks (Swin) give ``[B, H, W, C]``."""
    if getattr(trunk, "output_fmt", None) == "NHWC":
        return [m.permute(0, 3, 1, 2) for m in maps]
    return list(maps)


def _load(trunk: nn.Module, name: str, weights: StrPath, kwargs: Mapping[str, Any]) -> None:
    """Loads the file into the whole network, where every tensor has a place, and copies it."""
    network: Any = create_timm(name, pretrained=False, **kwargs)
    load_weights(network, weights, name, new_head=network.pretrained_cfg["classifier"])
    # timm writes stages.0 of the whole network as stages_0, or model.stages.0, in the pyramid.
    values = {_plain(key): value for key, value in network.state_dict().items()}
    trunk.load_state_dict({key: values[_plain(key)] for key in trunk.state_dict()})


def _plain(key: str) -> str:
    return key.removeprefix("model.").replace(".", "_")


def _listed(numbers: Sequence[int]) -> str:
    return ", ".join(map(str, numbers))
