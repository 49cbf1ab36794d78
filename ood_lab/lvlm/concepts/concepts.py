"""Concepts of a data set: which of them images show, and what is known of them."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, field
from typing import NamedTuple

#: Kinds of concepts: things, surroundings, and what is neither (``hot``).
ENTITY, ENVIRONMENT, VIRTUAL = "entity", "environment", "virtual"


class Attribute(NamedTuple):
    """Two words for a concept, of which the first is right and the second wrong."""

    true: str
    false: str


@dataclass(frozen=True)
class Concepts:
    """Concepts of a data set.

    Attributes:
        name: of the data, for tables.
        truth: of every image, the concepts that are there; one may be named twice.
        hallu: of every image, concepts that are not there and might be said to be.
        types: of a concept, ``entity``, ``environment`` or ``virtual``.
        states: of a concept, pairs of adjectives.
        actions: of a concept, pairs of verbs.
        associates: of a concept, other words for it, or for a part of it.
        safe_words: words that never count as hallucinated.
    """

    name: str
    truth: Sequence[Sequence[str]]
    hallu: Sequence[Sequence[str]]
    types: Mapping[str, str]
    states: Mapping[str, Sequence[Attribute]] = field(default_factory=dict)
    actions: Mapping[str, Sequence[Attribute]] = field(default_factory=dict)
    associates: Mapping[str, Sequence[str]] = field(default_factory=dict)
    safe_words: Sequence[str] = ()

    @property
    def vocabulary(self) -> list[str]:
        """Concepts and their associates, each once: the words that a caption is searched for."""
        words = [*self.types, *self.associates]
        words += [word for others in self.associates.values() for word in others]
        return list(dict.fromkeys(words))

    @property
    def identity(self) -> str:
        """Sha256 (hex) of everything."""
        return hashlib.sha256(json.dumps(asdict(self), sort_keys=True).encode()).hexdigest()
