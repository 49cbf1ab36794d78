"""Hallucination candidates: absent concepts that most often accompany what an image shows."""

from __future__ import annotations

from collections.abc import Collection, Iterator

import networkx as nx

from ood_lab.lvlm.benchmarks.ode.construction.concepts import CANDIDATES


class Candidates:
    """The candidates that a graph of concepts has for an image, the most frequent first.

    Every neighbour of what the image shows comes once, by the frequency of its heaviest edge to it;
    ties by name.

    Args:
        graph: T.
        released: as the published lists were made, see
            :mod:`ood_lab.lvlm.benchmarks.ode.construction.released_code`.
    """

    def __init__(self, graph: nx.Graph, released: bool = False) -> None:
        self.graph, self.released = graph, released
        self._edges = sorted(graph.edges(data="frequency"), key=lambda edge: -edge[2])

    def of(
        self, truth: Collection[str], detected: Collection[str] = (), most: int = CANDIDATES
    ) -> tuple[str, ...]:
        """Absent concepts.

        Args:
            truth: what the image shows.
            detected: what else a detector sees in it.
            most: how many at most.
        """
        shown = {*truth, *detected}
        found = self._first_ends(truth) if self.released else self._neighbours(truth)
        return tuple(name for name in found if name not in shown)[:most]

    def _first_ends(self, truth: Collection[str]) -> Iterator[str]:
        return (second for first, second, _ in self._edges if first in truth)

    def _neighbours(self, truth: Collection[str]) -> list[str]:
        strength: dict[str, int] = {}
        for name in truth:
            for other, about in self.graph.adj[name].items() if name in self.graph else ():
                strength[other] = max(strength.get(other, 0), about["frequency"])
        return sorted(strength, key=lambda name: (-strength[name], name))
