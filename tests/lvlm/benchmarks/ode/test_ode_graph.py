import networkx as nx
import pytest
from ode_data import SHARED, SMALL, needs_data

from ood_lab.common.errors import UserError
from ood_lab.lvlm.benchmarks.ode.construction.amber_concepts import AmberConcepts, attribute_pairs
from ood_lab.lvlm.benchmarks.ode.construction.concept_graph import (
    hallucination_graph,
    merged,
    read_graphml,
    statistics,
    statistics_table,
    truth_graph,
    write_graphml,
)
from ood_lab.lvlm.benchmarks.ode.construction.concepts import candidates


def test_frequency_is_the_number_of_images_in_the_clean_rule():
    graph = truth_graph(SMALL)
    assert graph["dog"]["person"]["frequency"] == 2
    assert graph["person"]["ship"]["frequency"] == 1  # named twice in one image
    assert not nx.number_of_selfloops(graph)


def test_released_rule_counts_repeats_twice_and_pairs_a_name_with_itself():
    graph = truth_graph(SMALL, released=True)
    assert graph["dog"]["person"]["frequency"] == 3  # 2 c - 1
    assert graph["person"]["ship"]["frequency"] == 3
    assert graph["ship"]["ship"]["frequency"] == 1


def test_hallucination_graph_joins_what_is_there_with_what_is_not():
    graph = hallucination_graph(SMALL)
    assert graph["person"]["cat"]["frequency"] == 2
    assert graph["sky"]["bird"]["frequency"] == 1
    assert hallucination_graph(SMALL, released=True)["ship"]["bird"]["frequency"] == 2


def test_nodes_know_their_type_and_attributes():
    graph = truth_graph(SMALL)
    assert graph.nodes["dog"] == {
        "type": "entity",
        "state": [("wet", "dry")],
        "action": [("run", "sit")],
    }


def test_graphml_comes_back_as_it_was(tmp_path):
    graph = truth_graph(SMALL)
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
    graph = truth_graph(SMALL)
    both = merged(graph, graph)
    assert both["dog"]["person"]["frequency"] == 4
    assert both.nodes["dog"]["state"] == [("wet", "dry")]


def test_attribute_pairs_are_distinct_and_of_one_word():
    queries = [
        "Is the sky sunny in this image?",
        "Is the sky gloomy in this image?",
        "Is the sky sunny in this image?",
        "Is the sky gloomy in this image?",
        "Does the dog run in this image?",
        "Does the dog sit in this image?",
        "Are there two dogs in this image?",
        "Are there three dogs in this image?",
    ]
    states, actions = attribute_pairs(queries)
    assert states == {"sky": [("sunny", "gloomy")]}
    assert actions == {"dog": [("run", "sit")]}


def test_candidates_are_the_most_frequent_company_that_is_absent():
    truth = [["a", "b"], ["a", "b", "c"], ["a", "d"], ["e"]]
    assert candidates(truth) == [["c", "d"], ["d"], ["b", "c"], []]


def test_a_folder_without_amber_is_refused(tmp_path):
    with pytest.raises(UserError, match=r"annotations\.json"):
        AmberConcepts(str(tmp_path)).read()


@needs_data
def test_statistics_of_amber_in_the_clean_rule(amber):
    found = statistics(truth_graph(amber))
    assert (found["nodes"], found["edges"], found["self_loops"]) == (315, 4353, 0)
    assert (found["max_frequency"], found["total_frequency"]) == (224, 15225)
    assert found["types"] == {"entity": 259, "environment": 53, "virtual": 3}
    assert found["edges_by_types"] == {
        "entity-entity": 2128,
        "entity-environment": 1807,
        "environment-environment": 405,
        "entity-virtual": 10,
        "environment-virtual": 3,
    }
    apart = found["non_edges_by_types"]
    assert (apart["entity-entity"], apart["entity-environment"]) == (31283, 11920)
    assert (apart["environment-environment"], sum(apart.values())) == (973, 45102)
    first = [found["frequencies"][c] for c in range(1, 7)]
    assert first == [2526, 670, 305, 180, 144, 75]


@needs_data
def test_statistics_of_amber_in_the_released_rule(amber):
    found = statistics(truth_graph(amber, released=True))
    assert (found["nodes"], found["edges"], found["self_loops"]) == (315, 4364, 11)
    assert (found["max_frequency"], found["total_frequency"]) == (447, 26282)
    found = statistics(hallucination_graph(amber, released=True))
    assert (found["nodes"], found["edges"], found["self_loops"]) == (340, 5391, 28)
    assert (found["max_frequency"], found["total_frequency"]) == (261, 27422)
    assert (found["with_state"], found["with_action"]) == (168, 40)
    assert (found["state_pairs"], found["action_pairs"]) == (572, 123)


@needs_data
@pytest.mark.parametrize(("name", "build"), [("T", truth_graph), ("H", hallucination_graph)])
def test_released_graphs_are_the_published_ones(amber, name, build):
    ours = build(amber, released=True)
    published = read_graphml(SHARED / f"objects_cooccurrence_graph_{name}.graphml")
    assert dict(ours.nodes(data=True)) == dict(published.nodes(data=True))
    assert list(ours.edges(data=True)) == list(published.edges(data=True))


def test_statistics_table_has_a_row_for_every_graph():
    table = statistics_table({"T": truth_graph(SMALL), "H": hallucination_graph(SMALL)})
    assert table["graph"].tolist() == ["T", "H"]
    assert {"nodes", "edges", "total_frequency"} <= set(table)
