"""Where ODE's released code and files depart from its paper: its graphs and its choice of pairs.

``experiment=ode_released`` follows them in everything; ``task.released`` is their construction:

- *Graphs*: in T an edge of c pairs counts ``2 c - 1``, as one that repeats is incremented in both
  directions of an undirected graph, and a concept that an image names twice is a pair with itself
  and counts twice with every other. In H every repetition counts.
- *Candidates* come from the edges with what the image shows at their first end, in the order of
  the graph where frequencies tie; a concept may come twice.
- *Questions* ask whether the first of the two concepts is there, with "a" before every word and no
  plural; the caption prompt names "this picture". A folder ``published/`` has ODE's own files.
- *Criteria* (below, ``task/construction/criteria=released``): standard and long-tail take the
  heaviest and the lightest edges in the order of the graph's file, so that ties fall on whatever
  comes first there. "Entity in environment" of random and fictional pairs is anything but two
  environments, once there are entities enough; of fictional ones there are 20 at most.
- *Settings*: two draws of attributes for a pair, a filter at 0.2, seed 42, answers read by the
  parser ``ode``, images by ``generator=diffusers_published``.
"""

from __future__ import annotations

import random
from collections.abc import Collection, Iterator
from dataclasses import dataclass
from itertools import combinations
from typing import ClassVar

import networkx as nx

from ood_lab.lvlm.concepts.concepts import (
    ENTITY,
    ENVIRONMENT,
    Concepts,
    Pair,
    Pairs,
    counted,
    described,
    kind_of,
    ordered,
)

#: Fictional pairs with an environment at most.
FICTIONAL_EV = 20


def released_graphs(concepts: Concepts) -> dict[str, nx.Graph]:
    """Both graphs as the published ones count, by name."""
    together = (ordered(pair) for names in concepts.truth for pair in combinations(names, 2))
    both = zip(concepts.truth, concepts.hallu, strict=True)
    tempting = ((first, second) for names, absent in both for first in names for second in absent)
    return {
        "T": described(counted(together, again=2), concepts),
        "H": described(counted(tempting), concepts),
    }


def first_ends(graph: nx.Graph, truth: Collection[str]) -> Iterator[str]:
    """Hallucination candidates of an image as the published lists were made."""
    edges = sorted(graph.edges(data="frequency"), key=lambda edge: -edge[2])
    return (second for first, second, _ in edges if first in truth)


@dataclass(frozen=True)
class Sorted:
    """The first edges by frequency, those of one frequency in the order of the graph.

    Args:
        heaviest: from the most frequent (standard) or the least frequent (long-tail) on.
    """

    heaviest: bool
    swaps: ClassVar[bool] = False

    def select(self, graph: nx.Graph, limit: int, seed: int, known: Pairs = ()) -> list[Pair]:
        """See ``Criterion``; the seed changes nothing."""
        edges = sorted(graph.edges(data="frequency"), key=lambda e: e[2], reverse=self.heaviest)
        chosen = _Chosen(graph, limit, limit)
        for first, second, _ in edges:
            kind = kind_of(graph, first, second)
            if kind is not None:
                chosen.add(first, second, kind == "ee")
        return chosen.pairs


@dataclass(frozen=True)
class ReleasedRandomPairs:
    """Samples two nodes, independently each time."""

    swaps: ClassVar[bool] = True

    def select(self, graph: nx.Graph, limit: int, seed: int, known: Pairs = ()) -> list[Pair]:
        """See :class:`~ood_lab.lvlm.benchmarks.ode.criteria.Criterion`."""
        rng, nodes = random.Random(seed), list(graph.nodes())
        chosen = _Chosen(graph, limit, limit)
        while not chosen.full:
            chosen.offer(*rng.sample(nodes, 2))
        return chosen.pairs


@dataclass(frozen=True)
class ReleasedFictionalPairs:
    """Draws from the pairs of nodes without an edge."""

    swaps: ClassVar[bool] = True

    def select(self, graph: nx.Graph, limit: int, seed: int, known: Pairs = ()) -> list[Pair]:
        """See :class:`~ood_lab.lvlm.benchmarks.ode.criteria.Criterion`."""
        rng = random.Random(seed)
        apart = [pair for pair in combinations(graph.nodes(), 2) if not graph.has_edge(*pair)]
        chosen = _Chosen(graph, limit, min(limit, FICTIONAL_EV))
        while apart and not chosen.full:
            chosen.offer(*apart.pop(rng.choice(range(len(apart)))))
        return chosen.pairs


class _Chosen:
    """Pairs of two entities, and all others, each kind up to its limit."""

    def __init__(self, graph: nx.Graph, most_ee: int, most_ev: int) -> None:
        self._types = dict(graph.nodes(data="type"))
        self._most_ee, self._most_ev = most_ee, most_ev
        # Sets in the published code: the same pair twice takes one place.
        self._ee: dict[Pair, None] = {}
        self._ev: dict[Pair, None] = {}

    @property
    def pairs(self) -> list[Pair]:
        return [*self._ee, *self._ev]

    @property
    def full(self) -> bool:
        return len(self._ee) >= self._most_ee and len(self._ev) >= self._most_ev

    def offer(self, first: str, second: str) -> None:
        """Takes a pair as the published draws do."""
        types = self._types[first], self._types[second]
        two = types == (ENTITY, ENTITY)
        if two and len(self._ee) < self._most_ee:
            self.add(first, second, True)
        elif types != (ENVIRONMENT, ENVIRONMENT):
            self.add(first, second, False)

    def add(self, first: str, second: str, two_entities: bool) -> None:
        """Takes a pair if there is room; an environment comes second."""
        if two_entities:
            if len(self._ee) < self._most_ee:
                self._ee[Pair(first, second, "ee")] = None
        elif len(self._ev) < self._most_ev:
            if self._types[first] == ENVIRONMENT:
                first, second = second, first
            self._ev[Pair(first, second, "ev")] = None
