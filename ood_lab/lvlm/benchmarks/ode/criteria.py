"""The four ways to choose pairs of concepts: standard, long-tail, random, fictional.

A criterion is a seeded object: ``select(graph, limit, seed)`` gives ``limit`` pairs of two
entities and as many of an entity in an environment. Virtual concepts are never chosen.

ODE's released code and files depart from the paper. ``experiment=ode_released`` follows them in
everything; ``task.released`` is their construction:

- *Graphs*: in T an edge of c pairs counts ``2 c - 1``, as one that repeats is incremented in both
  directions of an undirected graph, and a concept that an image names twice is a pair with itself
  and counts twice with every other. In H every repetition counts.
- *Candidates* come from the edges with what the image shows at their first end, in the order of
  the graph where frequencies tie; a concept may come twice.
- *Questions* ask whether the first of the two concepts is there, with "a" before every word and no
  plural; the caption prompt names "this picture".
- *Criteria* (below, ``task/construction/criteria=released``): standard and long-tail take the
  heaviest and the lightest edges in the order of the graph's file, so that ties fall on whatever
  comes first there. "Entity in environment" of random and fictional pairs is anything but two
  environments, once there are entities enough; of fictional ones there are 20 at most.
- *Settings*: two draws of attributes for a pair, a filter at 0.2, seed 42, answers read by the
  parser ``ode``, images by ``generator=diffusers_published``.
"""

from __future__ import annotations

import random
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import combinations
from typing import ClassVar, Literal

import networkx as nx
import numpy as np
import pandas as pd

from ood_lab.common.arguments import Count
from ood_lab.common.errors import UserError
from ood_lab.common.grouping import without_none
from ood_lab.common.random_streams import text_stream
from ood_lab.lvlm.concepts.concepts import (
    ENTITY,
    ENVIRONMENT,
    KINDS,
    Concepts,
    Kind,
    Pair,
    Pairs,
    all_pairs,
    counted,
    described,
    distance,
    frequency,
    joined_pairs,
    kind_of,
    ordered,
)
from ood_lab.lvlm.image_generation.compositions import Composition, Compositions, Generator, compose


class Criterion:
    """A way to choose pairs: by itself, it draws uniformly from those that it names.

    Attributes:
        swaps: attributes may be drawn the wrong way round (see
            :func:`ood_lab.lvlm.image_generation.compositions.compose`).
    """

    swaps: ClassVar[bool] = True

    def select(self, graph: nx.Graph, limit: int, seed: int, known: Pairs = ()) -> Pairs:
        """Chooses pairs.

        Args:
            graph: concepts and how often they meet.
            limit: pairs of each kind at most.
            seed: of the draws; another criterion draws other numbers from the same seed.
            known: pairs of earlier rounds, which are not chosen again.
        """
        gone = {pair.key for pair in known}
        pairs = [pair for pair in self._pairs(graph) if pair.key not in gone]
        return _first_of_each(self._order(pairs, graph, text_stream(seed, repr(self))), limit)

    def _pairs(self, graph: nx.Graph) -> Pairs:
        raise NotImplementedError

    def _order(self, pairs: Pairs, graph: nx.Graph, rng: np.random.Generator) -> Pairs:
        return [pairs[place] for place in rng.permutation(len(pairs))]


@dataclass(frozen=True)
class Standard(Criterion):
    """The most frequent pairs; ties in the order of their names. The seed changes nothing."""

    swaps: ClassVar[bool] = False

    def _pairs(self, graph: nx.Graph) -> Pairs:
        return joined_pairs(graph)

    def _order(self, pairs: Pairs, graph: nx.Graph, rng: np.random.Generator) -> Pairs:
        return sorted(pairs, key=lambda pair: (-frequency(graph, pair), pair))


@dataclass(frozen=True)
class LongTail(Criterion):
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

    def _pairs(self, graph: nx.Graph) -> Pairs:
        everything = joined_pairs(graph)
        results = []
        for kind in KINDS:
            pairs = [pair for pair in everything if pair.kind == kind]
            counts = np.array([frequency(graph, pair) for pair in pairs], float)
            between = (counts > self.low) & (counts < self.high)
            if self.unit == "quantile" and len(counts):
                low, high = np.quantile(counts, [self.low, self.high])
                between = (counts >= low) & (counts <= high)
            results += [p for p, inside in zip(pairs, between, strict=True) if inside]
        return results


@dataclass(frozen=True)
class Random(Criterion):
    """Any two concepts, whether they ever meet or not, drawn uniformly."""

    def _pairs(self, graph: nx.Graph) -> Pairs:
        return all_pairs(graph)


@dataclass(frozen=True)
class Fictional(Random):
    """Two concepts that never meet, drawn uniformly."""

    def _pairs(self, graph: nx.Graph) -> Pairs:
        return [p for p in super()._pairs(graph) if not graph.has_edge(p.first, p.second)]


