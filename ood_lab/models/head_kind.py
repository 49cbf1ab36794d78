"""Kinds of heads: what a network gives, and which detectors that serves."""

from __future__ import annotations

from collections.abc import Collection
from enum import StrEnum
from typing import Any, Literal

from ood_lab.common.files import packaged_table

#: What a detector may read. ``level`` is that of the logits, log Σ exp z, which probabilities have
#: lost; ``head`` the weights of a linear head; ``maps`` inner layers; ``gradients`` those at the
#: image; ``labels`` are the data's, and no network gives them; ``own_classes``: they name classes
#: of the head.
Part = Literal["features", "logits", "level", "head", "labels", "own_classes", "maps", "gradients"]

_TABLE = packaged_table("ood_lab.models", "head_kinds.yaml")
#: The same in words.
WORDS: dict[Part, str] = _TABLE["parts"]
_KINDS: dict[str, dict[str, Any]] = _TABLE["kinds"]
#: What no network gives and no detector of arrays asks for.
OF_NETWORKS: frozenset[Part] = frozenset({"maps", "gradients"})


class HeadKind(StrEnum):
    """How the logits of a network follow from its features, as far as it gives both.

    ``LINEAR``: ``head(features) == logits``. ``BLACK_BOX``: logits are some function of the
    features. ``PROBABILITIES``: logits are the logarithms of probabilities. ``LOGITS`` and
    ``FEATURES``: it gives only these. ``OTHER_CLASSES``: linear, of other classes than the data:
    no label names one of them.
    """

    LINEAR = "linear head"
    OTHER_CLASSES = "other classes"
    BLACK_BOX = "black box"
    PROBABILITIES = "probabilities"
    LOGITS = "logits only"
    FEATURES = "features only"

    @classmethod
    def of(cls, gives: Collection[Part]) -> HeadKind:
        """The kind that gives these parts."""
        if "logits" not in gives:
            return cls.FEATURES
        if "level" not in gives:
            return cls.PROBABILITIES
        if "head" in gives:
            return cls.LINEAR if "own_classes" in gives else cls.OTHER_CLASSES
        return cls.BLACK_BOX if "features" in gives else cls.LOGITS

    @property
    def gives(self) -> frozenset[Part]:
        """What a network of this kind gives where PyTorch runs it and its features are known."""
        return frozenset(_KINDS[self]["gives"])


def missing(reads: Collection[Part], gives: Collection[Part]) -> list[Part]:
    """What a detector reads and a network does not give; labels are those of the data."""
    return [part for part in WORDS if part in reads and part not in (*gives, "labels")]


def parts_of(
    features: int, logits: int, linear: bool, normalised: bool, own_classes: bool
) -> frozenset[Part]:
    """What tensors ``[N, features]`` and ``[N, logits]`` give, without the network itself.

    Args:
        features: width, 0 = none.
        logits: width, 0 = none.
        linear: a linear head makes one of the other.
        normalised: the logits are logarithms of probabilities.
        own_classes: labels of the data name classes of the logits.
    """
    parts: dict[Part, bool] = {
        "features": features > 0,
        "logits": logits > 0,
        "level": logits > 0 and not normalised,
        "head": linear,
        "own_classes": logits > 0 and own_classes,
    }
    return frozenset(part for part, there in parts.items() if there)
