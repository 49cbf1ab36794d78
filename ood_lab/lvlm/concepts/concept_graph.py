"""Concept graphs: which concepts meet in images (T), and which tempt where others are (H).

Graphs are plain :class:`networkx.Graph` objects. A node has ``type`` (entity, environment,
virtual; ``""`` where unknown), ``state`` and ``action`` (lists of
:class:`~ood_lab.lvlm.concepts.concepts.Attribute`), an edge has ``frequency``.
"""

from __future__ import annotations

import base64
import json
from collections import Counter
from itertools import combinations, product
from pathlib import Path
from typing import Any, Literal

import networkx as nx
import pandas as pd

from ood_lab.common.errors import UserError
from ood_lab.common.files import replaced
from ood_lab.lvlm.concepts.concepts import (
    ENTITY,
    ENVIRONMENT,
    VIRTUAL,
    Attribute,
    Concepts,
)
from ood_lab.lvlm.concepts.cooccurrences import cooccurrences, counted

#: A graph: what meets (T), or what tempts where others are (H).
Which = Literal["T", "H"]
TYPES = (ENTITY, ENVIRONMENT, VIRTUAL)
_LISTS = ("state", "action")


def truth_graph(concepts: Concepts) -> nx.Graph:
    """T: an edge joins two concepts that are seen in one image; it counts these images."""
    return described(cooccurrences(concepts.truth), concepts)


def hallucination_graph(concepts: Concepts) -> nx.Graph:
    """H: an edge joins a concept that is seen with one that might be said to be there, too."""
    edges: list[tuple[str, str]] = []
    for names, tempting in zip(concepts.truth, concepts.hallu, strict=True):
        found = {tuple(sorted(pair)) for pair in product(names, tempting)}
        edges += sorted((first, second) for first, second in found if first != second)
    return described(counted(edges), concepts)


def graphs_of(concepts: Concepts) -> dict[str, nx.Graph]:
    """Both graphs of concepts, by name."""
    return {"T": truth_graph(concepts), "H": hallucination_graph(concepts)}


def merged(old: nx.Graph, new: nx.Graph) -> nx.Graph:
    """Both graphs in one: frequencies add up, attributes are joined."""
    both = nx.Graph()
    for graph in (old, new):
        for node, about in graph.nodes(data=True):
            known = both.nodes[node] if node in both else {"type": "", "state": [], "action": []}
            joined = {key: list(dict.fromkeys([*known[key], *about[key]])) for key in _LISTS}
            both.add_node(node, type=known["type"] or about["type"], **joined)
        for first, second, about in graph.edges(data=True):
            before = both.get_edge_data(first, second, {"frequency": 0})["frequency"]
            both.add_edge(first, second, frequency=before + about["frequency"])
    return both


def write_graphml(graph: nx.Graph, path: Path) -> None:
    """Writes GraphML as ODE (arXiv 2409.09318) publishes it: attributes as base64 of JSON."""
    plain = graph.copy()
    for _, about in plain.nodes(data=True):
        about |= {key: _encoded(about[key]) for key in _LISTS}
    with replaced(path) as file:
        nx.write_graphml(plain, file)


def read_graphml(path: Path) -> nx.Graph:
    """Reads what :func:`write_graphml`, or ODE, has written; nodes and edges keep their order.

    Raises:
        UserError: there is no such file, or it is no such graph.
    """
    if not path.is_file():
        raise UserError(f"there is no graph '{path}'")
    try:
        graph = nx.read_graphml(path)
        for _, about in graph.nodes(data=True):
            about |= {key: _decoded(about.get(key, "")) for key in _LISTS}
            about.setdefault("type", "")
        for *_, about in graph.edges(data=True):
            about["frequency"] = int(about["frequency"])
    except (KeyError, ValueError, SyntaxError, nx.NetworkXError) as error:
        raise UserError(f"'{path}' is not a concept graph in GraphML: {error}") from error
    return graph


def statistics(graph: nx.Graph) -> dict[str, Any]:
    """Numbers that tell one graph from another.

    Returns:
        ``nodes``, ``edges``, ``self_loops``, ``max_frequency``, ``total_frequency``, ``types``
        (nodes by type), ``edges_by_types``, ``non_edges_by_types`` (of two different concepts),
        ``with_state``, ``with_action``, ``state_pairs``, ``action_pairs``, ``frequencies`` (edges
        by frequency).
    """
    types = nx.get_node_attributes(graph, "type")
    frequencies = [value for *_, value in graph.edges(data="frequency")]
    joined = Counter(_named(types[a], types[b]) for a, b in graph.edges() if a != b)
    sizes = Counter(types.values())
    possible = Counter({_named(a, a): sizes[a] * (sizes[a] - 1) // 2 for a in sizes})
    possible |= Counter({_named(a, b): sizes[a] * sizes[b] for a, b in combinations(sizes, 2)})
    states, actions = ([about[key] for _, about in graph.nodes(data=True)] for key in _LISTS)
    return {
        "nodes": graph.number_of_nodes(),
        "edges": graph.number_of_edges(),
        "self_loops": nx.number_of_selfloops(graph),
        "max_frequency": max(frequencies, default=0),
        "total_frequency": sum(frequencies),
        "types": dict(sizes),
        "edges_by_types": dict(joined),
        "non_edges_by_types": {kind: n - joined[kind] for kind, n in possible.items()},
        "with_state": sum(map(bool, states)),
        "with_action": sum(map(bool, actions)),
        "state_pairs": sum(map(len, states)),
        "action_pairs": sum(map(len, actions)),
        "frequencies": dict(sorted(Counter(frequencies).items())),
    }


def statistics_table(graphs: dict[str, nx.Graph]) -> pd.DataFrame:
    """The plain numbers of :func:`statistics`, one row a graph."""
    rows = [{"graph": name} | statistics(graph) for name, graph in graphs.items()]
    table = pd.DataFrame(rows)
    return table[[name for name in table if not isinstance(rows[0][str(name)], dict)]]


def described(graph: nx.Graph, concepts: Concepts) -> nx.Graph:
    """The graph, whose nodes now have what is known of their concept."""
    for node, about in graph.nodes(data=True):
        about["type"] = concepts.types.get(node, "")
        about["state"] = list(concepts.states.get(node, ()))
        about["action"] = list(concepts.actions.get(node, ()))
    return graph


def _named(first: str, second: str) -> str:
    order = {name: place for place, name in enumerate(TYPES)}
    return "-".join(sorted((first, second), key=lambda name: order.get(name, len(order))))


def _encoded(pairs: list[Attribute]) -> str:
    return base64.b64encode(json.dumps(pairs, ensure_ascii=False).encode()).decode()


def _decoded(text: str) -> list[Attribute]:
    return [Attribute(*pair) for pair in json.loads(base64.b64decode(text) or "[]")]
