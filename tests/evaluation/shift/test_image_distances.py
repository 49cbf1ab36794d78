"""How far whole sets are: the share of their images beyond those of ID test, with its interval."""

import numpy as np
import pandas as pd
import pytest

from ood_lab.common.random_streams import Resampling
from ood_lab.evaluation.shift.image_distances import summarised


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
    table = summarised(
        degrees, resampling=Resampling(draws=draws, seed=0), axes=["semantic"]
    ).set_index("dataset")
    return table.filter(regex="frac_above_id_q95|distance_auroc")


def test_share_of_images_beyond_those_of_id_test():
    degrees = degrees_of({"test": (0, 301), "near": (0.3, 140), "far": (3, 120)})
    shares = shares_of(degrees)
    values = degrees.groupby("dataset")["semantic"].apply(np.asarray)
    edge = np.sort(values["test"])[int(np.ceil(0.95 * 301)) - 1]
    for name in ("near", "far"):
        assert shares["frac_above_id_q95"][name] == pytest.approx(np.mean(values[name] > edge))
        pairs = np.mean(values[name][:, None] > values["test"])
        assert shares["distance_auroc"][name] == pytest.approx(pairs)
        for metric in ("frac_above_id_q95", "distance_auroc"):
            low, value, high = (shares[metric + end][name] for end in ("_low", "", "_high"))
            assert low < value < high
    assert shares.loc["test"].isna().all()


@pytest.mark.slow
@pytest.mark.parametrize("n", [12, 30, 200])
def test_a_set_without_shift_is_rarely_farther_than_chance(n):
    found = [
        shares_of(degrees_of({"test": (0, n), "same": (0, n)}, seed), draws=200).loc["same"]
        for seed in range(60)
    ]
    # 2.5% are expected at most
    assert np.mean([of["frac_above_id_q95_low"] > 0.05 for of in found]) <= 0.1
    assert np.mean([of["distance_auroc_low"] > 0.5 for of in found]) <= 0.1


def test_copies_of_a_photograph_do_not_make_a_share_more_certain():
    degrees = degrees_of({"test": (0, 150), "far": (1.6, 150)})
    degrees["made_of"] = None
    alone = shares_of(degrees).loc["far"]
    five = pd.concat([degrees, *[degrees[degrees["dataset"] == "far"]] * 4], ignore_index=True)
    five["made_of"] = five["path"].where(five["dataset"] == "far")
    copied = shares_of(five).loc["far"]
    assert copied["frac_above_id_q95"] == alone["frac_above_id_q95"]
    width = [of["frac_above_id_q95_high"] - of["frac_above_id_q95_low"] for of in (alone, copied)]
    assert width[1] == pytest.approx(width[0], rel=0.2)
