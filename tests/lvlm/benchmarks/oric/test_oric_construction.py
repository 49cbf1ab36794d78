"""Every step of the construction, held against outcomes that were computed by hand."""

import numpy as np
import pytest
from toy_annotations import CATEGORIES, Says, annotations, space

from ood_lab.common.errors import UserError
from ood_lab.lvlm.annotations.image_contents import contents_of
from ood_lab.lvlm.benchmarks.oric import question_drawing
from ood_lab.lvlm.benchmarks.oric.construction import (
    CooccurrenceJudge,
    Expectation,
    OricConstruction,
    says_no,
)
from ood_lab.lvlm.benchmarks.oric.published_files import with_article
from ood_lab.lvlm.benchmarks.oric.question_drawing import Builder, regions_of

UNEXPECTED = {"cup": "No.", "kite": "No, not there.", "dog": "no"}


@pytest.fixture(scope="module")
def contents():
    return contents_of(annotations())


def build(contents, judge=None, seed=0, **settings):
    how = OricConstruction(**{"pairs": 1, "k": 2, **settings})
    return Builder(contents, space(), judge or Says(UNEXPECTED), seed).construct(how)


def asked(built):
    return [("abcd"[r["row"]], r["object"], r["label"]) for r in built.questions.to_dict("records")]


def test_objects_of_interest_are_smaller_than_the_median(contents):
    regions = regions_of(contents, np.arange(3))
    # a: 20 30 150 900 1000; b: 5 10 600 800 (median 305); c: 200 300 400.
    small = [
        contents.names(contents.codes[contents.entries(r)][regions.interest[contents.entries(r)]])
        for r in range(4)
    ]
    assert small == [["cup", "kite"], ["cup", "dog"], ["dog"], []]
    assert [regions.background(r) for r in range(3)] == [
        ["dog", "person", "car"],
        ["boat", "person"],
        ["car", "person"],
    ]


def test_a_pair_asks_what_is_unexpected_and_what_is_missed(contents):
    """Only a and b have two unexpected objects. Nearest to a is c, which lacks cup, boat, kite:

    of these, boat (cosine 0.96) and kite (0.80) score highest. Nearest to b is c too (0.80).
    """
    built = build(contents, deduplicate=False, pairs=2)
    of_a = [("a", "cup", "yes"), ("a", "kite", "yes"), ("c", "boat", "no"), ("c", "kite", "no")]
    of_b = [("b", "cup", "yes"), ("b", "dog", "yes"), ("c", "boat", "no"), ("c", "kite", "no")]
    found = asked(built)
    assert sorted([found[:4], found[4:]]) == sorted([of_a, of_b])
    assert built.skipped.get("fewer than k unexpected objects", 0) <= 1


def test_repeated_questions_drop_the_whole_pair(contents):
    built = build(contents, pairs=2)
    assert len(built.questions) == 4
    assert built.skipped["asked about already"] == 1


def test_quota_is_filled_or_sampled(contents):
    """Of the three eligible images, c fails: drawn first, it costs a pair only where sampled."""
    first = next(s for s in range(50) if np.random.default_rng(s).permutation(3)[0] == 2)
    assert len(build(contents, seed=first).questions) == 4
    with pytest.raises(UserError, match="none of 1 images gives a pair"):
        build(contents, seed=first, released=True, deduplicate=False)


@pytest.mark.parametrize(
    ("name", "right", "released"),
    [
        ("dog", "a dog", "dog"),
        ("umbrella", "an umbrella", "an umbrella"),
        ("hour glass", "an hour glass", "hour glass"),
        ("unicorn", "a unicorn", "an unicorn"),
    ],
)
def test_articles(name, right, released):
    assert (with_article(name), with_article(name, released=True)) == (right, released)


def test_repeated_pairs_are_out_before_images_are_sampled(contents):
    """Released rule: a and c are nearest to each other; a comes first, so that c is never drawn."""
    everything = Says({}, "no")
    for seed in range(10):
        built = build(contents, everything, seed, k=1, pairs=2, released=True)
        assert built.skipped["asked about already"] >= 1
        assert set(built.audit.loc[built.audit["label"] == "yes", "row"]) == {0, 1}


def test_pick_first_follows_the_annotations_and_random_does_not_always(contents):
    everything = Says({}, "no")
    seeds = range(12)
    options = {"k": 1, "judge": everything, "deduplicate": False, "pairs": 3}
    firsts = {tuple(asked(build(contents, seed=s, released=True, **options))[::2]) for s in seeds}
    names = {row for found in firsts for row in found if row[0] == "a"}
    assert names == {("a", "cup", "yes")}
    drawn = {row for s in seeds for row in asked(build(contents, seed=s, **options))}
    assert {("a", "cup", "yes"), ("a", "kite", "yes")} <= drawn


