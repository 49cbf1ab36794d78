"""What every backbone returns, and what is found in the output of any network."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import is_dataclass
from typing import Any, NamedTuple

import torch
from torch import Tensor

from ood_lab.common.errors import UserError
from ood_lab.common.tensor_file import Tensors

#: Largest distance of the sum of probabilities from 1.
ROUNDING = 1e-2
#: Weight ``[C, D]`` and bias ``[C]`` of a linear head.
WeightAndBias = tuple[Tensor, Tensor]


class Output(NamedTuple):
    """``logits [B, C]`` and ``features [B, D]``; what the network does not give has no column.

    Where there is a head, ``head(features) == logits``.
    """

    logits: Tensor
    features: Tensor


def logits_of(returned: object) -> object:
    """What a network returns, or the logits in it: those of a dict, an object, a tuple of one."""
    match returned:
        case {"logits": logits} | [logits] | object(logits=logits):
            return logits
    return returned


def entries_of(returned: object) -> Tensors:
    """The tensors of an output, by key, attribute or place; none of a tensor."""
    entries: Any = {}
    match returned:
        case Mapping():
            entries = returned
        case object(_asdict=as_dict):
            entries = as_dict()
        case tuple() | list():
            entries = dict(enumerate(returned))
        case _ if is_dataclass(returned):
            entries = vars(returned)
    return {str(key): value for key, value in entries.items() if isinstance(value, Tensor)}


def entry_of(returned: object, key: str | None, name: str, setting: str = "output") -> Tensor:
    """The entry ``key`` of an output; without a key its logits, or its only tensor.

    Raises:
        UserError: there is no such entry, or there are several.
    """
    entries = entries_of(returned)
    if key is not None and key in entries:
        return entries[key]
    logits = logits_of(returned) if key is None else None
    if isinstance(logits, Tensor):
        return logits
    if key is None and len(entries) == 1:
        return next(iter(entries.values()))
    problem = "" if key is None else f", without '{key}'"
    if entries:
        remedy = f"model.{setting}=KEY chooses one of {', '.join(entries)}"
    else:
        remedy = "wrap it in a module that returns the logits"
    raise UserError(
        f"{name} returns {described(returned)}{problem} instead of one logits tensor [B, C]: "
        f"{remedy}"
    )


def described(value: Any) -> str:
    """An output in words, with the shapes of its tensors."""
    kind = type(value).__name__
    if isinstance(value, Tensor):
        return f"a tensor {list(value.shape)}"
    if type(value) in (tuple, list):
        parts = [str(list(v.shape)) if isinstance(v, Tensor) else type(v).__name__ for v in value]
    else:
        parts = [f"{key} {list(entry.shape)}" for key, entry in entries_of(value).items()]
    return f"a {kind} ({', '.join(parts)})" if parts else f"a {kind}"


def one_vector(values: Tensor) -> Tensor | None:
    """``[B, D]`` of a vector an image, or the mean over the positions of a map ``[B, D, H, W]``."""
    if values.ndim == 4:
        return values.mean(dim=(2, 3))
    return values if values.ndim == 2 else None


def probabilities(values: object) -> str | None:
    """``softmax`` or ``log_softmax`` where an output ``[B, C]`` is that; None where it is not."""
    if not isinstance(values, Tensor) or values.ndim != 2 or values.shape[1] < 2:
        return None
    logits = values.detach().double()
    for name, p in (("softmax", logits), ("log_softmax", logits.exp())):
        if bool((p >= 0).all()) and bool(((p.sum(dim=1) - 1).abs() < ROUNDING).all()):
            return name
    return None


def as_logits(values: Tensor, kind: str | None) -> Tensor:
    """Logits ``[B, C]`` of an output: log p of probabilities, ``[0, z]`` of one logit.

    Args:
        values: ``[B, C]``, or ``[B]`` of one logit.
        kind: see :func:`probabilities`; or ``sigmoid``, of which they are log p − log(1 − p).
    """
    if values.ndim == 1:
        values = values[:, None]
    if kind == "sigmoid":
        return values.logit(eps=torch.finfo(values.dtype).eps)
    if kind == "softmax":
        return values.clamp(min=torch.finfo(values.dtype).tiny).log()
    return torch.cat([torch.zeros_like(values), values], dim=1) if values.shape[1] == 1 else values
