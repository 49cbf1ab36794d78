"""What the splits are made of, counted by pairs."""

import pandas as pd
import pytest

from ood_lab.lvlm.benchmarks.oodbench.split_contents import (
    distribution_figures,
    distribution_of,
    with_fields,
)
from ood_lab.schema.run_record import RunRecord


def answers(*pairs):
    """Two answers to each pair of split, image, category, place and data set."""
    names = ["split", "image", "category", "place", "dataset"]
    rows = [dict(zip(names, pair, strict=False)) for pair in pairs for _ in range(2)]
    other = {"task": "bap_counting", "split": "id", "image": 9, "category": "dog"}
    return pd.DataFrame([*({"task": "yes_no", **row} for row in rows), other])


def test_pairs_are_counted_once_by_category_and_place():
    table = distribution_of(
        answers(("id", 1, "car", "bonn"), ("id", 2, "car", "ulm"), ("ood_h", 1, "dog", "bonn"))
    )
    counts = table.set_index(["split", "by", "value"])
    assert counts["pairs"].to_dict() == {
        ("id", "place", "bonn"): 1,
        ("id", "place", "ulm"): 1,
        ("ood_h", "place", "bonn"): 1,
        ("id", "category", "car"): 2,
        ("ood_h", "category", "dog"): 1,
    }
    assert counts.loc[("id", "place", "ulm"), "share"] == 0.5
    assert (table["dataset"] == "").all()


def test_data_sets_are_counted_and_each_has_its_own_categories():
    table = distribution_of(
        answers(
            ("id", 1, "car", None, "coco"),
            ("id", 1, "car", None, "lvis"),
            ("id", 2, "dog", None, "coco"),
        )
    )
    of = table.set_index(["dataset", "by", "value"])
    assert of.loc[("", "dataset", "coco"), "share"] == pytest.approx(2 / 3)
    assert of.loc[("coco", "category", "car"), ["pairs", "share"]].tolist() == [1, 0.5]
    assert of.loc[("lvis", "category", "car"), "share"] == 1
    assert not (table["by"] == "place").any()


def test_fields_are_counted_and_belong_to_their_categories():
    kinds = [["car", "vehicle"], ["bus", "vehicle"], ["dog", "animal"]]
    noted = {"coco": {"fields": kinds, "domain": "natural"}, "city": {"domain": "driving"}}
    judged = answers(
        ("id", 1, "car", None, "coco"),
        ("id", 2, "dog", None, "coco"),
        ("id", 3, "bus", None, "coco"),
        ("id", 1, "car", None, "city"),
    )
    datasets = {name: {"annotations": about} for name, about in noted.items()}
    table = distribution_of(with_fields(judged, RunRecord(datasets=datasets)))
    of = table.set_index(["dataset", "by", "value"]).sort_index()
    assert of.loc[("coco", "field")]["pairs"].to_dict() == {"vehicle": 2, "animal": 1}
    assert of.loc[("coco", "category")]["field"].to_dict() == {
        "car": "vehicle",
        "dog": "animal",
        "bus": "vehicle",
    }
    assert of.loc[("", "domain")]["pairs"].to_dict() == {"natural": 3, "driving": 1}
    assert "field" not in of.loc["city"].index.get_level_values("by")
    figures = {each.name: each for each in distribution_figures(table, {"id": "ID"}, "m")}
    assert {*figures} == {"of_data_sets", "of_domains", "of_fields_coco", "of_categories_coco"}
    (axes,) = figures["of_categories_coco"].draw().axes
    names = [label.get_text() for label in axes.get_yticklabels()]
    assert names == ["vehicle:  car", "bus", "animal:  dog"]


def test_without_yes_no_questions_there_is_nothing():
    assert distribution_of(answers()).empty
