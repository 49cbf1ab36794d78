"""How often concepts meet: edges of a graph, with their frequency."""

from __future__ import annotations

from collections.abc import Iterable
from itertools import combinations

import networkx as nx


def cooccurrences(truth: Iterable[Iterable[str]]) -> nx.Graph:
    """An edge joins two concepts that an image shows; its ``frequency`` counts these images.

    Args:
        truth: of every image, the concepts that are there.
    """
    every = (combinations(dict.fromkeys(names), 2) for names in truth)
    return counted(ordered(pair) for pairs in every for pair in pairs)


def counted(edges: Iterable[tuple[str, str]], again: int = 1) -> nx.Graph:
    """A graph of these edges; the first occurrence counts 1, every other one ``again``."""
    graph = nx.Graph()
    for first, second in edges:
        if graph.has_edge(first, second):
            graph[first][second]["frequency"] += again
        else:
            graph.add_edge(first, second, frequency=1)
    return graph


def ordered(pair: tuple[str, str]) -> tuple[str, str]:
    """The two in the order of their names."""
    first, second = pair
    return (first, second) if first <= second else (second, first)
