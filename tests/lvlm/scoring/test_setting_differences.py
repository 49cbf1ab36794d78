"""Differences between settings: of the pairs that both ask about, and of pairs of their own."""

import json

import numpy as np
import pandas as pd
import pytest

from ood_lab.common.random_streams import Resampling
from ood_lab.lvlm.benchmarks.oodbench.scoring import setting_differences
from ood_lab.lvlm.scoring.answer_differences import runs_by_model


def answers(right, first, split="ood_h"):
    """Both answers to each pair, of images from ``first`` on."""
    n = len(right)
    table = pd.DataFrame(
        {
            "pair_id": np.repeat([f"{first + k}/car" for k in range(n)], 2),
            "truth": np.tile(["yes", "no"], n),
            "correct": np.repeat(right, 2),
            "image": np.repeat(np.arange(first, first + n), 2),
        }
    )
    other = table["truth"].map({"yes": "no", "no": "yes"})
    return table.assign(
        parsed=table["truth"].where(table["correct"], other),
        task="yes_no", status="parsed", category="car", split=split,
    )  # fmt: skip


def of_accuracy(table):
    return table[table["metric"] == "accuracy"].iloc[0]


def test_the_first_setting_minus_the_others_with_both_kinds_of_pairs():
    rng = np.random.default_rng(0)
    first, second = rng.random(400) < 0.7, rng.random(300) < 0.8
    apart = {"I": answers(first, 0), "II": answers(second, 1000)}
    found = of_accuracy(setting_differences(apart, resampling=Resampling(draws=4000)))
    assert found["difference"] == pytest.approx(first.mean() - second.mean())
    # Of pairs that are not the same, variances add up: both answers of a pair are alike here.
    spread = np.sqrt(first.var() / 400 + second.var() / 300)
    assert found["ci_high"] - found["ci_low"] == pytest.approx(2 * 1.96 * spread, rel=0.08)
    # The very same pairs and answers differ by nothing, whatever is drawn.
    same = of_accuracy(
        setting_differences(
            {"I": answers(first, 0), "II": answers(first, 0)}, resampling=Resampling()
        )
    )
    assert (same["difference"], same["ci_low"], same["ci_high"]) == (0, 0, 0)
    # Half of the pairs are shared: only the other half can differ.
    half = {"I": answers(first[:200], 0), "II": answers(first[100:300], 100)}
    part = of_accuracy(setting_differences(half, resampling=Resampling(draws=4000)))
    only = np.sqrt((first[:100].var() + first[200:300].var()) * 100 / 200**2)
    assert part["ci_high"] - part["ci_low"] == pytest.approx(2 * 1.96 * only, rel=0.15)


def test_a_split_that_one_setting_lacks_is_left_out():
    both = answers(np.array([True, False]), 0, "id")
    more = pd.concat([both, answers(np.array([True, False]), 5, "ood_s")])
    found = setting_differences({"I": more, "II": both}, resampling=Resampling(draws=20))
    assert set(found["split"]) == {"id"}


def test_no_run_of_a_model_is_lost(tmp_path):
    runs = [tmp_path / "a" / "0", tmp_path / "a" / "1", tmp_path / "b" / "0"]
    for run in runs:
        run.mkdir(parents=True)
        (run / "manifest.json").write_text(json.dumps({"lvlm": {"model": "org/one"}}))
    assert list(runs_by_model("", runs)) == ["one", "one (a)", "one (b)"]
    assert list(runs_by_model("one", runs)) == ["one (a)", "one (a/1)", "one (b)"]
