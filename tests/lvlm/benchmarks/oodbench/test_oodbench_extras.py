"""Doubt, and overlap of the errors of models."""

import numpy as np
import pandas as pd
import pytest

from ood_lab.common.random_streams import Resampling
from ood_lab.lvlm.benchmarks.oodbench.division import SPLITS, TOGETHER
from ood_lab.lvlm.scoring.uncertainty import doubt, uncertainty_rows
from ood_lab.lvlm.statistics.model_tables import add_errors
from ood_lab.lvlm.statistics.statistic_tables import Findings
from ood_lab.metrics.resampling.clustered_bootstrap import Clustered, contrast


def judged(p_yes, correct, split):
    n = len(p_yes)
    return pd.DataFrame(
        {
            "pair_id": [str(i // 2) for i in range(n)],
            "task": "yes_no",
            "status": "parsed",
            "cut": False,
            "correct": correct,
            "split": split,
            "p_yes": p_yes,
        }
    )


def test_doubt_is_largest_where_yes_and_no_are_alike():
    assert doubt(np.array([0.0, 0.5, 0.9])) == pytest.approx([0.0, 0.5, 0.1])


def test_one_split_is_all_of_them_and_pairs_are_resampled():
    p_yes = np.array([0.99, 0.01] * 10 + [0.6, 0.4] * 10)
    correct = np.array([True] * 17 + [False] * 11 + [True] * 12)
    rows = pd.DataFrame(
        uncertainty_rows(
            judged(p_yes, correct, ["id"] * 40),
            SPLITS,
            TOGETHER,
            "id",
            resampling=Resampling(draws=100),
        )
    )
    found = rows[rows["split"] == "id_and_ood"].set_index("metric")
    wrong = doubt(p_yes)[~correct]
    expected = np.mean(wrong[:, None] - doubt(p_yes)[correct] > 0) + 0.5 * np.mean(
        wrong[:, None] == doubt(p_yes)[correct]
    )
    assert found.loc["auroc_errors", "value"] == pytest.approx(expected)
    assert found.loc["auroc_errors", "ci_low"] < expected < found.loc["auroc_errors", "ci_high"]
    own = rows[rows["split"] == "id"].set_index("metric")
    pd.testing.assert_frame_equal(own.drop(columns="split"), found.drop(columns="split"))
    assert (found["n"] == 20).all()  # pairs are what is resampled
    assert (found["n_asked"] == 40).all()


def test_a_model_that_doubts_its_errors_and_ood_pairs_knows():
    p_yes = np.array([0.99, 0.01] * 20 + [0.6, 0.4] * 20)
    correct = [True] * 40 + [False] * 30 + [True] * 10
    table = judged(p_yes, correct, ["id"] * 40 + ["ood_h"] * 40)
    rows = pd.DataFrame(
        uncertainty_rows(table, SPLITS, TOGETHER, "id", resampling=Resampling(draws=50))
    )
    found = rows.set_index(["split", "metric"])
    assert found.loc[("ood_h", "auroc_ood"), "value"] == 1.0
    errors = found.loc[("id_and_ood", "auroc_errors")]
    assert errors["value"] == pytest.approx(0.8 + 0.2 / 2)
    assert errors["ci_low"] < 0.9 < errors["ci_high"]
    assert set(rows["split"]) == {"id", "ood_h", "id_and_ood"}
    assert set(rows.loc[rows["metric"] == "auroc_ood", "split"]) == {"ood_h"}
    # No ID answer is wrong: there is nothing to tell apart.
    assert np.isnan(found.loc[("id", "auroc_errors"), "value"])
    assert not list(
        uncertainty_rows(table.assign(p_yes=None), SPLITS, TOGETHER, "id", resampling=Resampling())
    )


def test_p_values_of_differences_are_bounded_by_the_draws():
    """A normal approximation says 2.4e-62 of 200 draws; they cannot tell that from 1 in 201."""
    drawn = np.stack([np.full(200, 0.9), np.full(200, 0.5)])
    drawn += np.random.default_rng(0).normal(0, 0.01, drawn.shape)
    table = contrast(["a", "b"], Clustered({"f1": np.array([0.9, 0.5])}, {"f1": drawn}, 100))
    assert table["p_value"].iloc[0] == pytest.approx(1 / 201)
    missing = contrast(["a", "b"], Clustered({"f1": np.array([np.nan, 0.5])}, {"f1": drawn}, 100))
    assert np.isnan(missing["p_value"].iloc[0])


def test_how_many_models_err_and_who_errs_with_whom():
    wrong = {
        "a": np.array([1, 1, 0, 0, 1], bool),
        "b": np.array([0, 1, 1, 0, 0], bool),
        "c": np.zeros(5, bool),
    }
    results = Findings()
    add_errors(results, wrong)
    counts = results.tables["wrong_by"]
    assert counts["questions"].tolist() == [1, 3, 1, 0]
    assert counts["at_least"].tolist() == pytest.approx([1, 0.8, 0.2, 0])
    assert results.tables["errors"]["errors"].tolist() == [3, 2, 0]
    both = results.tables["errors_together"].set_index(["model", "other"])
    assert both.loc[("a", "b"), ["both", "share", "chance"]].tolist() == [1, 1 / 3, 2 / 5]
    assert both.loc[("b", "a"), ["both", "share", "chance"]].tolist() == [1, 1 / 2, 3 / 5]
    assert np.isnan(both.loc[("c", "a"), "share"])  # it errs nowhere
