"""The four ways to choose pairs of concepts: standard, long-tail, random, fictional.

A criterion is a seeded object: ``select(graph, limit, seed)`` gives ``limit`` pairs of two
entities and as many of an entity in an environment. Virtual concepts are never chosen.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterable
from dataclasses import dataclass
from itertools import combinations
from typing import ClassVar, Literal, NamedTuple, Protocol

import networkx as nx
import numpy as np

from ood_lab.common.errors import UserError
from ood_lab.lvlm.benchmarks.ode.construction.concepts import ENTITY, ENVIRONMENT

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


class Criterion(Protocol):
    """A way to choose pairs.

    Attributes:
        swaps: attributes may be drawn the wrong way round (see
            :func:`ood_lab.lvlm.benchmarks.ode.construction.compositions.compose`).
    """

    swaps: bool

    def select(self, graph: nx.Graph, limit: int, seed: int, known: Pairs = ()) -> list[Pair]:
        """Chooses pairs.

        Args:
            graph: concepts and how often they meet.
            limit: pairs of each kind at most.
            seed: of the draws; another criterion draws other numbers from the same seed.
            known: pairs of earlier rounds, which are not chosen again.
        """


class _Drawn:
    """A criterion that draws uniformly from its pairs."""

    def select(self, graph: nx.Graph, limit: int, seed: int, known: Pairs = ()) -> list[Pair]:
        """See :class:`Criterion`."""
        gone = {pair.key for pair in known}
        pairs = [pair for pair in self._pairs(graph) if pair.key not in gone]
        order = self._order(pairs, graph, generator(seed, repr(self)))
        return [p for kind in KINDS for p in [p for p in order if p.kind == kind][:limit]]

    def _pairs(self, graph: nx.Graph) -> list[Pair]:
        raise NotImplementedError

    def _order(self, pairs: list[Pair], graph: nx.Graph, rng: np.random.Generator) -> list[Pair]:
        return [pairs[place] for place in rng.permutation(len(pairs))]


@dataclass(frozen=True)
class Standard(_Drawn):
    """The most frequent pairs; ties in the order of their names. The seed changes nothing."""

    swaps: ClassVar[bool] = False

    def _pairs(self, graph: nx.Graph) -> list[Pair]:
        return _edges(graph)

    def _order(self, pairs: list[Pair], graph: nx.Graph, rng: np.random.Generator) -> list[Pair]:
        return sorted(pairs, key=lambda pair: (-_frequency(graph, pair), pair))


@dataclass(frozen=True)
class LongTail(_Drawn):
    """Pairs that meet now and then: ``low < c < high``, drawn uniformly.

    Args:
        low: least frequency, itself left out.
        high: largest frequency, itself left out.
        unit: ``count``, or ``quantile`` of the frequencies of all pairs of the kind; then both
            ends belong to it, for the quantiles of small counts are ties.

    Raises:
        UserError: no frequency is between the two, or a quantile outside [0, 1].
    """

    low: float = 1
    high: float = 5
    unit: Literal["count", "quantile"] = "count"
    swaps: ClassVar[bool] = False

    def __post_init__(self) -> None:
        if not self.low < self.high:
            raise UserError(f"long-tail pairs: low={self.low} must be less than high={self.high}")
        if self.unit == "quantile" and not 0 <= self.low < self.high <= 1:
            raise UserError(f"long-tail pairs: give quantiles from 0 to 1, not {self.high}")

    def _pairs(self, graph: nx.Graph) -> list[Pair]:
        everything = _edges(graph)
        found = []
        for kind in KINDS:
            pairs = [pair for pair in everything if pair.kind == kind]
            counts = np.array([_frequency(graph, pair) for pair in pairs], float)
            between = (counts > self.low) & (counts < self.high)
            if self.unit == "quantile" and len(counts):
                low, high = np.quantile(counts, [self.low, self.high])
                between = (counts >= low) & (counts <= high)
            found += [p for p, inside in zip(pairs, between, strict=True) if inside]
        return found


@dataclass(frozen=True)
class Random(_Drawn):
    """Any two concepts, whether they ever meet or not, drawn uniformly."""

    swaps: ClassVar[bool] = True

    def _pairs(self, graph: nx.Graph) -> list[Pair]:
        return _all_pairs(graph)


@dataclass(frozen=True)
class Fictional(_Drawn):
    """Two concepts that never meet, drawn uniformly."""

    swaps: ClassVar[bool] = True

    def _pairs(self, graph: nx.Graph) -> list[Pair]:
        return [p for p in _all_pairs(graph) if not graph.has_edge(p.first, p.second)]


def frequency(graph: nx.Graph, pair: Pair) -> int:
    """How often the two meet; 0 = never."""
    return _frequency(graph, pair) if graph.has_edge(pair.first, pair.second) else 0


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


def _edges(graph: nx.Graph) -> list[Pair]:
    pairs = (_pair(graph, *edge) for edge in graph.edges())
    return sorted(pair for pair in pairs if pair is not None)


def _all_pairs(graph: nx.Graph) -> list[Pair]:
    found = {}
    for wanted in (ENTITY, ENVIRONMENT):
        found[wanted] = sorted(n for n, kind in graph.nodes(data="type") if kind == wanted)
    pairs = [Pair(a, b, "ee") for a, b in combinations(found[ENTITY], 2)]
    return pairs + [Pair(a, b, "ev") for a in found[ENTITY] for b in found[ENVIRONMENT]]


def _frequency(graph: nx.Graph, pair: Pair) -> int:
    return int(graph[pair.first][pair.second]["frequency"])


def generator(seed: int, *names: str) -> np.random.Generator:
    """A stream of random numbers of its own for every seed and names."""
    digest = hashlib.sha256("/".join([str(seed), *names]).encode()).digest()
    return np.random.default_rng(int.from_bytes(digest[:8], "big"))
