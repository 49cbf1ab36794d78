"""Whether two words mean the same thing to the metrics."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any, Protocol

from ood_lab.lvlm.captions.nouns import spacy_pipeline

#: AMBER's: above it two words are synonyms.
THRESHOLD = 0.8


class Similarity(Protocol):
    """Tells synonyms."""

    @property
    def made_with(self) -> Mapping[str, Any]:
        """What tells its results from another's: way, model, version."""

    def __call__(self, first: str, second: str) -> bool:
        """True where the two are synonyms."""


@dataclass(frozen=True)
class Association:
    """Equality: only the association tables know synonyms. Needs no data."""

    @property
    def made_with(self) -> Mapping[str, Any]:
        """The way."""
        return {"similarity": "association"}

    def __call__(self, first: str, second: str) -> bool:
        """See :class:`Similarity`."""
        return first == second


@dataclass(frozen=True)
class SpacyVectors:
    """Cosine of spaCy's word vectors above a threshold: AMBER's own way.

    Args:
        model: name or folder of a pipeline with vectors.
        threshold: of the cosine.

    Raises:
        UserError: spaCy or the model is not on this machine.
    """

    model: str = "en_core_web_lg"
    threshold: float = THRESHOLD
    _known: dict[tuple[str, str], bool] = field(default_factory=dict, repr=False, compare=False)

    @property
    def made_with(self) -> Mapping[str, Any]:
        """The way, the model, its version and the threshold."""
        version = self._pipeline.meta.get("version", "")
        return {
            "similarity": "spacy_vectors",
            "similarity_model": self.model,
            "similarity_version": version,
            "threshold": self.threshold,
        }

    def __call__(self, first: str, second: str) -> bool:
        """See :class:`Similarity`."""
        key = (first, second)
        if key not in self._known:
            one, other = self._pipeline(first), self._pipeline(second)
            self._known[key] = one.similarity(other) > self.threshold
        return self._known[key]

    @cached_property
    def _pipeline(self) -> Any:
        return spacy_pipeline(self.model)
