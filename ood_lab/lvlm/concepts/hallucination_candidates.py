"""Hallucination candidates: absent concepts that most often accompany what an image shows."""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Iterable, Sequence

import networkx as nx

from ood_lab.lvlm.concepts.cooccurrences import cooccurrences

#: Hallucination candidates of an image at most.
CANDIDATES = 5


def company(truth: Sequence[Sequence[str]], most: int = CANDIDATES) -> list[list[str]]:
    """Of every image, the absent concepts that most often accompany the present ones.

    ``sum_f c(f, h)`` over what is there, with c the number of images that show both; ties by name.
    """
    graph, found = cooccurrences(truth), []
    for names in truth:
        total: Counter[str] = Counter()
        for name in set(names) & set(graph):
            total.update({other: about["frequency"] for other, about in graph.adj[name].items()})
        absent = [name for name in total if name not in names]
        found.append(sorted(absent, key=lambda name: (-total[name], name))[:most])
    return found


class Candidates:
    """The candidates that a graph of concepts has for an image, the most frequent first.

    Every neighbour of what the image shows comes once, by the frequency of its heaviest edge to it;
    ties by name.

    Args:
        graph: T, see :mod:`ood_lab.lvlm.concepts.concept_graph`.
    """

    def __init__(self, graph: nx.Graph) -> None:
        self.graph = graph

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
        return tuple(name for name in self._neighbours(truth) if name not in shown)[:most]

    def _neighbours(self, truth: Collection[str]) -> Iterable[str]:
        strength: dict[str, int] = {}
        for name in truth:
            for other, about in self.graph.adj[name].items() if name in self.graph else ():
                strength[other] = max(strength.get(other, 0), about["frequency"])
        return sorted(strength, key=lambda name: (-strength[name], name))
