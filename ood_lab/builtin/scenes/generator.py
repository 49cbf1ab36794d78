"""The builtin scenes as a generator: what an image shows is known exactly."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import networkx as nx
from PIL import Image

from ood_lab.builtin.scenes import (
    PLACES,
    STYLES,
    THINGS,
    ObjectRequest,
    Scene,
    render,
    sample_scene,
)
from ood_lab.builtin.scenes.painted_parts import COLOURS
from ood_lab.builtin.scenes.scene import RENDERER
from ood_lab.builtin.scenes.scene_sampling import check_size
from ood_lab.common.errors import UserError
from ood_lab.common.hints import check_known
from ood_lab.common.random_streams import RandomStream, text_stream
from ood_lab.lvlm.concepts.concepts import ENTITY, ENVIRONMENT, Attribute
from ood_lab.lvlm.image_generation.compositions import (
    Attributes,
    Composition,
    Compositions,
    Concept,
    Order,
    Orders,
)

#: Draws of a scene before its objects are said to find no room.
_TRIES = 20


@dataclass(frozen=True)
class SceneRenderer:
    """Draws the pair, and nothing else, in a place of the builtin scenes.

    Two entities stand in a place whose prior expects both of them, or one of them, or in any. In
    every style the scene is the same. An attribute that a style hides (a colour in a drawing) is
    not claimed.

    Args:
        size: height and width of the images, pixels.
        styles: names of ``STYLES``; every composition is drawn in each of them.
        per_composition: scenes of every composition.
        share: shortest and longest longer side of an object, share of the image.

    Raises:
        UserError: an unknown style, a size that no style can paint, or shares out of range.
    """

    size: int = 96
    styles: Sequence[str] = ("photo",)
    per_composition: int = 1
    share: tuple[float, float] = (0.2, 0.5)

    def __post_init__(self) -> None:
        check_size(self.size)
        check_known(self.styles, STYLES, "generator.styles: no style is called '{name}'")
        if not 0.06 <= self.share[0] <= self.share[1] <= 0.5:
            raise UserError(f"generator.share={list(self.share)}: give two shares from 0.06 to 0.5")

    @property
    def made_with(self) -> Mapping[str, Any]:
        """Version of the renderer, size and sizes of the objects."""
        return {
            "generator": "renderer",
            "version": RENDERER,
            "size": self.size,
            "share": list(self.share),
            "styles": list(self.styles),
        }

    def check(self) -> None:
        """Raises a UserError where no style is given; nothing else is needed."""
        if not self.styles:
            raise UserError("generator.styles=[] gives no image: add a style, such as [photo]")

    def drawable(self, graph: nx.Graph) -> nx.Graph:
        """Things and places that can be drawn, with the attributes that can be seen."""
        names = [
            name
            for name, kind in graph.nodes(data="type")
            if (kind == ENTITY and name in THINGS) or (kind == ENVIRONMENT and name in PLACES)
        ]
        part = graph.subgraph(names).copy()
        for name, about in part.nodes(data=True):
            for key in ("state", "action"):
                about[key] = [a for a in about[key] if all(_shows(name, word) for word in a)]
        return part

    def plan(self, compositions: Compositions, seed: int) -> Orders:
        """See :class:`~ood_lab.lvlm.image_generation.compositions.Generator`."""
        return [
            self._order(composition, number, style, seed)
            for composition in compositions
            for number in range(self.per_composition)
            for style in self.styles
        ]

    def images(self, orders: Orders) -> list[Image.Image | None]:
        """See :class:`~ood_lab.lvlm.image_generation.compositions.Generator`."""
        pictures: list[Image.Image | None] = []
        for order in orders:
            place = str(order.settings["place"])
            scene = self._scene(order.composition, place, order.style, order.seed)
            pictures.append(Image.fromarray(render(scene, text_stream(order.seed, "texture"))))
        return pictures

    def _order(self, composition: Composition, number: int, style: str, seed: int) -> Order:
        prompt = composition.prompt()
        first = int(text_stream(seed, prompt, str(number)).integers(2**31))
        place = self._place(composition, first)
        for number_of_try in range(_TRIES):
            try:
                scene = self._scene(composition, place, style, first + number_of_try)
            except UserError:  # no room for both; another draw has other sizes
                continue
            states, actions = _shown(composition, scene)
            return Order(
                composition=composition,
                seed=first + number_of_try,
                number=number,
                prompt=prompt,
                style=style,
                settings={"place": place},
                also=(place,) if composition.kind == "ee" else (),
                states=states,
                actions=actions,
                meta={
                    "style": style,
                    "place": place,
                    "semantic_level": scene.semantic_level,
                    "covariate_level": scene.covariate_level,
                },
            )
        raise UserError(f"'{prompt}' finds no room: give smaller objects, generator.share=[a,b]")

    def _place(self, composition: Composition, seed: int) -> str:
        if composition.kind == "ev":
            return composition.second.name
        names = {composition.first.name, composition.second.name}
        expected = {place: len(names & set(about.prior)) for place, about in PLACES.items()}
        best = [p for p, count in expected.items() if count == max(expected.values())]
        return best[int(text_stream(seed, "place").integers(len(best)))]

    def _scene(self, composition: Composition, place: str, style: str, seed: int) -> Scene:
        rng = text_stream(seed, "scene")
        wanted = [self._wish(composition.first, rng)]
        if composition.kind == "ee":
            wanted.append(self._wish(composition.second, rng))
        count = len(wanted)
        return sample_scene(
            rng, size=self.size, place=place, style=style, wanted=wanted, objects=(count, count)
        )

    def _wish(self, concept: Concept, rng: RandomStream) -> ObjectRequest:
        length = rng.uniform(self.share[0], self.share[1]) * self.size
        words = [axis.true for axis in (concept.state, concept.action) if axis]
        states = THINGS[concept.name].states
        state = next((word for word in words if word in states.words), None)
        colour = next((w for w in words if w != state and w in COLOURS), None)
        if colour and states.colourless:
            state = states.other(states.colourless)
        return ObjectRequest(concept.name, colour, state, length)


def _shows(name: str, word: str) -> bool:
    thing = THINGS.get(name)
    if thing is None:
        return False
    return word in thing.states.words or (bool(thing.colours) and word in COLOURS)


def _shown(composition: Composition, scene: Scene) -> tuple[Attributes, Attributes]:
    """States and actions of the pair that the style does not hide."""
    seen = {item.look.thing: set(scene.attributes(item).values()) for item in scene.items}

    def visible(concept: Concept, attribute: Attribute | None) -> Attribute | None:
        return attribute if attribute and attribute.true in seen.get(concept.name, ()) else None

    one, two = composition.first, composition.second
    return (
        (visible(one, one.state), visible(two, two.state)),
        (visible(one, one.action), visible(two, two.action)),
    )