def test_absent_objects_of_interest_only(contents):
    """Of the objects of interest of b (cup, dog), c lacks the cup only: too few for k = 2."""
    built = build(contents, Says({}, "no"), k=1, pairs=3, absent="of_interest", deduplicate=False)
    of_b = built.questions[built.questions["nearest_to"] == 1]
    assert of_b["object"].tolist() == ["cup"]


def test_the_pool_of_nearest_images(contents):
    """Of images with four categories there are a and b only, so they are each other's nearest.

    In the pool of all, c is nearest to both: b's cosines are 0.6, 0.8 (c) and 0.8 (d, the later).
    """
    options = {"min_categories": 4, "deduplicate": False, "pairs": 2, "k": 1}
    near = build(contents, **options)
    pairs = near.questions[near.questions["nearest_to"] >= 0]
    assert set(zip(pairs["nearest_to"], pairs["row"], strict=True)) == {(0, 1), (1, 0)}
    far = build(contents, released=True, **options).questions
    assert set(far.loc[far["nearest_to"] >= 0, "row"]) == {2}


def test_softmax_in_chunks_can_change_the_order(contents, monkeypatch):
    """Cosines with c: cup -.352, boat .96, kite .8. Alone in its chunk, the cup gets 1."""
    whole = build(contents, seed=1, deduplicate=False)
    monkeypatch.setattr(question_drawing, "CHUNK", 1)
    alone = build(contents, seed=1, deduplicate=False, released=True)
    assert [o for _, o, label in asked(whole) if label == "no"] == ["boat", "kite"]
    assert [o for _, o, label in asked(alone) if label == "no"] == ["cup", "boat"]


def test_uniform_samplers_ask_no_judge(contents):
    judge = Says({})
    built = build(contents, judge, positives="uniform", negatives="uniform", pairs=2)
    assert not judge.asked
    for row, name, label in asked(built):
        there = contents.present["abcd".index(row), CATEGORIES.index(name)]
        assert there == (label == "yes")


def test_the_same_seed_gives_the_same_whatever_else_is_wanted(contents):
    one = build(contents, Says({}, "no"), k=1, pairs=1, seed=5)
    more = build(contents, Says({}, "no"), k=1, pairs=2, seed=5)
    assert asked(more)[:2] == asked(one)


def test_the_audit_names_every_candidate(contents):
    audit = build(contents).audit
    assert set(audit.loc[audit["label"] == "yes", "reply"]) <= {"No.", "No, not there.", "no"}
    assert audit.loc[audit["chosen"], "object"].tolist()[:2] in (
        ["boat", "kite"],
        ["cup", "kite"],
        ["cup", "dog"],
    )
    assert audit["chosen"].sum() == 4


def test_a_judge_without_yes_or_no_is_one_error(contents):
    with pytest.raises(UserError, match="never answered yes or no; its first reply was 'Perhaps'"):
        build(contents, Says({}, "Perhaps"))


def test_fewer_than_k_everywhere_is_one_error(contents):
    with pytest.raises(UserError, match=r"none of 3 images gives a pair \(fewer than k unexpected"):
        build(contents, Says({}, "Yes"))
    with pytest.raises(UserError, match="no image has 9 categories"):
        build(contents, min_categories=9)


@pytest.mark.parametrize(
    ("reply", "word", "substring"),
    [
        ("No.", True, True),
        ("Yes", False, False),
        ("I cannot know", None, True),
        ("Perhaps", None, False),
        ("Yes, not unusual", False, True),
    ],
)
def test_the_released_test_for_no_takes_parts_of_words(reply, word, substring):
    assert says_no(reply, released=False) is word
    assert says_no(reply, released=True) is substring
    assert says_no(None, released=False) is None


def test_a_judge_that_leaves_questions_out_is_one_error(contents):
    class Short(Says):
        def replies(self, asked):
            return super().replies(asked)[:-1]

    with pytest.raises(UserError, match=r"the judge gave \d+ replies to \d+ questions"):
        build(contents, Short(UNEXPECTED))


def test_wording_of_the_question_to_a_judge():
    one = Expectation("cup", ("person", "car"), 0.5)
    assert one.text(released=False) == (
        'Given the following background objects: ["person", "car"], can you determine the presence '
        "of the following target object: cup, with relying on textual priors, common sense "
        "knowledge, or general assumptions about object co-occurrences?\n"
        "Please respond with yes or no."
    )
    assert "objects: [person,car]," in one.text(released=True)
    assert "target objects: cup," in one.text(released=True)


def test_cooccurrence_judge_says_no_to_the_lowest_quantile(contents):
    ranks = [Expectation("cup", (), rank) for rank in (0.0, 0.24, 0.25, 0.9)]
    assert CooccurrenceJudge(0.25).replies(ranks) == ["No", "No", "Yes", "Yes"]
