from collections import Counter

import networkx as nx
import pytest
from small_concepts import SMALL, needs_data

from ood_lab.common.errors import UserError
from ood_lab.lvlm.concepts.concepts import (
    company,
    graphs_of,
    merged,
    neighbours,
    read_graphml,
    statistics,
    statistics_table,
    write_graphml,
)


def test_frequency_is_the_number_of_images_in_the_clean_rule():
    graph = graphs_of(SMALL)["T"]
    assert graph["dog"]["person"]["frequency"] == 2
    assert graph["person"]["ship"]["frequency"] == 1  # named twice in one image
    assert not nx.number_of_selfloops(graph)


def test_hallucination_graph_joins_what_is_there_with_what_is_not():
    graph = graphs_of(SMALL)["H"]
    assert graph["person"]["cat"]["frequency"] == 2
    assert graph["sky"]["bird"]["frequency"] == 1


def test_nodes_know_their_type_and_attributes():
    graph = graphs_of(SMALL)["T"]
    assert graph.nodes["dog"] == {
        "type": "entity",
        "state": [("wet", "dry")],
        "action": [("run", "sit")],
    }


def test_graphml_comes_back_as_it_was(tmp_path):
    graph = graphs_of(SMALL)["T"]
    write_graphml(graph, tmp_path / "graph.graphml")
    again = read_graphml(tmp_path / "graph.graphml")
    assert dict(again.nodes(data=True)) == dict(graph.nodes(data=True))
    assert list(again.edges(data=True)) == list(graph.edges(data=True))


def test_a_file_that_is_no_graph_is_named(tmp_path):
    file = tmp_path / "graph.graphml"
    with pytest.raises(UserError, match="no graph"):
        read_graphml(file)
    file.write_text("not xml")
    with pytest.raises(UserError, match=r"graph\.graphml"):
        read_graphml(file)


def test_merging_adds_frequencies_and_joins_attributes():
    graph = graphs_of(SMALL)["T"]
    both = merged(graph, graph)
    assert both["dog"]["person"]["frequency"] == 4
    assert both.nodes["dog"]["state"] == [("wet", "dry")]


def test_candidates_are_the_most_frequent_company_that_is_absent():
    truth = [["a", "b"], ["a", "b", "c"], ["a", "d"], ["e"]]
    assert company(truth) == [["c", "d"], ["d"], ["b", "c"], []]


@needs_data
def test_statistics_of_amber_in_the_clean_rule(amber):
    graph = graphs_of(amber)["T"]
    found = statistics(graph)
    assert (found["nodes"], found["edges"], found["self_loops"]) == (315, 4353, 0)
    assert (found["max_frequency"], found["total_frequency"]) == (224, 15225)
    types = Counter(kind for _, kind in graph.nodes(data="type"))
    assert types == {"entity": 259, "environment": 53, "virtual": 3}


def test_statistics_table_has_a_row_for_every_graph():
    table = statistics_table({"T": graphs_of(SMALL)["T"], "H": graphs_of(SMALL)["H"]})
    assert table["graph"].tolist() == ["T", "H"]
    assert {"nodes", "edges", "total_frequency"} <= set(table)


def test_neighbours_come_from_both_ends_and_once():
    graph = graphs_of(SMALL)["T"]
    assert neighbours(graph, ("dog", "ship")) == ["person", "sky"]
    assert neighbours(graph, ("nowhere",)) == []
