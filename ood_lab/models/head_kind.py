"""Kinds of heads: what a network gives, and which detectors that serves."""

from __future__ import annotations

from collections.abc import Collection
from enum import StrEnum
from typing import Literal

#: What a detector may read. ``level`` is that of the logits, log Σ exp z, which probabilities have
#: lost; ``head`` the weights of a linear head; ``maps`` inner layers; ``gradients`` those at the
#: image; ``labels`` are the data's, and no network gives them.
Part = Literal["features", "logits", "level", "head", "labels", "maps", "gradients"]

#: The same in words.
WORDS: dict[Part, str] = {
    "features": "features",
    "logits": "logits",
    "level": "the level of the logits",
    "head": "the weights of a linear head",
    "labels": "labels",
    "maps": "inner layers",
    "gradients": "gradients at the image",
}
#: What no network gives and no detector of arrays asks for.
OF_NETWORKS: frozenset[Part] = frozenset({"maps", "gradients"})


class HeadKind(StrEnum):
    """How the logits of a network follow from its features, as far as it gives both.

    ``LINEAR``: ``head(features) == logits``. ``BLACK_BOX``: logits are some function of the
    features. ``PROBABILITIES``: logits are the logarithms of probabilities. ``LOGITS`` and
    ``FEATURES``: it gives only these.
    """

    LINEAR = "linear head"
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
            return cls.LINEAR
        return cls.BLACK_BOX if "features" in gives else cls.LOGITS

    @property
    def gives(self) -> frozenset[Part]:
        """What a network of this kind gives where PyTorch runs it and its features are known."""
        return _GIVES[self]

    @property
    def sentence(self) -> str | None:
        """What a verdict says of it; None of a linear head, from which all detectors follow."""
        return _SENTENCES.get(self)


_GIVES: dict[HeadKind, frozenset[Part]] = {
    HeadKind.LINEAR: frozenset({"features", "logits", "level", "head", *OF_NETWORKS}),
    HeadKind.BLACK_BOX: frozenset({"features", "logits", "level", *OF_NETWORKS}),
    HeadKind.PROBABILITIES: frozenset({"features", "logits", *OF_NETWORKS}),
    HeadKind.LOGITS: frozenset({"logits", "level"}),
    HeadKind.FEATURES: frozenset({"features", *OF_NETWORKS}),
}
_SENTENCES = {
    HeadKind.BLACK_BOX: "The network is a black box: no linear head makes its logits.",
    HeadKind.PROBABILITIES: "The network gives probabilities; their logarithms serve as logits.",
    HeadKind.LOGITS: "The network gives logits only, so detectors of features are skipped.",
    HeadKind.FEATURES: "The network gives features only, so detectors of logits are skipped.",
}


def missing(reads: Collection[Part], gives: Collection[Part]) -> list[Part]:
    """What a detector reads and a network does not give; labels are those of the data."""
    return [part for part in WORDS if part in reads and part not in (*gives, "labels")]


def parts_of(features: int, logits: int, linear: bool, normalised: bool) -> frozenset[Part]:
    """What tensors ``[N, features]`` and ``[N, logits]`` give, without the network itself.

    Args:
        features: width, 0 = none.
        logits: width, 0 = none.
        linear: a linear head makes one of the other.
        normalised: the logits are logarithms of probabilities.
    """
    found: dict[Part, bool] = {
        "features": features > 0,
        "logits": logits > 0,
        "level": logits > 0 and not normalised,
        "head": linear,
    }
    return frozenset(part for part, there in found.items() if there)
