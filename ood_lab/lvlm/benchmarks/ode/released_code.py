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
from collections.abc import Collection, Iterable, Iterator
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
        kinds = [(first, second, kind_of(graph, first, second)) for first, second, _ in edges]
        ee = [Pair(first, second, "ee") for first, second, kind in kinds if kind == "ee"]
        ev = [
            _in_environment(graph, first, second) for first, second, kind in kinds if kind == "ev"
        ]
        return ee[:limit] + ev[:limit]


@dataclass(frozen=True)
class ReleasedRandomPairs:
    """Samples two nodes, independently each time."""

    swaps: ClassVar[bool] = True

    def select(self, graph: nx.Graph, limit: int, seed: int, known: Pairs = ()) -> list[Pair]:
        """See :class:`~ood_lab.lvlm.benchmarks.ode.criteria.Criterion`."""
        rng, nodes = random.Random(seed), list(graph.nodes())
        draws = ((a, b) for a, b in iter(lambda: rng.sample(nodes, 2), None))
        return _chosen(graph, draws, limit, limit)


@dataclass(frozen=True)
class ReleasedFictionalPairs:
    """Draws from the pairs of nodes without an edge."""

    swaps: ClassVar[bool] = True

    def select(self, graph: nx.Graph, limit: int, seed: int, known: Pairs = ()) -> list[Pair]:
        """See :class:`~ood_lab.lvlm.benchmarks.ode.criteria.Criterion`."""
        rng = random.Random(seed)
        pairs = [(a, b) for a, b in combinations(graph.nodes(), 2) if not graph.has_edge(a, b)]
        draws = (pairs.pop(rng.choice(range(left))) for left in range(len(pairs), 0, -1))
        return _chosen(graph, draws, limit, min(limit, FICTIONAL_EV))


def _chosen(
    graph: nx.Graph, draws: Iterable[tuple[str, str]], most_ee: int, most_ev: int
) -> list[Pair]:
    """The first pairs of two entities and the first others that are drawn, as published.

    Once there are entities enough, two more of them are "an entity in an environment".
    """
    types = dict(graph.nodes(data="type"))
    # Sets in the published code: the same pair twice takes one place.
    ee: dict[Pair, None] = {}
    ev: dict[Pair, None] = {}
    for first, second in draws:
        ends = types[first], types[second]
        if ends == (ENTITY, ENTITY) and len(ee) < most_ee:
            ee[Pair(first, second, "ee")] = None
        elif ends != (ENVIRONMENT, ENVIRONMENT) and len(ev) < most_ev:
            ev[_in_environment(graph, first, second)] = None
        if len(ee) == most_ee and len(ev) == most_ev:
            break
    return [*ee, *ev]


def _in_environment(graph: nx.Graph, first: str, second: str) -> Pair:
    """A pair with the environment second."""
    if graph.nodes[first]["type"] == ENVIRONMENT:
        first, second = second, first
    return Pair(first, second, "ev")
