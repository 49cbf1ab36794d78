"""Concepts of a data set: which of them images show, and what is known of them."""

from __future__ import annotations

import base64
import json
from collections import Counter
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass, field
from itertools import chain, combinations, permutations, product
from pathlib import Path
from typing import Literal, NamedTuple

import networkx as nx
import pandas as pd

from ood_lab.common.arguments import Fields
from ood_lab.common.errors import UserError, reported_as
from ood_lab.common.file_records import json_sha256
from ood_lab.common.files import replaced
from ood_lab.common.grouping import distinct, grouped
from ood_lab.lvlm.annotations import Annotations

#: Kinds of concepts: things, surroundings, and what is neither (``hot``).
ENTITY, ENVIRONMENT, VIRTUAL = "entity", "environment", "virtual"


class Attribute(NamedTuple):
    """Two words for a concept, of which the first is right and the second wrong."""

    true: str
    false: str


#: By the name of their concept.
AttributesByName = dict[str, list[Attribute]]


@dataclass(frozen=True)
class Concepts:
    """Concepts of a data set.

    Attributes:
        name: of the data, for tables.
        truth: of every image, the concepts that are there; one may be named twice.
        hallu: of every image, concepts that are not there and might be said to be.
        types: of a concept, ``entity``, ``environment`` or ``virtual``.
        states: of a concept, pairs of adjectives.
        actions: of a concept, pairs of verbs.
        associates: of a concept, other words for it, or for a part of it.
        safe_words: words that never count as hallucinated.
    """

    name: str
    truth: Sequence[Sequence[str]]
    hallu: Sequence[Sequence[str]]
    types: Mapping[str, str]
    states: Mapping[str, Sequence[Attribute]] = field(default_factory=dict)
    actions: Mapping[str, Sequence[Attribute]] = field(default_factory=dict)
    associates: Mapping[str, Sequence[str]] = field(default_factory=dict)
    safe_words: Sequence[str] = ()

    @property
    def vocabulary(self) -> list[str]:
        """Concepts and their associates, each once: the words that a caption is searched for."""
        words = chain.from_iterable(self.associates.values())
        return distinct([*self.types, *self.associates, *words])

    @property
    def identity(self) -> str:
        """Sha256 (hex) of everything."""
        return json_sha256(asdict(self))


def cooccurrences(truth: Iterable[Iterable[str]]) -> nx.Graph:
    """An edge joins two concepts that an image shows; its ``frequency`` counts these images.

    Args:
        truth: of every image, the concepts that are there.
    """
    return counted(
        ordered(pair) for names in truth for pair in combinations(dict.fromkeys(names), 2)
    )


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
    first, second = sorted(pair)
    return first, second


#: Hallucination candidates of an image at most.
CANDIDATES = 5
#: From a graph and the concepts of an image to others, the most tempting first.
Ranking = Callable[[nx.Graph, Collection[str]], Iterable[str]]


def company(truth: Sequence[Sequence[str]]) -> list[list[str]]:
    """Of every image, the absent concepts that most often accompany the present ones.

    ``sum_f c(f, h)`` over what is there, with c the number of images that show both; ties by name.
    """
    graph, results = cooccurrences(truth), []
    for names in truth:
        total: Counter[str] = Counter()
        for name in set(names) & set(graph):
            total.update({other: about["frequency"] for other, about in graph.adj[name].items()})
        absent = [name for name in total if name not in names]
        results.append(sorted(absent, key=lambda name: (-total[name], name))[:CANDIDATES])
    return results


def neighbours(graph: nx.Graph, truth: Collection[str]) -> list[str]:
    """Concepts that meet those of an image in the graph T, the most frequent first.

    Every one comes once, by the frequency of its heaviest edge to them; ties by name.
    """
    strength: dict[str, int] = {}
    for name in truth:
        for other, about in graph.adj[name].items() if name in graph else ():
            strength[other] = max(strength.get(other, 0), about["frequency"])
    return sorted(strength, key=lambda name: (-strength[name], name))


#: Attribute of a thing that is an action; every other one is a state.
_ACTION = "action"


def concepts_of(annotations: Annotations) -> Concepts:
    """Concepts of annotated images.

    Categories are entities; the ``place`` of an image, where the source has it, an environment.
    An attribute with two observed values or more gives every ordered pair of them. The
    hallucination candidates of an image are the concepts that most often accompany what it shows,
    over all images, and are not in it.

    Raises:
        UserError: fewer than two concepts ever meet in an image.
    """
    objects = annotations.objects
    categories = objects["category"].astype(str)
    shown = grouped(zip(objects["image"], categories, strict=True))
    places = annotations.scenes
    truth = [
        sorted(set(shown.get(image, ()))) + ([places[image]] if image in places else [])
        for image in annotations.images["image"]
    ]
    if not any(len(names) > 1 for names in truth):
        raise UserError(f"{annotations.name}: no two concepts are ever seen in one image")
    types = dict.fromkeys(places.values(), ENVIRONMENT) | dict.fromkeys(
        annotations.categories, ENTITY
    )
    values = grouped(
        ((category, key), value)
        for category, attributes in zip(categories, objects["attributes"], strict=True)
        for key, value in attributes.items()
    )
    states: AttributesByName = {}
    actions: AttributesByName = {}
    for (category, key), words in sorted(values.items()):
        into = actions if key == _ACTION else states
        pairs = permutations(sorted(set(words)), 2)
        into.setdefault(category, []).extend(Attribute(a, b) for a, b in pairs)
    return Concepts(annotations.name, truth, company(truth), types, states, actions)


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


