"""Divisions of other runs, matched with the pairs of questions; folders are made by hand."""

import json

import pandas as pd
import pytest

from ood_lab.common.errors import UserError
from ood_lab.lvlm.benchmarks.oodbench.model_statistics import division_flags

RULE = {"case1": "all_labels", "combine": "or", "threshold": 0.05}


def divided(folder, flags, name="coco", model="org/one", seed=0):
    """A run folder in which a chat model flags these pairs, ``{(image, category): bool}``."""
    folder.mkdir(parents=True)
    table = pd.DataFrame(list(flags), columns=["image", "category"])
    table.assign(flagged_chat=list(flags.values())).to_parquet(folder / "division.parquet")
    about = {
        "annotations": {"name": name},
        "division": {**RULE, "pairs": {"id": len(flags)}},
        "image_text": {"chat": {"chat": {"model": model, "seed": seed}}},
    }
    (folder / "manifest.json").write_text(json.dumps(about))
    return str(folder)


@pytest.fixture
def pairs():
    rows = [(1, "cat", "ood_h"), (1, "dog", "ood_s"), (2, "cat", "id"), (2, "zebra", "id")]
    return pd.DataFrame(rows, columns=["image", "category", "split"])


def test_pairs_are_found_by_image_and_category_and_what_is_not_there_is_never_flagged(
    tmp_path, pairs
):
    flags = {(2, "cat"): True, (1, "dog"): False, (1, "cat"): True, (9, "cat"): True}
    found = division_flags([divided(tmp_path / "a" / "0", flags)], pairs)
    assert {name: each.tolist() for name, each in found.items()} == {
        "one": [True, False, True, False]
    }


def test_models_of_one_name_are_told_apart_and_a_run_given_twice_counts_once(tmp_path, pairs):
    flags = dict.fromkeys([(1, "cat"), (1, "dog")], True)
    first, second = (divided(tmp_path / n / "0", flags, seed=k) for k, n in enumerate("ab"))
    assert list(division_flags([first, second], pairs)) == ["one (a)", "one (b)"]
    other = divided(tmp_path / "a" / "1", flags, seed=2)
    assert list(division_flags([first, other], pairs)) == ["one (a/0)", "one (a/1)"]
    assert list(division_flags([first, first], pairs)) == ["one"]


def test_runs_of_a_model_on_several_data_sets_go_together(tmp_path, pairs):
    pooled = pd.concat(
        pairs.assign(image=[f"{name}/{image}" for image in pairs["image"]], dataset=name)
        for name in ("coco", "lvis")
    )
    runs = [
        divided(tmp_path / name, {(1, "cat"): name == "lvis", (1, "dog"): True}, name)
        for name in ("coco", "lvis")
    ]
    found = division_flags(runs, pooled)["one"]
    assert found.tolist() == [False, True, False, False, True, True, False, False]
    with pytest.raises(UserError, match=r"no pair of \('lvis/1', 'cat'\)"):
        division_flags(runs[:1], pooled)
