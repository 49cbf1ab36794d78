"""Do the 95% intervals of small sets hold 95%? Simulated through the results table.

Every column of scores is a sample of its own, so that one evaluation of many detectors is many
repetitions of the experiment.
"""

import numpy as np
import pandas as pd
import pytest
from scipy import stats

from ood_lab.metrics import FEWEST, Evaluation, aupr, results_of

REPETITIONS = 400
MANY = 400
NAMES = [f"r{i}" for i in range(REPETITIONS)]
Z = stats.norm.ppf(0.95)


def repetitions(n_id, shifts, spread=1.0, seed=0, cells=None):
    """The results of one evaluation: OOD sets of ``(n, shift)``, or one set of such cells."""
    rng = np.random.default_rng(seed)

    def frame(name, scores, **levels):
        head = pd.DataFrame({"dataset": [name] * len(scores), **levels})
        return pd.concat([head, pd.DataFrame(scores, columns=NAMES)], axis=1)

    parts = [frame("test", rng.normal(size=(n_id, REPETITIONS)))]
    for place, (n, shift) in enumerate(shifts):
        scores = rng.normal(shift, spread, (n, REPETITIONS))
        levels = {"semantic_level": 0, "covariate_level": place} if cells else {}
        parts.append(frame("grid" if cells else f"s{place}", scores, **levels))
    scores = pd.concat(parts, ignore_index=True)
    return results_of(Evaluation(scores, NAMES, n_bootstrap=250), "m")


def truth(metric, shift, spread=1.0):
    if metric == "auroc":
        return stats.norm.cdf(shift / np.hypot(1, spread))
    if metric == "fpr95_id_positive":
        return stats.norm.cdf((Z - shift) / spread)
    return stats.norm.sf(shift - spread * Z)


def coverage(rows, true):
    """Share of the intervals that hold the truth; None where there is no interval."""
    known = rows.dropna(subset=["ci_low", "ci_high"])
    if known.empty:
        return None
    hits = (known["ci_low"] <= true + 1e-12) & (true - 1e-12 <= known["ci_high"])
    # No interval at all is none that misses.
    return (hits.sum() + len(rows) - len(known)) / len(rows)


CASES = [(1.0, 1.0), (2.5, 2.0), (4.0, 1.0)]


@pytest.mark.slow
@pytest.mark.parametrize("n", [1, 2, 5, 10, 30, 100])
@pytest.mark.parametrize("small", ["ood", "id", "both"])
@pytest.mark.parametrize(("shift", "spread"), CASES)
def test_intervals_of_small_sets_cover_the_truth(n, small, shift, spread):
    n_id, n_ood = {"ood": (MANY, n), "id": (n, MANY), "both": (n, n)}[small]
    table = results_of_sizes(n_id, n_ood, shift, spread)
    for metric in ("auroc", "fpr95_id_positive", "fpr95_ood_positive"):
        rows = table[(table["metric"] == metric) & (table["dataset"] == "s0")]
        assert len(rows) == REPETITIONS
        found = coverage(rows, truth(metric, shift, spread))
        if metric == "auroc" and n == 1:
            assert found is None  # one image has no spread
        else:
            # Two standard errors of 400 repetitions below 95%.
            assert found is None or found >= 0.93, (metric, found)
    for metric in ("aupr_in", "aupr_out"):
        rows = table[(table["metric"] == metric) & (table["dataset"] == "s0")]
        assert rows["ci_low"].notna().all() == (n >= FEWEST)


def results_of_sizes(n_id, n_ood, shift, spread):
    return repetitions(n_id, [(n_ood, shift)], spread)


@pytest.mark.slow
@pytest.mark.parametrize("n", [2, 5, 10, 30, 100])
def test_fpr95_intervals_say_something(n):
    """Wider than a bootstrap that misses, but not all of [0, 1]."""
    table = results_of_sizes(MANY, n, 1.0, 1.0)
    rows = table[table["metric"] == "fpr95_ood_positive"]
    assert rows["ci_low"].mean() > {2: 0.05, 5: 0.2}.get(n, 0.3)
    bounded = rows["ci_high"] < 1
    assert bounded.mean() == (n >= 72) or bounded.mean() > 0.9
    # The OOD images set no threshold here, they are counted.
    rows = table[table["metric"] == "fpr95_id_positive"]
    assert rows["ci_high"].mean() < 1


@pytest.mark.slow
@pytest.mark.parametrize("shift", [1.0, 2.5])
@pytest.mark.parametrize(("n_id", "n_ood"), [(1000, 100), (100, 1000), (100, 100)])
def test_aupr_intervals_from_100_images_on(shift, n_id, n_ood):
    rng = np.random.default_rng(1)
    many = 200_000
    sizes = many * n_id // min(n_id, n_ood), many * n_ood // min(n_id, n_ood)
    x, y = rng.normal(size=sizes[0]), rng.normal(shift, 1, sizes[1])
    table = results_of_sizes(n_id, n_ood, shift, 1.0)
    for metric in ("aupr_in", "aupr_out"):
        true = aupr(x, y, metric.removeprefix("aupr_"), "trapezoid")
        found = coverage(table[table["metric"] == metric], true)
        # Less than 95% where nearly all is in order: docs/results/uncertainty.md says so.
        assert found >= 0.88, (metric, found)


@pytest.mark.slow
@pytest.mark.parametrize("shift", [0.5, 1.5, 3.0])
@pytest.mark.parametrize(
    ("sizes", "cells"), [([30] * 6, True), ([10] * 3, True), ([300, 2, 40], False)]
)
def test_intervals_of_means_cover_the_truth(shift, sizes, cells):
    shifts = [shift + 0.1 * place for place in range(len(sizes))]
    table = repetitions(MANY, list(zip(sizes, shifts, strict=True)), cells=cells)
    for metric in ("auroc", "fpr95_id_positive", "fpr95_ood_positive"):
        if cells:
            level = table["semantic_level"].notna() & table["covariate_level"].isna()
            rows = table[level & (table["metric"] == metric)]
        else:
            rows = table[table["metric"] == f"mean_{metric}"]
        assert len(rows) == REPETITIONS
        found = coverage(rows, np.mean([truth(metric, s) for s in shifts]))
        assert found is not None
        assert found >= 0.925, (metric, found)
