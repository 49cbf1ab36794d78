"""Causes of a shift: what tells datasets from ID test, and images that are alike in it."""

import numpy as np
import pandas as pd
import pytest
from scipy import stats
from scipy.sparse import csr_matrix
from scipy.sparse.csgraph import maximum_bipartite_matching

from ood_lab.common.random_streams import Resampling
from ood_lab.metrics import auroc, causes_of, matched_aurocs, named_causes
from ood_lab.metrics.causes import matched_rows

NAMES = [f"s{i}" for i in range(11)]


def table(inside, outside, **more):
    values = np.concatenate([inside, outside])
    found = pd.DataFrame(values, columns=NAMES[: values.shape[1]])
    found.insert(0, "dataset", ["test"] * len(inside) + ["mine"] * len(outside))
    found.insert(1, "index", [*range(len(inside)), *range(len(outside))])
    return found.assign(**more)


def test_the_strongest_cause_is_first_with_its_rank_test():
    rng = np.random.default_rng(0)
    inside, outside = rng.normal(size=(40, 3)), rng.normal((0.2, -2, 1.5), size=(50, 3))
    found = causes_of(table(inside, outside), NAMES[:3], resampling=Resampling(draws=200))
    assert list(found["statistic"]) == ["s1", "s2", "s0"]
    test = stats.mannwhitneyu(outside[:, 1], inside[:, 1])
    first = found.iloc[0]
    assert first["value"] == pytest.approx(test.statistic / 2000)
    assert auroc(inside[:, 1], outside[:, 1]) == pytest.approx(first["value"])
    assert first["p_holm"] == pytest.approx(3 * test.pvalue, rel=1e-6)
    assert first["ci_low"] < first["value"] < first["ci_high"]
    assert list(named_causes(found)["statistic"]) == ["s1", "s2"]


@pytest.mark.parametrize("n", [20, pytest.param(60, marks=pytest.mark.slow)])
def test_halves_of_id_have_no_cause_in_19_of_20_draws(n):
    rng = np.random.default_rng(n)
    mixing = rng.normal(size=(11, 11))
    wrong = 0
    for seed in range(100):
        both = rng.standard_t(4, size=(2 * n, 11)) @ mixing
        wrong += (
            len(
                named_causes(
                    causes_of(
                        table(both[:n], both[n:]), NAMES, resampling=Resampling(draws=2, seed=seed)
                    )
                )
            )
            > 0
        )
    assert wrong <= stats.binom.ppf(0.999, 100, 0.05)


def test_copies_of_the_id_photographs_are_compared_photograph_by_photograph():
    rng = np.random.default_rng(0)
    inside = rng.normal(size=(40, 1))
    images = table(inside, inside + 0.2, path=[*map(str, range(40)), *(f"{i}#" for i in range(40))])
    alone = causes_of(images, NAMES[:1], resampling=Resampling(draws=50))
    images["made_of"] = [None] * 40 + [str(i) for i in range(40)]
    together = causes_of(images, NAMES[:1], resampling=Resampling(draws=50))
    assert together["p_holm"][0] < 0.001 < alone["p_holm"][0]


def test_what_is_unknown_or_constant_is_no_statistic():
    images = table(np.zeros((10, 1)), np.zeros((10, 1)), gone=np.nan)
    assert causes_of(images, ["s0", "gone"], resampling=Resampling()).empty


def test_pairs_of_matched_images_are_alike_and_as_many_as_there_can_be():
    rng = np.random.default_rng(0)
    inside, outside = rng.normal(size=30), rng.normal(size=25) + 1
    i, j = matched_rows(inside, outside)
    caliper = 0.2 * np.sqrt((inside.var() + outside.var()) / 2)
    assert len(set(i)) == len(i) == len(set(j))
    assert (np.abs(inside[i] - outside[j]) <= caliper).all()
    near = csr_matrix(np.abs(inside[:, None] - outside) <= caliper)
    assert len(i) == (maximum_bipartite_matching(near) >= 0).sum()


def test_a_detector_of_exposure_finds_nothing_among_images_alike_in_it():
    rng = np.random.default_rng(0)
    inside, outside = rng.normal(size=(300, 1)), rng.normal(size=(300, 1)) + 1
    images = table(inside, outside)
    causes = causes_of(images, NAMES[:1], resampling=Resampling(draws=50))
    scores = images[["dataset", "index"]].assign(
        shortcut=images["s0"], real=[0.0] * 300 + [1.0] * 300
    )
    found = {
        d: matched_aurocs(causes, images, scores, d, resampling=Resampling(draws=200, seed=0)).iloc[
            0
        ]
        for d in ("shortcut", "real")
    }
    assert found["real"]["value"] == 1
    assert found["shortcut"]["value"] < 0.6 < causes["value"][0]
    assert found["shortcut"]["ci_low"] <= 0.5
    far = table(inside, outside + 100)
    apart = matched_aurocs(
        causes, far, scores, "real", resampling=Resampling(draws=50, seed=0)
    ).iloc[0]
    assert apart["n"] == 0
    assert np.isnan(apart["value"])
