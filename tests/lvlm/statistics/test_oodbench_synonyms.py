"""What counts as naming a category: its name, its plural, given synonyms; what is suggested."""

import numpy as np
import pytest

from ood_lab.common.errors import UserError
from ood_lab.lvlm.statistics.training_texts import (
    nearest_phrases,
    phrases,
    read_synonyms,
    semantic_overlap,
)
from ood_lab.metrics.resampling.intervals import clopper_pearson

CATEGORIES = ("mug", "person", "traffic light")


def test_a_synonym_and_its_plural_count_as_the_name_does():
    texts = {"1": ["Two coffee cups"], "2": ["a coffee cupboard"], "3": ["a mug"], "4": ["a child"]}
    pairs = [(image, "mug") for image in texts] + [("4", "person")]
    plain = semantic_overlap(pairs, texts, 0.9)
    assert (plain.expressed, plain.by_name) == (1, 1)
    found = semantic_overlap(pairs, texts, 0.9, {"mug": ["coffee cup"], "person": ["child"]})
    assert (found.expressed, found.by_name, found.share) == (3, 1, 0.6)
    assert found.upper == pytest.approx(clopper_pearson(3, 5)[1])


@pytest.mark.parametrize(
    ("name", "text"),
    [
        ("s.csv", "category,synonym,cosine\nmug,coffee cup,0.9\nperson,child,0.8\nmug,cup,0.7\n"),
        ("s.yaml", "mug: [coffee cup, cup]\nperson: [child]\n"),
        (
            "s.yml",
            "- {category: mug, synonym: coffee cup}\n- {category: mug, synonym: cup}\n"
            "- {category: person, synonym: child}\n- {category: mug, synonym: cup}\n",
        ),
    ],
)
def test_synonyms_are_read_from_every_layout(tmp_path, name, text):
    (tmp_path / name).write_text(text)
    found = read_synonyms(tmp_path / name, CATEGORIES)
    assert found == {"mug": ["coffee cup", "cup"], "person": ["child"]}


@pytest.mark.parametrize(
    ("name", "text", "message"),
    [
        ("s.csv", "category,synonym\nmugs,cup\n", "the category 'mugs': did you mean 'mug'"),
        ("s.csv", "category,other\nmug,cup\n", "has no column 'synonym'"),
        ("s.csv", "category,synonym\nmug, \n", "synonym 1 (of 'mug') is empty"),
        ("s.yaml", "mug: cup\n", "is neither"),
        ("s.yaml", "mug: [cup\n", "is neither"),
        ("s.txt", "mug cup", "ends in .csv or .yaml"),
        ("s.csv", None, "there is no such file"),
    ],
)
def test_wrong_synonyms_name_the_culprit(tmp_path, name, text, message):
    if text is not None:
        (tmp_path / name).write_text(text)
    with pytest.raises(UserError) as error:
        read_synonyms(tmp_path / name, CATEGORIES)
    assert message in str(error.value)
    assert f"task.synonyms={tmp_path / name}" in str(error.value)


def test_phrases_are_counted_by_text_and_end_in_words_that_mean_something():
    found = phrases(["A cup of tea, a cup of tea.", "the old cup"])
    assert found == {"cup": 2, "tea": 1, "cup of tea": 1, "old": 1, "old cup": 1}


def test_the_nearest_phrases_are_those_of_the_largest_cosine():
    places = {"mug": 0.0, "person": 90.0, "cup": 10.0, "child": 80.0, "tea": 45.0, "light": 5.0}

    def encode(texts):
        angles = np.radians([places.get(text, 180.0) for text in texts])
        return np.stack([np.cos(angles), np.sin(angles)], axis=1)

    texts = ["a cup, a child", "tea, a traffic light", "mugs, the cup", "people"]
    found = nearest_phrases(["mug", "person"], texts, encode, 2, ["traffic light"])
    rows = found.set_index(["category", "synonym"])
    # Names are none, nor are parts of one: "light" occurs in "traffic light" alone.
    assert list(rows.index) == [
        ("mug", "cup"), ("mug", "tea"), ("person", "child"), ("person", "tea"),
    ]  # fmt: skip
    assert rows.loc[("mug", "cup"), "cosine"] == pytest.approx(np.cos(np.radians(10)))
    assert rows["texts"].tolist() == [2, 1, 1, 1]
    assert nearest_phrases(["mug"], ["mugs"], encode, 2).empty
