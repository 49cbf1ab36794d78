"""Purification, the two cases, and the splits."""

import logging

import numpy as np
import pandas as pd
import pytest

from ood_lab.common.errors import UserError
from ood_lab.lvlm.annotations.image_contents import ImageLabels
from ood_lab.lvlm.benchmarks.oodbench.division import (
    Rule,
    audited,
    divide,
    read_ood_pairs,
    without_rejected,
    write_audit,
)
from ood_lab.lvlm.benchmarks.oodbench.question_pairs import Pairing
from ood_lab.lvlm.image_text.base import purified


def labels(present):
    present = np.asarray(present, bool)
    names = tuple(f"c{i}" for i in range(present.shape[1]))
    return ImageLabels(tuple(range(len(present))), names, present)


@pytest.fixture(scope="module")
def random_case():
    rng = np.random.default_rng(0)
    return rng.normal(0, 3, (200, 22)), labels(rng.random((200, 22)) < 0.2)


def test_purified_is_a_softmax_over_the_label_and_what_is_absent(random_case):
    scores, known = random_case
    found = purified(scores, known.present, known.absent)
    assert np.isnan(found[~known.present]).all()
    for row, column in zip(*np.nonzero(known.present[:20]), strict=True):
        absent = np.exp(scores[row][known.absent[row]]).sum()
        own = np.exp(scores[row, column])
        assert found[row, column] == pytest.approx(own / (own + absent))


def test_the_two_cases_and_how_they_go_together():
    # One image with a main object (4), a minor one (0), and absent labels of 1 and 2.
    scores, known = np.array([[4.0, 0.0, 1.0, 2.0]]), labels([[1, 1, 0, 0]])
    chances = purified(scores, known.present, known.absent)[0]
    assert chances[:2] == pytest.approx([0.844, 0.0900], abs=1e-3)

    def flags(case1, combine, threshold):
        rule = Rule(case1=case1, combine=combine, threshold=threshold)
        return rule.flags(scores, known)[0].tolist()[:2]

    assert flags("per_label", "or", 0.05) == [False, True]
    assert flags("all_labels", "or", 0.05) == [False, False]
    assert flags("all_labels", "or", 0.1) == [False, True]
    assert flags("per_label", "and", 0.05) == [False, False]
    assert flags("per_label", "and", 0.1) == [False, True]
    # The main object is recognised, so all_labels and "and" flag nothing whatever T.
    assert flags("all_labels", "and", 0.99) == [False, False]


@pytest.mark.parametrize("scale", [0.01, 1.0, 100.0])
def test_per_label_with_or_does_not_depend_on_t_below_one_in_n(random_case, scale):
    scores, known = random_case
    n = len(known.categories)
    found = [
        Rule(case1="per_label", combine="or", threshold=t).flags(scale * scores, known)
        for t in (1e-6, 0.005, 0.01, 0.999 / n)
    ]
    assert all((flags == found[0]).all() for flags in found)
    others = [
        Rule(case1="all_labels", combine="or", threshold=t).flags(scores, known)
        for t in (0.005, 0.04)
    ]
    assert (others[0] != others[1]).any()


@pytest.mark.parametrize("case1", ["all_labels", "per_label"])
def test_case_1_alone_does_not_depend_on_the_scale(random_case, case1):
    scores, known = random_case
    tiny = Rule(case1=case1, combine="or", threshold=1e-300)
    assert (tiny.flags(scores, known) == tiny.flags(7 * scores, known)).all()


def test_hard_pairs_are_flagged_by_all_simple_ones_by_some(random_case):
    scores, known = random_case
    rng = np.random.default_rng(1)
    models = {name: scores + rng.normal(0, 2, scores.shape) for name in "abc"}
    rule = Rule()
    table = divide(models, known, rule)
    verdicts = table[[f"flagged_{name}" for name in models]].sum(axis=1)
    expected = np.select([verdicts == 3, verdicts > 0], ["ood_h", "ood_s"], "id")
    assert (table["split"] == expected).all()
    assert set(table["split"]) == {"id", "ood_s", "ood_h"}
    assert len(table) == known.present.sum()
    # Another model can only take pairs out of the intersection.
    fewer = divide({"a": models["a"], "b": models["b"]}, known, rule)
    hard = fewer["split"] == "ood_h"
    assert hard[table["split"] == "ood_h"].all()
    assert hard.sum() > (table["split"] == "ood_h").sum()


def test_scores_without_a_scale_flag_everything_and_are_warned_of(random_case, caplog):
    """BLIP-2's bare cosines: a softmax over 22 labels gives none of them 0.1."""
    _, known = random_case
    cosines = np.random.default_rng(0).uniform(0.1, 0.4, known.present.shape)
    with caplog.at_level(logging.WARNING):
        table = divide({"blip2": cosines}, known, Rule(threshold=0.1))
    assert (table["split"] == "ood_h").all()
    assert "blip2" in caplog.text
    assert "another scale" in caplog.text


