import json
from pathlib import Path

import pytest
from small_concepts import SHARED, SMALL, needs_data

from ood_lab.common.errors import UserError
from ood_lab.lvlm.benchmarks.ode.published_files import read_pictures, write_published
from ood_lab.lvlm.benchmarks.ode.queries import questions_of
from ood_lab.lvlm.concepts.concepts import Attribute, Pair, truth_graph
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


@needs_data
def test_published_files_are_reproduced_to_the_letter(tmp_path):
    pictures = read_pictures(SHARED / "annotations_updated.json")
    write_published(pictures, Path(), tmp_path)
    files = {path.name: json.loads(path.read_text()) for path in tmp_path.iterdir()}
    assert {name: len(rows) for name, rows in files.items()} == {
        "annotations_updated.json": 808,
        "queries-generative.json": 808,
        "queries-discriminative_existence.json": 2376,
        "queries-discriminative_attribute.json": 5602,
    }
    for name, rows in files.items():
        assert rows == json.loads((SHARED / name).read_text())
    ids = [question.question_id for question in questions_of(pictures, released=True)]
    assert len(set(ids)) == len(ids) == 8786


def test_attributes_are_drawn_with_the_pair_and_swapped_only_by_chance_criteria():
    graph, pairs = truth_graph(SMALL), [Pair("dog", "person", "ee")]
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
