"""What the concept graphs are made from: which concepts images show, and what is known of them."""

from __future__ import annotations

import hashlib
import json
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, field
from itertools import combinations, permutations
from typing import NamedTuple

from ood_lab.common.errors import UserError
from ood_lab.lvlm.annotations import Annotations

#: Kinds of concepts: things, surroundings, and what is neither (``hot``).
ENTITY, ENVIRONMENT, VIRTUAL = "entity", "environment", "virtual"
#: Hallucination candidates of an image at most.
CANDIDATES = 5
#: Attribute of a thing that is an action; every other one is a state.
_ACTION = "action"


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


def concepts_of(annotations: Annotations) -> Concepts:
    """Concepts of annotated images.

    Categories are entities; the ``place`` of an image, where the source has it, an environment.
    An attribute with two observed values or more gives every ordered pair of them. The
    hallucination candidates of an image are the concepts that most often accompany what it shows,
    over all images, and are not in it.

    Raises:
        UserError: fewer than two concepts ever meet in an image.
    """
    shown: dict[int | str, list[str]] = {image: [] for image in annotations.images["image"]}
    objects = annotations.objects
    for image, category in zip(objects["image"], objects["category"].astype(str), strict=True):
        shown[image].append(category)
    places = annotations.scenes
    truth = [
        sorted(set(names)) + ([places[image]] if image in places else [])
        for image, names in shown.items()
    ]
    if not any(len(names) > 1 for names in truth):
        raise UserError(f"{annotations.name}: no two concepts are ever seen in one image")
    types = dict.fromkeys(places.values(), ENVIRONMENT) | dict.fromkeys(
        annotations.categories, ENTITY
    )
    states, actions = _attributes(annotations)
    return Concepts(
        name=annotations.name,
        truth=truth,
        hallu=candidates(truth),
        types=types,
        states=states,
        actions=actions,
    )


def candidates(truth: Sequence[Sequence[str]], most: int = CANDIDATES) -> list[list[str]]:
    """Of every image, the absent concepts that most often accompany the present ones.

    ``sum_f c(f, h)`` over what is there, with c the number of images that show both; ties by name.
    """
    together: dict[str, Counter[str]] = {}
    for names in truth:
        for first, second in combinations(sorted(set(names)), 2):
            together.setdefault(first, Counter())[second] += 1
            together.setdefault(second, Counter())[first] += 1
    found = []
    for names in truth:
        total: Counter[str] = Counter()
        for name in set(names):
            total.update(together.get(name, {}))
        absent = [name for name in total if name not in names]
        found.append(sorted(absent, key=lambda name: (-total[name], name))[:most])
    return found


def _attributes(
    annotations: Annotations,
) -> tuple[dict[str, list[Attribute]], dict[str, list[Attribute]]]:
    objects = annotations.objects
    values: dict[tuple[str, str], set[str]] = {}
    for category, known in zip(objects["category"].astype(str), objects["attributes"], strict=True):
        for key, value in known.items():
            values.setdefault((category, key), set()).add(value)
    states: dict[str, list[Attribute]] = {}
    actions: dict[str, list[Attribute]] = {}
    for (category, key), words in sorted(values.items()):
        into = actions if key == _ACTION else states
        into.setdefault(category, []).extend(Attribute(*p) for p in permutations(sorted(words), 2))
    return states, actions
