import pytest
from small_concepts import SHARED, SMALL, needs_data

from ood_lab.lvlm.benchmarks.ode.criteria import first_ends, released_graphs
from ood_lab.lvlm.benchmarks.ode.published_files import read_pictures
from ood_lab.lvlm.concepts.concepts import read_graphml, statistics


def test_released_rule_counts_repeats_twice_and_pairs_a_name_with_itself():
    graph = released_graphs(SMALL)["T"]
    assert graph["dog"]["person"]["frequency"] == 3  # 2 c - 1
    assert graph["person"]["ship"]["frequency"] == 3
    assert graph["ship"]["ship"]["frequency"] == 1
    assert released_graphs(SMALL)["H"]["ship"]["bird"]["frequency"] == 2


@needs_data
def test_statistics_of_amber_in_the_released_rule(amber):
    found = statistics(released_graphs(amber)["T"])
    assert (found["nodes"], found["edges"], found["self_loops"]) == (315, 4364, 11)
    assert (found["max_frequency"], found["total_frequency"]) == (447, 26282)
    found = statistics(released_graphs(amber)["H"])
    assert (found["nodes"], found["edges"], found["self_loops"]) == (340, 5391, 28)
    assert (found["max_frequency"], found["total_frequency"]) == (261, 27422)
    assert (found["with_state"], found["with_action"]) == (168, 40)
    assert (found["state_pairs"], found["action_pairs"]) == (572, 123)


@needs_data
@pytest.mark.parametrize("name", ["T", "H"])
def test_released_graphs_are_the_published_ones(amber, name):
    ours = released_graphs(amber)[name]
    published = read_graphml(SHARED / f"objects_cooccurrence_graph_{name}.graphml")
    assert dict(ours.nodes(data=True)) == dict(published.nodes(data=True))
    assert list(ours.edges(data=True)) == list(published.edges(data=True))


@pytest.mark.slow
@needs_data
def test_published_candidates_are_one_sided_rankings():
    graph = read_graphml(SHARED / "objects_cooccurrence_graph_T.graphml")
    pictures = read_pictures(SHARED / "annotations_updated.json")
    ranked = [
        tuple(name for name in first_ends(graph, each.truth) if name not in each.truth)
        for each in pictures
    ]
    exact = sum(
        each.hallu == ranking[: len(each.hallu)]
        for each, ranking in zip(pictures, ranked, strict=True)
    )
    assert exact == 778
    assert sum(len(set(each.hallu)) < len(each.hallu) for each in pictures) == 37
