"""What every backbone returns."""

from collections.abc import Mapping
from typing import NamedTuple

from torch import Tensor


class Output(NamedTuple):
    """``logits [B, C]`` and ``features [B, D]``, with ``head(features) == logits``."""

    logits: Tensor
    features: Tensor


def logits_of(returned: object) -> object:
    """What a network returns, or the logits in it: those of a dict, an object, a tuple of one."""
    if isinstance(returned, Mapping) and "logits" in returned:
        return returned["logits"]
    if isinstance(returned, tuple | list) and len(returned) == 1:
        return returned[0]
    return getattr(returned, "logits", returned)
