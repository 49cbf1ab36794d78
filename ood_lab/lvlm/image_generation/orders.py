"""What a generator is: compositions in, images out."""

from __future__ import annotations

import hashlib
import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Protocol

import networkx as nx
from PIL import Image

from ood_lab.lvlm.concepts.concepts import Attribute
from ood_lab.lvlm.image_generation.compositions import Composition

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
        told = (self.prompt, self.negative_prompt, self.style, sorted(self.settings.items()))
        known = (told, self.seed, self.number)
        digest = hashlib.sha256(repr((self.composition, known)).encode()).hexdigest()[:10]
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
