"""How far whole sets are: the share of their images beyond those of ID test, with its interval."""

import numpy as np
import pandas as pd
import pytest

from ood_lab.evaluation.distance import summarised
from ood_lab.report.answer import distance_sentences


def degrees_of(sets, seed=0):
    """A table of degrees: name -> shift in standard deviations, number of images."""
    rng = np.random.default_rng(seed)
    parts = [
        pd.DataFrame(
            {
                "dataset": name,
                "path": [f"{name}/{i}.png" for i in range(n)],
                "semantic": rng.normal(shift, 1, n),
            }
        )
        for name, (shift, n) in sets.items()
    ]
    return pd.concat(parts, ignore_index=True)


def shares_of(degrees, draws=400):
    table = summarised(degrees, draws=draws, seed=0, axes=["semantic"]).set_index("set")
    return table.filter(regex="beyond|farther")


def test_share_of_images_beyond_those_of_id_test():
    degrees = degrees_of({"test": (0, 301), "near": (0.3, 140), "far": (3, 120)})
    shares = shares_of(degrees)
    values = degrees.groupby("dataset")["semantic"].apply(np.asarray)
    edge = np.sort(values["test"])[int(np.ceil(0.95 * 301)) - 1]
    for name in ("near", "far"):
        assert shares["beyond"][name] == pytest.approx(np.mean(values[name] > edge))
        pairs = np.mean(values[name][:, None] > values["test"])
        assert shares["farther"][name] == pytest.approx(pairs)
        for metric in ("beyond", "farther"):
            low, value, high = (shares[metric + end][name] for end in ("_low", "", "_high"))
            assert low < value < high
    assert shares.loc["test"].isna().all()


@pytest.mark.parametrize("n", [12, 30, 200])
def test_a_set_without_shift_is_rarely_farther_than_chance(n):
    found = [
        shares_of(degrees_of({"test": (0, n), "same": (0, n)}, seed), draws=200).loc["same"]
        for seed in range(60)
    ]
    # 2.5% are expected at most
    assert np.mean([of["beyond_low"] > 0.05 for of in found]) <= 0.1
    assert np.mean([of["farther_low"] > 0.5 for of in found]) <= 0.1


def test_copies_of_a_photograph_do_not_make_a_share_more_certain():
    degrees = degrees_of({"test": (0, 150), "far": (1.6, 150)})
    degrees["made_of"] = None
    alone = shares_of(degrees).loc["far"]
    five = pd.concat([degrees, *[degrees[degrees["dataset"] == "far"]] * 4], ignore_index=True)
    five["made_of"] = five["path"].where(five["dataset"] == "far")
    copied = shares_of(five).loc["far"]
    assert copied["beyond"] == alone["beyond"]
    width = [of["beyond_high"] - of["beyond_low"] for of in (alone, copied)]
    assert width[1] == pytest.approx(width[0], rel=0.2)


def sentences_of(sets, seed=0):
    summary = summarised(degrees_of(sets, seed), draws=200, seed=0, axes=["semantic"])
    return distance_sentences(summary, {"semantic": "in meaning"})


def test_sentences_tell_chance_from_distance():
    n = 400
    first, *more = sentences_of({"test": (0, n), "same": (0, n), "near": (0.5, n), "far": (4, n)})
    assert first.startswith("same is not significantly farther in meaning (")
    assert "% of its images lie beyond 95% of your test images)" in first
    assert [sentence.split(" (")[0] for sentence in more] == [
        "near is near in meaning",
        "far is far in meaning",
    ]
    (alone,) = sentences_of({"test": (0, n), "a": (0, n), "b": (0, n)})
    assert alone.startswith("Neither OOD set is significantly farther in meaning (")
    assert sentences_of({"test": (0, n), "a": (4, n), "b": (4, n)}) == [
        "Both OOD sets are far in meaning (99% of their images lie beyond 95% of your test images)."
    ]


def test_sentences_say_how_uncertain_few_images_make_a_share():
    sets = {"test": (0, 24), "a": (0, 60), "b": (0, 60), "c": (0, 60)}
    first, last = sentences_of(sets)
    assert first.startswith("None of the 3 OOD sets is significantly farther in meaning (")
    assert last.startswith("With 24 ID test images these shares are rough: it takes 72")
    sets = {"test": (0, 200), "a": (1.6, 30), "b": (1.6, 200)}
    _, last = sentences_of(sets)
    of_a = shares_of(degrees_of(sets), draws=200).loc["a"]
    half = 100 * (of_a["beyond_high"] - of_a["beyond_low"]) / 2
    assert last == f"With 30 images in the smallest set, a share may be off by {half:.0f} points."


def test_a_far_set_is_called_so_with_few_images():
    (first, _) = sentences_of({"test": (0, 20), "far": (5, 15)})
    assert first.startswith("far is far in meaning (100% of its images lie beyond 95% of your")
