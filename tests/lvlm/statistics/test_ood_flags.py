"""Models as detectors of OOD samples, against all orders that there are."""

from itertools import permutations

import numpy as np
import pandas as pd
import pytest

from ood_lab.common.random_streams import Resampling
from ood_lab.lvlm.statistics.ood_flags import (
    ANSWERS,
    DIVISION,
    flag_results,
    flag_sentences,
    flag_tables,
)


@pytest.fixture(scope="module")
def case():
    """Four models on 60 OOD samples and 30 of ID, about 45 images."""
    rng = np.random.default_rng(0)
    flags = {
        name: rng.random(90) < share
        for name, share in zip("abcd", (0.2, 0.5, 0.35, 0.05), strict=True)
    }
    splits = ["id"] * 30 + ["ood_s"] * 20 + ["ood_h"] * 40
    images = [str(n // 2) for n in range(90)]
    pairs = pd.DataFrame({"split": splits, "image": images})
    results = flag_results(flags, pairs, by=ANSWERS, resampling=Resampling(draws=200))
    return flags, pairs, results


def unions(results, part):
    rows = results[results["part"] == part].sort_values("n_models")
    return rows["value"].to_numpy()


def test_one_shot_is_the_share_of_a_split(case):
    flags, pairs, results = case
    table = flag_tables(results)["flags"].set_index("model")
    for name, flagged in flags.items():
        for split in ("id", "ood_s", "ood_h"):
            assert table.loc[name, split] == pytest.approx(flagged[pairs["split"] == split].mean())
        assert table.loc[name, "ood"] == pytest.approx(flagged[30:].mean())


def test_unions_of_the_given_and_the_best_order(case):
    flags, _, results = case
    found = {
        order: [np.any([flags[m][30:] for m in order[:k]], axis=0).mean() for k in range(1, 5)]
        for order in permutations(flags)
    }
    assert unions(results, "given order") == pytest.approx(found["a", "b", "c", "d"])
    best = unions(results, "best order")
    assert best[0] == max(values[0] for values in found.values())
    rows = results[results["part"] == "best order"].sort_values("n_models")
    order = tuple(rows["model"])
    assert best == pytest.approx(found[order])
    for k in range(1, 4):  # no other model would have added more
        others = [
            np.any([flags[m][30:] for m in (*order[:k], each)], axis=0).mean() for each in order[k:]
        ]
        assert best[k] == pytest.approx(max(others))


def test_intervals_resample_images_and_are_exact_at_the_ends():
    flags = {"all": np.ones(20, bool), "none": np.zeros(20, bool)}
    pairs = pd.DataFrame({"split": "ood_h", "image": [str(n // 2) for n in range(20)]})
    results = flag_results(flags, pairs, by=ANSWERS, resampling=Resampling(draws=50))
    row = results.query("metric == 'flagged' and model == 'all' and split == 'ood'").iloc[0]
    assert (row["n"], row["unit"]) == (10, "image")
    assert (row["value"], row["ci_high"]) == (1, 1)
    assert row["ci_low"] == pytest.approx(0.025 ** (1 / 10))


def test_the_sentence_names_the_best_order(case):
    (sentence,) = flag_sentences(case[2])
    order = case[2][case[2]["part"] == "best order"].sort_values("n_models")["model"]
    assert [sentence.index(f"with {name}") for name in order] == sorted(
        sentence.index(f"with {name}") for name in order
    )


def test_divisions_and_answers_are_one_table_with_unions_of_their_own(case):
    flags, pairs, answers = case
    opposite = {name: ~flagged for name, flagged in flags.items()}
    divided = flag_results(opposite, pairs, by=DIVISION, resampling=Resampling(draws=20))
    both = pd.concat([answers, divided], ignore_index=True)
    tables = flag_tables(both)
    assert list(tables["flags"]["flagged_by"]) == ["wrong answers"] * 4 + ["own division"] * 4
    shares = tables["flags"].set_index(["flagged_by", "model"])
    for name in flags:
        sums = [shares.loc[by, name]["ood"] for by in ("wrong answers", DIVISION)]
        assert sum(sums) == pytest.approx(1)
    union = tables["flags_union"].query("order == 'given order'")
    for _, rows in union.groupby("flagged_by"):
        assert rows["gain"].cumsum().to_list() == pytest.approx(rows["union"].to_list())
    assert ["wrong" in said for said in flag_sentences(both)] == [True, False]
