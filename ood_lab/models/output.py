"""What every backbone returns."""

from typing import NamedTuple

from torch import Tensor


class Output(NamedTuple):
    """``logits [B, C]`` and ``features [B, D]``, with ``head(features) == logits``."""

    logits: Tensor
    features: Tensor
