"""From concepts to compositions: graph, pairs, attributes."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Annotated

import networkx as nx
import pandas as pd
from annotated_types import Ge

from ood_lab.common.errors import UserError
from ood_lab.lvlm.benchmarks.ode.criteria import Criterion
from ood_lab.lvlm.concepts.concept_graph import Which
from ood_lab.lvlm.concepts.concept_pairs import Pair, distance, frequency
from ood_lab.lvlm.image_generation.compositions import Composition, compose
from ood_lab.lvlm.image_generation.orders import Generator


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
            graphs: see :func:`~ood_lab.lvlm.concepts.concept_graph.graphs_of`.
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
        found: list[Composition] = []
        for name, criterion in criteria.items():
            pairs = criterion.select(graph, self.limit, seed, known)
            if not pairs:
                raise UserError(
                    f"criterion '{name}' finds no pair among {graph.number_of_nodes():,} concepts "
                    "that can be drawn: change its limits, or remove it, task.construction."
                    f"criteria.{name}=null"
                )
            found += compose(pairs, graph, name, criterion.swaps, seed, self.draws)
        return found


def pair_table(compositions: Sequence[Composition], graph: nx.Graph) -> pd.DataFrame:
    """One row a pair of a criterion: ``criterion, kind, first, second, frequency, distance``."""
    pairs = dict.fromkeys((each.criterion, each.pair) for each in compositions)
    rows = [
        (name, pair.kind, pair.first, pair.second, frequency(graph, pair), distance(graph, pair))
        for name, pair in pairs
    ]
    columns = ["criterion", "kind", "first", "second", "frequency", "distance"]
    return pd.DataFrame(rows, columns=columns)