@dataclass(frozen=True)
class OdeConstruction:
    """How compositions are chosen.

    Args:
        criteria: by name; None = this one is skipped.
        limit: pairs of each kind and criterion.
        draws: draws of attributes for a pair.
    """

    criteria: Mapping[str, Criterion | None]
    limit: Count = 40
    draws: Count = 1

    def compositions(
        self,
        graphs: Mapping[str, nx.Graph],
        generator: Generator,
        seed: int,
        known: Pairs = (),
    ) -> Compositions:
        """Pairs of every criterion, with attributes that the generator can show.

        Args:
            graphs: see :func:`~ood_lab.lvlm.concepts.concepts.graphs_of`.
            generator: is to make the images.
            seed: of all draws.
            known: pairs of earlier rounds, which are not chosen again.

        Raises:
            UserError: there is nothing that it can show, or a criterion finds no pair.
        """
        graph = generator.drawable(graphs["T"])
        if graph.number_of_nodes() < 2:
            raise UserError(
                f"none of the graph's {graphs['T'].number_of_nodes():,} concepts can be "
                "drawn by this generator: choose generator=diffusers generator.path=DIR"
            )
        criteria = without_none(self.criteria)
        if not criteria:
            raise UserError("every criterion is null: give one of task.construction.criteria")
        results: list[Composition] = []
        for name, criterion in criteria.items():
            pairs = criterion.select(graph, self.limit, seed, known)
            if not pairs:
                raise UserError(
                    f"criterion '{name}' finds no pair among {graph.number_of_nodes():,} concepts "
                    "that can be drawn: change its limits, or remove it, task.construction."
                    f"criteria.{name}=null"
                )
            results += compose(pairs, graph, name, criterion.swaps, seed, self.draws)
        return results


def pair_table(compositions: Compositions, graph: nx.Graph) -> pd.DataFrame:
    """One row a pair of a criterion: ``criterion, kind, first, second, frequency, distance``."""
    pairs = dict.fromkeys((item.criterion, item.pair) for item in compositions)
    rows = [
        (name, pair.kind, pair.first, pair.second, frequency(graph, pair), distance(graph, pair))
        for name, pair in pairs
    ]
    columns = ["criterion", "kind", "first", "second", "frequency", "distance"]
    return pd.DataFrame(rows, columns=columns)


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
class Sorted(Criterion):
    """The first edges by frequency, those of one frequency in the order of the graph.

    Args:
        heaviest: from the most frequent (standard) or the least frequent (long-tail) on.
    """

    heaviest: bool
    swaps: ClassVar[bool] = False

    def select(self, graph: nx.Graph, limit: int, seed: int, known: Pairs = ()) -> Pairs:
        """See ``Criterion``; the seed changes nothing."""
        edges = sorted(graph.edges(data="frequency"), key=lambda e: e[2], reverse=self.heaviest)
        kinds = [(a, b, kind_of(graph, a, b)) for a, b, _ in edges]
        pairs = [_pair(graph, a, b, kind) for a, b, kind in kinds if kind is not None]
        return _first_of_each(pairs, limit)


@dataclass(frozen=True)
class ReleasedRandomPairs(Criterion):
    """Samples two nodes, independently each time."""

    def select(self, graph: nx.Graph, limit: int, seed: int, known: Pairs = ()) -> Pairs:
        """See :class:`~ood_lab.lvlm.benchmarks.ode.criteria.Criterion`."""
        rng, nodes = random.Random(seed), list(graph.nodes())
        return _chosen(graph, iter(lambda: rng.sample(nodes, 2), None), limit, limit)


@dataclass(frozen=True)
class ReleasedFictionalPairs(Criterion):
    """Draws from the pairs of nodes without an edge."""

    def select(self, graph: nx.Graph, limit: int, seed: int, known: Pairs = ()) -> Pairs:
        """See :class:`~ood_lab.lvlm.benchmarks.ode.criteria.Criterion`."""
        rng = random.Random(seed)
        pairs = [(a, b) for a, b in combinations(graph.nodes(), 2) if not graph.has_edge(a, b)]
        draws = (pairs.pop(rng.choice(range(left))) for left in range(len(pairs), 0, -1))
        return _chosen(graph, draws, limit, min(limit, FICTIONAL_EV))


def _chosen(graph: nx.Graph, draws: Iterable[Sequence[str]], most_ee: int, most_ev: int) -> Pairs:
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
            ee[_pair(graph, first, second, "ee")] = None
        elif ends != (ENVIRONMENT, ENVIRONMENT) and len(ev) < most_ev:
            ev[_pair(graph, first, second, "ev")] = None
        if len(ee) == most_ee and len(ev) == most_ev:
            break
    return [*ee, *ev]


def _pair(graph: nx.Graph, first: str, second: str, kind: Kind) -> Pair:
    """A pair with the environment second, if it has one."""
    if graph.nodes[first]["type"] == ENVIRONMENT:
        first, second = second, first
    return Pair(first, second, kind)


def _first_of_each(pairs: Pairs, limit: int) -> Pairs:
    """So many pairs of each kind at most."""
    return [p for kind in KINDS for p in [p for p in pairs if p.kind == kind][:limit]]
