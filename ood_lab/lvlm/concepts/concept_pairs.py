"""Pairs of concepts in a concept graph: which there are, how often they meet, their distance."""

from __future__ import annotations

from collections.abc import Iterable
from itertools import combinations
from typing import Literal, NamedTuple

import networkx as nx

from ood_lab.lvlm.concepts.concepts import ENTITY, ENVIRONMENT

#: Two entities, or an entity in an environment.
Kind = Literal["ee", "ev"]
KINDS: tuple[Kind, ...] = ("ee", "ev")


class Pair(NamedTuple):
    """Two concepts for one image; of an entity and an environment the entity comes first."""

    first: str
    second: str
    kind: Kind

    @property
    def key(self) -> frozenset[str]:
        """The two, whichever comes first."""
        return frozenset((self.first, self.second))


Pairs = Iterable[Pair]


def frequency(graph: nx.Graph, pair: Pair) -> int:
    """How often the two meet; 0 = never."""
    return int(graph.get_edge_data(pair.first, pair.second, {"frequency": 0})["frequency"])


def distance(graph: nx.Graph, pair: Pair) -> int | None:
    """Edges on the shortest path between the two: 1 where they meet; None where there is none."""
    if pair.first not in graph or pair.second not in graph:
        return None
    try:
        return int(nx.shortest_path_length(graph, pair.first, pair.second))
    except nx.NetworkXNoPath:
        return None


def kind_of(graph: nx.Graph, first: str, second: str) -> Kind | None:
    """Kind of the pair; None where it is none that an image is made of."""
    types = {graph.nodes[first]["type"], graph.nodes[second]["type"]}
    if types == {ENTITY}:
        return "ee"
    return "ev" if types == {ENTITY, ENVIRONMENT} else None


def _pair(graph: nx.Graph, first: str, second: str) -> Pair | None:
    kind = kind_of(graph, first, second)
    if kind is None or first == second:
        return None
    if kind == "ee":
        first, second = sorted((first, second))
    elif graph.nodes[first]["type"] == ENVIRONMENT:
        first, second = second, first
    return Pair(first, second, kind)


def joined_pairs(graph: nx.Graph) -> list[Pair]:
    """The pairs that meet, in the order of their names."""
    pairs = (_pair(graph, *edge) for edge in graph.edges())
    return sorted(pair for pair in pairs if pair is not None)


def all_pairs(graph: nx.Graph) -> list[Pair]:
    """Every pair, whether it meets or not, in the order of its names."""
    found = {}
    for wanted in (ENTITY, ENVIRONMENT):
        found[wanted] = sorted(n for n, kind in graph.nodes(data="type") if kind == wanted)
    pairs = [Pair(a, b, "ee") for a, b in combinations(found[ENTITY], 2)]
    return pairs + [Pair(a, b, "ev") for a in found[ENTITY] for b in found[ENVIRONMENT]]