Pairs = Sequence[Pair]


def frequency(graph: nx.Graph, pair: Pair) -> int:
    """How often the two meet; 0 = never."""
    return int(graph.get_edge_data(pair.first, pair.second, {"frequency": 0})["frequency"])


def distance(graph: nx.Graph, pair: Pair) -> int | None:
    """Edges on the shortest path between the two: 1 where they meet; None where there is none."""
    try:
        return int(nx.shortest_path_length(graph, pair.first, pair.second))
    except (nx.NodeNotFound, nx.NetworkXNoPath):
        return None


def kind_of(graph: nx.Graph, first: str, second: str) -> Kind | None:
    """Kind of the pair; None where it is none that an image is made of."""
    types = {graph.nodes[first]["type"], graph.nodes[second]["type"]}
    if types == {ENTITY}:
        return "ee"
    return "ev" if types == {ENTITY, ENVIRONMENT} else None


def joined_pairs(graph: nx.Graph) -> Pairs:
    """The pairs that meet, in the order of their names."""
    return sorted(pair for pair in all_pairs(graph) if graph.has_edge(pair.first, pair.second))


def all_pairs(graph: nx.Graph) -> Pairs:
    """Every pair, whether it meets or not, in the order of its names."""
    entities, environments = (
        sorted(name for name, kind in graph.nodes(data="type") if kind == wanted)
        for wanted in (ENTITY, ENVIRONMENT)
    )
    pairs = [Pair(a, b, "ee") for a, b in combinations(entities, 2)]
    return pairs + [Pair(a, b, "ev") for a, b in product(entities, environments)]


_LISTS = ("state", "action")


def graphs_of(concepts: Concepts) -> dict[str, nx.Graph]:
    """Both graphs of concepts, by name; an edge counts images.

    In T it joins two concepts that are seen in one image, in H a concept that is seen with one that
    might be said to be there, too.
    """
    edges: list[tuple[str, str]] = []
    for names, tempting in zip(concepts.truth, concepts.hallu, strict=True):
        results = {ordered(pair) for pair in product(names, tempting)}
        edges += sorted(pair for pair in results if pair[0] != pair[1])
    return {
        "T": described(cooccurrences(concepts.truth), concepts),
        "H": described(counted(edges), concepts),
    }


def merged(old: nx.Graph, new: nx.Graph) -> nx.Graph:
    """Both graphs in one: frequencies add up, attributes are joined."""
    both = nx.Graph()
    for graph in (old, new):
        for node, about in graph.nodes(data=True):
            facts = both.nodes[node] if node in both else {"type": "", "state": [], "action": []}
            joined = {key: distinct([*facts[key], *about[key]]) for key in _LISTS}
            both.add_node(node, type=facts["type"] or about["type"], **joined)
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
    kinds = (KeyError, ValueError, SyntaxError, nx.NetworkXError)
    with reported_as(f"'{path}' is not a concept graph in GraphML: {{reason}}", kinds):
        graph = nx.read_graphml(path)
        for _, about in graph.nodes(data=True):
            about |= {key: _decoded(about.get(key, "")) for key in _LISTS}
            about.setdefault("type", "")
        for *_, about in graph.edges(data=True):
            about["frequency"] = int(about["frequency"])
    return graph


def statistics(graph: nx.Graph) -> Fields:
    """Numbers that tell one graph from another.

    Returns:
        ``nodes``, ``edges``, ``self_loops``, ``max_frequency``, ``total_frequency``,
        ``with_state``, ``with_action``, ``state_pairs``, ``action_pairs``.
    """
    frequencies = [value for *_, value in graph.edges(data="frequency")]
    states, actions = ([about[key] for _, about in graph.nodes(data=True)] for key in _LISTS)
    return {
        "nodes": graph.number_of_nodes(),
        "edges": graph.number_of_edges(),
        "self_loops": nx.number_of_selfloops(graph),
        "max_frequency": max(frequencies, default=0),
        "total_frequency": sum(frequencies),
        "with_state": sum(map(bool, states)),
        "with_action": sum(map(bool, actions)),
        "state_pairs": sum(map(len, states)),
        "action_pairs": sum(map(len, actions)),
    }


def statistics_table(graphs: dict[str, nx.Graph]) -> pd.DataFrame:
    """The numbers of :func:`statistics`, one row a graph."""
    return pd.DataFrame([{"graph": name} | statistics(graph) for name, graph in graphs.items()])


def described(graph: nx.Graph, concepts: Concepts) -> nx.Graph:
    """The graph, whose nodes now have what is known of their concept."""
    for node, about in graph.nodes(data=True):
        about["type"] = concepts.types.get(node, "")
        about["state"] = list(concepts.states.get(node, ()))
        about["action"] = list(concepts.actions.get(node, ()))
    return graph


def _encoded(pairs: list[Attribute]) -> str:
    return base64.b64encode(json.dumps(pairs, ensure_ascii=False).encode()).decode()


def _decoded(text: str) -> list[Attribute]:
    return [Attribute(a, b) for a, b in json.loads(base64.b64decode(text) or "[]")]
