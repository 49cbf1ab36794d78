"""Ways to put requests through a model, and which of them it can be trusted with."""

from __future__ import annotations

from enum import Enum
from typing import NamedTuple

import torch
from torch import Tensor

#: Root mean square of what may differ, in standard deviations of a request's scores: rounding
#: depends on what is computed together.
_ROUNDING = {torch.float32: 5e-3, torch.float64: 5e-3}
_COARSE = 0.1


class InferenceMode(Enum):
    """How requests go through a model, the quickest first."""

    FEATURES = "with features of images that were computed before"
    TOGETHER = "several at a time"
    ALONE = "one by one"


class BatchKind(NamedTuple):
    """What can make a batch differ from its requests asked one by one.

    Args:
        way: of its requests.
        images: of each request.
        mixed: whether the images are of different sizes.
        padded: whether the prompts are of different lengths.
    """

    way: InferenceMode
    images: int
    mixed: bool
    padded: bool


def same_scores(one: Tensor, other: Tensor, dtype: torch.dtype) -> bool:
    """Whether scores of the first token, ``[V]``, differ by no more than rounding.

    Args:
        one: the reference.
        other: scores to compare with it.
        dtype: of the model.
    """
    shown = one.isfinite() & other.isfinite()
    if shown.sum() < 2 or not torch.equal(one.isfinite(), other.isfinite()):
        return bool(torch.equal(one, other))
    mine, theirs = one[shown].float(), other[shown].float()
    apart = (mine - theirs).square().mean().sqrt()
    return bool(apart <= _ROUNDING.get(dtype, _COARSE) * mine.std())
