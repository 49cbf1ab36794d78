"""What an image is to show: a pair of concepts with attributes, and the prompt for it."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Literal, Protocol

import networkx as nx
import numpy as np
from PIL import Image

from ood_lab.common.file_records import text_sha256
from ood_lab.common.random_streams import text_stream
from ood_lab.lvlm.concepts.concepts import Attribute, Kind, Pair, distance, frequency

#: ``paper``: "a picture of ..."; ``code``: as the published images were asked for.
PromptForm = Literal["paper", "code"]
#: Added to a prompt, and what no image should show (section 3.3).
POSITIVE = ", clear and obvious entity, photography, concise"
NEGATIVE = "bad anatomy, incomplete body, mutated"


@dataclass(frozen=True)
class Concept:
    """A concept as an image shows it; an attribute's true word is what the image shows."""

    name: str
    state: Attribute | None = None
    action: Attribute | None = None

    @property
    def words(self) -> str:
        """``wet run dog``: what is shown of it, then its name."""
        shown = [item.true for item in (self.state, self.action) if item]
        return " ".join([*shown, self.name])


@dataclass(frozen=True)
class Composition:
    """What one image, or several, are to show.

    Attributes:
        criterion: name of the criterion that chose the pair.
        kind: two entities, or an entity in an environment.
        first: an entity.
        second: an entity or an environment.
        frequency: how often the two meet in the graph.
        distance: edges between them in the graph; None = they are not connected.
        draw: number of the draw of attributes.
    """

    criterion: str
    kind: Kind
    first: Concept
    second: Concept
    frequency: int = 0
    distance: int | None = None
    draw: int = 0

    @property
    def pair(self) -> Pair:
        """The two concepts."""
        return Pair(self.first.name, self.second.name, self.kind)

    def prompt(self, form: PromptForm = "paper") -> str:
        """The text that a text-to-image model is given."""
        first, second = self.first.words, self.second.words
        if form == "paper":
            return f"a picture of {first} and {second}"
        joint = "and a" if self.kind == "ee" else "in"
        return f"a {first} {joint} {second}"


def compose(
    pairs: Sequence[Pair],
    graph: nx.Graph,
    name: str,
    swaps: bool,
    seed: int,
    draws: int = 1,
) -> list[Composition]:
    """Draws attributes for pairs: at most one state and one action of each concept.

    A concept with attributes gets one of each sort that it has.

    Args:
        pairs: of the criterion.
        graph: has the attributes.
        name: of the criterion.
        swaps: either word of an attribute is shown, and the other one is the wrong one; else the
            right word is.
        seed: of the draws.
        draws: compositions of every pair; equal ones are made once.
    """
    results = []
    for pair in dict.fromkeys(pairs):
        rng = text_stream(seed, name, pair.first, pair.second)
        first_draws: dict[tuple[Concept, Concept], int] = {}
        for draw in range(draws):
            first = _concept(pair.first, graph, swaps, rng)
            second = _concept(pair.second, graph, swaps, rng)
            first_draws.setdefault((first, second), draw)
        often, steps = frequency(graph, pair), distance(graph, pair)
        results += [
            Composition(name, pair.kind, first, second, often, steps, draw)
            for (first, second), draw in first_draws.items()
        ]
    return results


def _concept(name: str, graph: nx.Graph, swaps: bool, rng: np.random.Generator) -> Concept:
    about = graph.nodes[name] if name in graph else {"state": [], "action": []}
    return Concept(name, _one(about["state"], swaps, rng), _one(about["action"], swaps, rng))


def _one(
    attributes: Sequence[Attribute], swaps: bool, rng: np.random.Generator
) -> Attribute | None:
    place, swap = rng.random(2)  # two numbers each, whatever there is to choose from
    if not attributes:
        return None
    true, false = attributes[int(place * len(attributes))]
    return Attribute(false, true) if swaps and swap < 0.5 else Attribute(true, false)


Attributes = tuple[Attribute | None, Attribute | None]


@dataclass(frozen=True)
class Order:
    """One image to be made.

    Attributes:
        composition: what it is to show.
        seed: of its noise.
        number: among the images of its composition.
        prompt: of the generator.
        negative_prompt: what the image should not show.
        style: of the image, where the generator knows styles.
        settings: further arguments of its own call.
        also: concepts that it is known to show in addition to the pair.
        states: of the pair, as far as this image shows them.
        actions: of the pair, likewise.
        meta: what results are divided by, such as levels of shift.
        annotated: that the image shows the pair is known, whatever a model sees in it.
    """

    composition: Composition
    seed: int
    number: int
    prompt: str
    negative_prompt: str = ""
    style: str = ""
    settings: Mapping[str, Any] = field(default_factory=dict)
    also: tuple[str, ...] = ()
    states: Attributes = (None, None)
    actions: Attributes = (None, None)
    meta: Mapping[str, Any] = field(default_factory=dict)
    annotated: bool = False

    @property
    def file(self) -> str:
        """Name of the image, without its ending; it tells apart everything that differs."""
        words = (self.prompt, self.negative_prompt, self.style, sorted(self.settings.items()))
        facts = (words, self.seed, self.number)
        digest = text_sha256(repr((self.composition, facts)))[:10]
        names = f"{self.composition.first.name} {self.composition.second.name}"
        return f"{self.composition.criterion}/{re.sub(r'[^A-Za-z0-9]+', '-', names)}-{digest}"


class Generator(Protocol):
    """Makes images of compositions."""

    @property
    def made_with(self) -> Mapping[str, Any]:
        """Everything that can change an image: weights, settings, versions."""

    def check(self) -> None:
        """Raises a UserError where nothing can be made, before any work."""

    def drawable(self, graph: nx.Graph) -> nx.Graph:
        """The part of a graph that this generator can show: concepts and attributes."""

    def plan(self, compositions: Sequence[Composition], seed: int) -> list[Order]:
        """The images of all compositions.

        Args:
            compositions: what they are to show.
            seed: from which the seeds of the images follow.
        """

    def images(self, orders: Sequence[Order]) -> Iterable[Image.Image | None]:
        """One image for each order; None where one is withheld."""
