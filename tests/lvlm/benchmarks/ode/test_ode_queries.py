import json
from dataclasses import replace

import pytest
from small_concepts import SHARED, SMALL, needs_data

from ood_lab.common.errors import UserError
from ood_lab.lvlm.benchmarks.ode.published_files import read_pictures
from ood_lab.lvlm.benchmarks.ode.queries import questions_of
from ood_lab.lvlm.concepts.concepts import Attribute, Pair, graphs_of
from ood_lab.lvlm.image_generation.compositions import Composition, Concept, compose
from ood_lab.lvlm.image_generation.pictures import AnnotatedPicture, write_pictures

PICTURE = AnnotatedPicture(
    "a.png",
    "standard",
    "ev",
    ("apple", "sky"),
    states=(Attribute("red", "green"), None),
    actions=(None, None),
    hallu=("dog", "umbrella", "cat"),
    meta={"covariate_level": 0},
)


def test_corrected_wording():
    texts = [(q.text, q.answer) for q in questions_of([PICTURE])]
    assert texts == [
        ("Please describe this image.", "The picture shows red apple and sky."),
        ("Is there an apple in the image?", "yes"),
        ("Is there a sky in the image?", "yes"),
        ("Is there a dog in the image?", "no"),
        ("Is there an umbrella in the image?", "no"),
        ("Is the apple red in the image?", "yes"),
        ("Is the apple green in the image?", "no"),
        ("Is there one apple in the picture?", "yes"),
        ("Are there two apples in the picture?", "no"),
        ("Are there three apples in the picture?", "no"),
    ]


def test_questions_know_their_picture():
    caption, first, *_ = questions_of([PICTURE])
    assert caption.meta["truth"] == ["apple", "sky"]
    assert first.pair_id == caption.pair_id == "a.png"
    assert (first.meta["split"], first.meta["covariate_level"]) == ("standard", 0)


def test_every_picture_needs_a_file_of_its_own():
    with pytest.raises(UserError, match="same file"):
        questions_of([PICTURE, PICTURE])
    with pytest.raises(UserError, match="no pictures"):
        questions_of([])


def test_pictures_come_back_as_they_were(tmp_path):
    write_pictures([PICTURE], tmp_path / "pictures.jsonl")
    assert read_pictures(tmp_path / "pictures.jsonl") == [PICTURE]
    (tmp_path / "pictures.jsonl").write_text("{}")
    with pytest.raises(UserError, match="not a list of pictures"):
        read_pictures(tmp_path / "pictures.jsonl")


def test_annotations_of_ode_are_pictures(tmp_path):
    row = {"id": 1, "type": "standard", "image": "a.png", "info_type": "ev"}
    row |= {"truth": ["apple", "sky"], "hallu": ["dog", "umbrella", "cat"]}
    row |= {"truth_attr": ["red", "", "", ""], "hallu_attr": ["green", "", "", ""]}
    (tmp_path / "annotations.json").write_text(json.dumps([row]))
    assert read_pictures(tmp_path / "annotations.json") == [replace(PICTURE, meta={})]


@needs_data
def test_published_queries_are_asked_to_the_letter():
    asked = questions_of(read_pictures(SHARED / "annotations_updated.json"), released=True)
    assert len({question.question_id for question in asked}) == len(asked) == 8786
    captions, *closed = (
        json.loads((SHARED / f"queries-{name}.json").read_text())
        for name in ("generative", "discriminative_existence", "discriminative_attribute")
    )
    assert [len(captions), *map(len, closed)] == [808, 2376, 5602]
    published = [(row["image"], row["generative"]) for row in captions]
    assert [(q.image, q.text) for q in asked[:808]] == published
    assert [(q.image, q.text, q.answer, q.meta["split"]) for q in asked[808:]] == [
        (row["image"], row["discriminative"], row["dis_truth"], row["type"])
        for rows in closed
        for row in rows
    ]


def test_attributes_are_drawn_with_the_pair_and_swapped_only_by_chance_criteria():
    graph, pairs = graphs_of(SMALL)["T"], [Pair("dog", "person", "ee")]
    (standard,) = compose(pairs, graph, "standard", False, seed=0)
    assert standard.first == Concept("dog", Attribute("wet", "dry"), Attribute("run", "sit"))
    assert standard.second.state is None
    assert (standard.frequency, standard.distance) == (2, 1)
    shown = {
        each.first.state
        for seed in range(20)
        for each in compose(pairs, graph, "random", True, seed)
    }
    assert shown == {Attribute("wet", "dry"), Attribute("dry", "wet")}
    assert len(compose(pairs, graph, "standard", False, seed=0, draws=5)) == 1


def test_prompts_of_paper_and_code():
    dog = Concept("dog", Attribute("wet", "dry"), Attribute("run", "sit"))
    both = Composition("standard", "ee", dog, Concept("boat"))
    assert both.prompt() == "a picture of wet run dog and boat"
    assert both.prompt("code") == "a wet run dog and a boat"
    assert Composition("x", "ev", dog, Concept("sea")).prompt("code") == "a wet run dog in sea"
