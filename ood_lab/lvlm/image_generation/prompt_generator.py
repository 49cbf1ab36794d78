"""Orders of a generator that is prompted in words."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

import networkx as nx

from ood_lab.common.arguments import Count, Settings
from ood_lab.common.random_streams import text_stream
from ood_lab.lvlm.concepts.concepts import Kind
from ood_lab.lvlm.image_generation.compositions import (
    NEGATIVE,
    POSITIVE,
    Composition,
    Compositions,
    Order,
    Orders,
    PromptForm,
)


@dataclass(frozen=True)
class Variant:
    """One of the prompts of a composition, in turn.

    Attributes:
        words: added to the prompt.
        negative: the negative prompt.
        arguments: of the call, over those that all variants share.
    """

    words: str = POSITIVE
    negative: str = NEGATIVE
    arguments: Settings = field(default_factory=dict)


@dataclass(kw_only=True)
class PromptGenerator:
    """A generator that is prompted in words, so that it can draw anything.

    Args:
        form: of the prompt, see
            :class:`~ood_lab.lvlm.image_generation.compositions.Composition`.
        per_composition: images of every composition.
        seeds: of the first images of every composition; those of further ones are drawn.
        variants: by the kind of the pair; image ``i`` takes variant ``i mod n``.
    """

    form: PromptForm = "paper"
    per_composition: Count = 2
    seeds: Sequence[int] = ()
    variants: Mapping[Kind, Sequence[Variant]] = field(default_factory=dict)

    def drawable(self, graph: nx.Graph) -> nx.Graph:
        """Everything: a prompt can name anything."""
        return graph

    def plan(self, compositions: Compositions, seed: int) -> Orders:
        """The images of all compositions; the seeds of the images follow from ``seed``."""
        return [
            self._order(composition, number, seed)
            for composition in compositions
            for number in range(self.per_composition)
        ]

    def _order(self, composition: Composition, number: int, seed: int) -> Order:
        text = composition.prompt(self.form)
        ways = list(self.variants.get(composition.kind, ())) or [Variant()]
        way = ways[number % len(ways)]
        sample = int(text_stream(seed, text, str(number)).integers(2**31))
        return Order(
            composition=composition,
            seed=self.seeds[number] if number < len(self.seeds) else sample,
            number=number,
            prompt=f"{text}{way.words}",
            negative_prompt=way.negative,
            settings=dict(way.arguments),
            states=(composition.first.state, composition.second.state),
            actions=(composition.first.action, composition.second.action),
        )
