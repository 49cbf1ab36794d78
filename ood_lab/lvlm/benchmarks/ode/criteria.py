"""The four ways to choose pairs of concepts: standard, long-tail, random, fictional.

A criterion is a seeded object: ``select(graph, limit, seed)`` gives ``limit`` pairs of two
entities and as many of an entity in an environment. Virtual concepts are never chosen.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Annotated, ClassVar, Literal, Protocol

import networkx as nx
import numpy as np
import pandas as pd
from annotated_types import Ge

from ood_lab.common.errors import UserError
from ood_lab.common.random_streams import text_stream
from ood_lab.lvlm.concepts.concepts import (
    KINDS,
    Pair,
    Pairs,
    Which,
    all_pairs,
    distance,
    frequency,
    joined_pairs,
)
from ood_lab.lvlm.image_generation.compositions import Composition, Generator, compose


class Criterion(Protocol):
    """A way to choose pairs.

    Attributes:
        swaps: attributes may be drawn the wrong way round (see
            :func:`ood_lab.lvlm.image_generation.compositions.compose`).
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
        order = self._order(pairs, graph, text_stream(seed, repr(self)))
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
        return joined_pairs(graph)

    def _order(self, pairs: list[Pair], graph: nx.Graph, rng: np.random.Generator) -> list[Pair]:
        return sorted(pairs, key=lambda pair: (-frequency(graph, pair), pair))


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
class Random(_Drawn):
    """Any two concepts, whether they ever meet or not, drawn uniformly."""

    swaps: ClassVar[bool] = True

    def _pairs(self, graph: nx.Graph) -> list[Pair]:
        return all_pairs(graph)


@dataclass(frozen=True)
class Fictional(_Drawn):
    """Two concepts that never meet, drawn uniformly."""

    swaps: ClassVar[bool] = True

    def _pairs(self, graph: nx.Graph) -> list[Pair]:
        return [p for p in all_pairs(graph) if not graph.has_edge(p.first, p.second)]


@dataclass(frozen=True)
class OdeConstruction:
    """How compositions are chosen.

    Args:
        criteria: by name; None = this one is skipped.
        graph: ``T`` or ``H``.
        limit: pairs of each kind and criterion.
        draws: draws of attributes for a pair.
    """

    criteria: Mapping[str, Criterion | None]
    graph: Which = "T"
    limit: Annotated[int, Ge(1)] = 40
    draws: Annotated[int, Ge(1)] = 1

    def compositions(
        self,
        graphs: Mapping[str, nx.Graph],
        generator: Generator,
        seed: int,
        known: Sequence[Pair] = (),
    ) -> list[Composition]:
        """Pairs of every criterion, with attributes that the generator can show.

        Args:
            graphs: see :func:`~ood_lab.lvlm.concepts.concepts.graphs_of`.
            generator: is to make the images.
            seed: of all draws.
            known: pairs of earlier rounds, which are not chosen again.

        Raises:
            UserError: there is nothing that it can show, or a criterion finds no pair.
        """
        graph = generator.drawable(graphs[self.graph])
        if graph.number_of_nodes() < 2:
            raise UserError(
                f"none of the graph's {graphs[self.graph].number_of_nodes():,} concepts can be "
                "drawn by this generator: choose generator=diffusers generator.path=DIR"
            )
        criteria = {n: c for n, c in self.criteria.items() if c is not None}
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


def pair_table(compositions: Sequence[Composition], graph: nx.Graph) -> pd.DataFrame:
    """One row a pair of a criterion: ``criterion, kind, first, second, frequency, distance``."""
    pairs = dict.fromkeys((item.criterion, item.pair) for item in compositions)
    rows = [
        (name, pair.kind, pair.first, pair.second, frequency(graph, pair), distance(graph, pair))
        for name, pair in pairs
    ]
    columns = ["criterion", "kind", "first", "second", "frequency", "distance"]
    return pd.DataFrame(rows, columns=columns)