def test_no_model_and_broken_scores_are_errors(random_case):
    _, known = random_case
    with pytest.raises(UserError, match="image_text"):
        divide({}, known, Rule())
    with pytest.raises(UserError, match="not finite"):
        divide({"a": np.full(known.present.shape, np.nan)}, known, Rule())


@pytest.mark.parametrize(
    ("initial", "kept"), [(7972, 6000), (10160, 6000), (13284, 6000), (2436, 2436), (3836, 3836)]
)
def test_cells_are_cut_to_6000_questions_by_whole_pairs(initial, kept):
    """The paper's COCO, LVIS and Cityscapes cells; questions are two a pair."""
    known = labels(np.ones((initial // 2, 1)))
    table = pd.DataFrame(
        {"image": range(initial // 2), "category": "c0", "p_a": 0.0, "split": "ood_h"}
    )
    drawn = Pairing().draw(table, known, seed=0)
    assert 2 * (drawn["split"] == "ood_h").sum() == kept
    assert not drawn.duplicated(["image", "category"]).any()


@pytest.mark.parametrize("id_pairing", ["any", "present", "balanced"])
def test_id_pairs_are_in_no_ood_split_and_known_by_the_annotation(random_case, id_pairing):
    scores, known = random_case
    table = divide({"a": scores}, known, Rule())
    drawn = Pairing(id_pairing=id_pairing, id_pairs=60).draw(table, known, seed=3)
    chosen = drawn[drawn["split"] == "id"]
    assert len(chosen) == 60
    assert not drawn.duplicated(["image", "category"]).any()
    columns = [int(name[1:]) for name in chosen["category"]]
    truth = known.present[chosen["image"].to_numpy(), columns].tolist()
    assert chosen["present"].tolist() == truth
    assert {"any": 0 < sum(truth) < 30, "present": all(truth), "balanced": sum(truth) == 30}[
        id_pairing
    ]
    again = Pairing(id_pairing=id_pairing, id_pairs=60).draw(table, known, seed=3)
    pd.testing.assert_frame_equal(drawn, again)


def test_audit_goes_out_and_comes_in_again(random_case, tmp_path):
    scores, known = random_case
    table = divide({"a": scores}, known, Rule())
    file, again = tmp_path / "audit.csv", tmp_path / "again.csv"
    files = {image: f"{image}.png" for image in known.images}
    write_audit(audited(table, None), files, file)
    audit = pd.read_csv(file, keep_default_na=False)
    assert len(audit) == (table["split"] != "id").sum()
    assert set(audit["verdict"]) == {""}
    audit.loc[[0, 5], "verdict"] = ["Reject", "accept"]
    audit.to_csv(file, index=False)
    checked = audited(table, file)
    left = without_rejected(checked)
    key = ["image", "category"]
    both = table.merge(left[key], on=key, how="outer", indicator=True)
    gone = both.loc[both["_merge"] == "left_only", key]
    assert gone.to_numpy().tolist() == [[audit["image"][0], audit["category"][0]]]
    # The verdicts stay with the run, and what reads its pairs finds no rejected one.
    write_audit(checked, files, again)
    assert audited(table, again).equals(checked)
    pairs = read_ood_pairs(again, "task.train")
    assert len(pairs) == len(audit) - 1
    assert (str(audit["image"][0]), audit["category"][0]) not in set(
        zip(pairs["image"], pairs["category"], strict=True)
    )


@pytest.mark.parametrize("id_pairing", ["any", "present", "balanced"])
def test_rejected_pairs_are_in_no_split(random_case, tmp_path, id_pairing):
    scores, known = random_case
    table = divide({"a": scores}, known, Rule())
    ood = table[table["split"] != "id"]
    file = tmp_path / "audit.csv"
    ood[["image", "category"]].assign(verdict="reject").to_csv(file, index=False)
    left = without_rejected(audited(table, file))
    drawn = Pairing(id_pairing=id_pairing, id_pairs=2000, most_pairs=None).draw(left, known, seed=0)
    rejected = set(zip(ood["image"], ood["category"], strict=True))
    assert rejected
    assert not rejected & set(zip(drawn["image"], drawn["category"], strict=True))


@pytest.mark.parametrize(
    ("column", "value", "message"),
    [("verdict", "maybe", "line 2: the verdict is 'maybe'"), ("category", "x", "no pair of image")],
)
def test_wrong_audits_are_errors(random_case, tmp_path, column, value, message):
    scores, known = random_case
    table = divide({"a": scores}, known, Rule())
    file = tmp_path / "audit.csv"
    write_audit(audited(table, None), dict.fromkeys(known.images, ""), file)
    audit = pd.read_csv(file, keep_default_na=False)
    audit.loc[0, column] = value
    audit.to_csv(file, index=False)
    with pytest.raises(UserError, match=message):
        audited(table, file)


def test_what_is_no_table_is_no_audit(random_case, tmp_path):
    scores, known = random_case
    (tmp_path / "README.md").write_text("# Read me")
    with pytest.raises(UserError, match="is no CSV: give the audit"):
        audited(divide({"a": scores}, known, Rule()), tmp_path / "README.md")
