"""Hallucination candidates: absent concepts that most often accompany what an image shows."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Collection, Iterable, Sequence

import networkx as nx

from ood_lab.lvlm.concepts.cooccurrences import cooccurrences

#: Hallucination candidates of an image at most.
CANDIDATES = 5
#: From a graph and the concepts of an image to others, the most tempting first.
Ranking = Callable[[nx.Graph, Collection[str]], Iterable[str]]


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


def neighbours(graph: nx.Graph, truth: Collection[str]) -> list[str]:
    """Concepts that meet those of an image in the graph T, the most frequent first.

    Every one comes once, by the frequency of its heaviest edge to them; ties by name.
    """
    strength: dict[str, int] = {}
    for name in truth:
        for other, about in graph.adj[name].items() if name in graph else ():
            strength[other] = max(strength.get(other, 0), about["frequency"])
    return sorted(strength, key=lambda name: (-strength[name], name))
