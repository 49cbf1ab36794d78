"""What counts as naming a category: its name, its plural, given synonyms."""

import pytest

from ood_lab.common.errors import UserError
from ood_lab.lvlm.statistics.training_texts import (
    read_synonyms,
    semantic_overlap,
)
from ood_lab.metrics.resampling.intervals import clopper_pearson

CATEGORIES = ("mug", "person", "traffic light")


def test_a_synonym_and_its_plural_count_as_the_name_does():
    texts = {"1": ["Two coffee cups"], "2": ["a coffee cupboard"], "3": ["a mug"], "4": ["a child"]}
    pairs = [(image, "mug") for image in texts] + [("4", "person")]
    plain = semantic_overlap(pairs, texts, 0.9, {})
    assert (plain.expressed, plain.by_name) == (1, 1)
    found = semantic_overlap(pairs, texts, 0.9, {"mug": ["coffee cup"], "person": ["child"]})
    assert (found.expressed, found.by_name, found.share) == (3, 1, 0.6)
    assert found.upper == pytest.approx(clopper_pearson(3, 5)[1])


def test_synonyms_are_read_once_each(tmp_path):
    text = "category,synonym,cosine\nmug,coffee cup,0.9\nperson,child,0.8\nmug,cup,0.7\nmug,cup,0\n"
    (tmp_path / "s.csv").write_text(text)
    found = read_synonyms(tmp_path / "s.csv", CATEGORIES)
    assert found == {"mug": ["coffee cup", "cup"], "person": ["child"]}


@pytest.mark.parametrize(
    ("name", "text", "message"),
    [
        ("s.csv", "category,synonym\nmugs,cup\n", "the category 'mugs': did you mean 'mug'"),
        ("s.csv", "category,other\nmug,cup\n", "has no column 'synonym'"),
        ("s.csv", "category,synonym\nmug, \n", "synonym 1 (of 'mug') is empty"),
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
