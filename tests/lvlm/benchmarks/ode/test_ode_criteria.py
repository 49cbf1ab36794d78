import json

import pytest
from small_concepts import SHARED, SMALL, needs_data

from ood_lab.common.errors import UserError
from ood_lab.lvlm.benchmarks.amber.concepts import AmberConcepts
from ood_lab.lvlm.benchmarks.ode import criteria
from ood_lab.lvlm.benchmarks.ode.criteria import Fictional, LongTail, Random, Standard
from ood_lab.lvlm.concepts.concepts import Pair, distance, frequency, graphs_of, read_graphml

GRAPH = graphs_of(SMALL)["T"]
ALL = [Standard(), LongTail(0, 3), Random(), Fictional()]


@pytest.mark.parametrize("criterion", ALL, ids=lambda c: type(c).__name__)
def test_same_seed_same_pairs_and_never_more_than_asked(criterion):
    first = criterion.select(GRAPH, 2, seed=3)
    assert first == criterion.select(GRAPH, 2, seed=3)
    assert max(sum(p.kind == kind for p in first) for kind in ("ee", "ev")) <= 2
    assert all(p.second in ("sky", "sea", "sun") for p in first if p.kind == "ev")


@pytest.mark.parametrize("criterion", ALL, ids=lambda c: type(c).__name__)
def test_pairs_of_earlier_rounds_are_not_chosen_again(criterion):
    known = criterion.select(GRAPH, 1, seed=0)
    again = criterion.select(GRAPH, 100, seed=0, known=known)
    assert not {p.key for p in known} & {p.key for p in again}


def test_standard_takes_the_most_frequent_and_breaks_ties_by_name():
    pairs = Standard().select(GRAPH, 2, seed=0)
    assert pairs == [
        Pair("dog", "person", "ee"),
        Pair("person", "ship", "ee"),
        Pair("person", "sky", "ev"),
        Pair("boat", "sea", "ev"),
    ]


def test_long_tail_leaves_both_limits_out():
    pairs = LongTail(1, 3).select(GRAPH, 10, seed=0)
    assert {(p.first, p.second) for p in pairs} == {("dog", "person"), ("person", "sky")}
    assert len(LongTail(0.0, 0.5, "quantile").select(GRAPH, 10, seed=0)) > 1


@pytest.mark.parametrize(("low", "high", "unit"), [(5, 1, "count"), (0.5, 2, "quantile")])
def test_limits_that_nothing_can_meet_are_refused(low, high, unit):
    with pytest.raises(UserError, match="long-tail"):
        LongTail(low, high, unit)


def test_fictional_pairs_never_meet():
    pairs = Fictional().select(GRAPH, 100, seed=0)
    assert pairs
    assert all(frequency(GRAPH, p) == 0 for p in pairs)
    assert {distance(GRAPH, p) for p in pairs} >= {2, None}  # sea and boat are apart from the rest


def test_random_pairs_come_from_everywhere():
    pairs = Random().select(GRAPH, 1000, seed=0)
    entities, environments = 4, 2  # dog, person, ship, boat; sky, sea
    assert len(pairs) == entities * (entities - 1) // 2 + entities * environments


@needs_data
def test_most_frequent_pairs_of_amber(amber):
    graph = graphs_of(amber)["T"]
    pairs = Standard().select(graph, 26, seed=0)
    found = [(f"{p.first}-{p.second}", frequency(graph, p)) for p in pairs]
    ee, ev = found[:26], found[26:]
    assert ee[:7] == [
        ("hat-person", 55),
        ("plate-table", 36),
        ("glove-hat", 31),
        ("dog-necklace", 30),
        ("glove-person", 27),
        ("frisbee-toy", 25),
        ("cup-table", 23),
    ]
    assert {name for name, count in ee if count == 20} == {
        "dog-toy",
        "laptop-table",
        "person-surfboard",
    }
    assert ("hat-motorbike", 16) in ee
    assert ev[:5] == [
        ("person-sky", 119),
        ("person-sea", 66),
        ("person-cloud", 57),
        ("person-ground", 53),
        ("person-grass", 52),
    ]
    assert {name for name, count in ev if count == 37} == {"dog-grass", "person-forest"}


PUBLISHED = {
    "Common": (criteria.Sorted(heaviest=True), 40, 39),
    "Longtailed": (criteria.Sorted(heaviest=False), 40, 38),
    "Random": (criteria.ReleasedRandomPairs(), 40, 38),
    "Fictional": (criteria.ReleasedFictionalPairs(), 40, 20),
}


@needs_data
@pytest.mark.parametrize("name", PUBLISHED)
def test_every_published_pair_is_reproduced(name):
    criterion, n_ee, n_ev = PUBLISHED[name]
    rows = json.loads((SHARED / "annotations_updated.json").read_text())
    graph = read_graphml(SHARED / "objects_cooccurrence_graph_T.graphml")
    ours = criterion.select(graph, 40, seed=42)
    for kind, count in (("ee", n_ee), ("ev", n_ev)):
        published = {
            tuple(row["truth"]) for row in rows if (row["type"], row["info_type"]) == (name, kind)
        }
        assert len(published) == count
        assert published <= {(p.first, p.second) for p in ours if p.kind == kind}


@needs_data
def test_a_criterion_looks_at_every_pair_once(monkeypatch):
    graph = graphs_of(AmberConcepts(str(SHARED)).read())["T"]
    looks, known = [], criteria.frequency
    monkeypatch.setattr(criteria, "frequency", lambda *of: looks.append(of) or known(*of))
    for criterion in (Standard(), LongTail(), Random(), Fictional()):
        looks.clear()
        assert len(criterion.select(graph, 100, seed=0)) == 200
        assert len(looks) <= graph.number_of_edges()
