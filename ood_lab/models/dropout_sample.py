"""Networks drawn from one that was trained with dropout."""

from __future__ import annotations

import copy
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor, nn
from torch.overrides import TorchFunctionMode

from ood_lab.common.errors import UserError
from ood_lab.common.random_streams import stream
from ood_lab.models.backbone import Backbone
from ood_lab.models.output import Output
from ood_lab.models.trial_passes import evaluating, random_batch


def dropout_sample(backbone: Backbone, number: int, seed: int) -> Backbone:
    """The network with one mask for every dropout layer, the same for all images (1506.02142).

    A fixed mask keeps it a function of one image, so that its features can be stored; over the
    numbers, the masks of an image are independent draws. Parameters are those of ``backbone``.

    Args:
        backbone: the network.
        number: of the sample.
        seed: of the masks.

    Raises:
        UserError: it has no dropout.
    """
    sample, masks = copy.copy(backbone), _Masks(number, seed)
    sample._modules = {**backbone._modules, "dropout_sample": masks.label}

    def forward(image: Tensor) -> Output:
        with masks:
            return backbone(image)

    sample.forward = forward  # type: ignore[method-assign]
    with evaluating(sample):
        sample(random_batch(sample, sample.data_config["input_size"]))
    if not masks.drawn:
        raise UserError(
            f"mc_dropout: {backbone.name} has no dropout layer with p > 0; ensemble=[RUN1,RUN2] "
            "takes several networks"
        )
    return sample


class _Label(nn.Module):
    """Tells the features of a sample from those of others: it is printed with the network."""

    def __init__(self, number: int, seed: int) -> None:
        super().__init__()
        self.text = f"sample={number}, seed={seed}"

    def extra_repr(self) -> str:
        return self.text


class _Masks(TorchFunctionMode):
    """Multiplies where layers would drop, in evaluation mode too: x · m / (1 − p)."""

    def __init__(self, number: int, seed: int) -> None:
        super().__init__()
        self.label = _Label(number, seed)
        self.drawn: dict[tuple[int, torch.Size], Tensor] = {}
        self._by, self._layer = (number, seed), 0

    def __enter__(self) -> _Masks:
        self._layer = 0
        super().__enter__()
        return self

    def __torch_function__(
        self, func: Any, types: Any, args: tuple[Any, ...] = (), kwargs: Any = None
    ) -> Any:
        kwargs = kwargs or {}
        whole_maps = func in (F.dropout1d, F.dropout2d, F.dropout3d)
        if func is not F.dropout and not whole_maps:
            return func(*args, **kwargs)
        x = args[0] if args else kwargs["input"]
        p = float(args[1] if len(args) > 1 else kwargs.get("p", 0.5))
        self._layer += 1
        if not 0 < p < 1:
            return x
        shape = torch.Size(
            (1, *x.shape[1:2], *(1 for _ in x.shape[2:])) if whole_maps else x[:1].shape
        )
        key = self._layer, shape
        if key not in self.drawn:
            number, seed = self._by
            kept = stream(seed, "mc_dropout", number, self._layer).random(tuple(shape)) >= p
            self.drawn[key] = torch.from_numpy(kept) / (1 - p)
        return x * self.drawn[key].to(x)
