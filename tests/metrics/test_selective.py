"""Risk and coverage: against the definition, other implementations' formulas, and the bootstrap."""

import itertools

import numpy as np
import pandas as pd
import pytest

from ood_lab.metrics import (
    Evaluation,
    augrc,
    aurc,
    auroc,
    e_aurc,
    results_of,
    risk_coverage,
    selective_accuracy,
)
from ood_lab.metrics.selective import Ranked


def by_definition(failures):
    """Mean risk over the coverages 1/n .. 1, images in the order in which they are accepted."""
    errors = np.cumsum(failures)
    return float(np.mean(errors / np.arange(1, len(failures) + 1)))


def fd_shifts(scores, failures):
    """fd-shifts' legacy area: trapezoids between the coverages of distinct confidences."""
    coverage, risk = risk_coverage(scores, failures)
    # It lists them from coverage 1 down to 0, where the risk stays what it was.
    c, r = np.append(0.0, coverage), np.append(risk[0], risk)
    return float(np.sum(np.diff(c) * (r[1:] + r[:-1]) / 2))


def test_small_case_by_hand():
    # Accepted in the order right, wrong, right, wrong: risks 0, 1/2, 1/3, 1/2.
    assert aurc([1, 2, 3, 4], [0, 1, 0, 1]) == pytest.approx((0 + 1 / 2 + 1 / 3 + 1 / 2) / 4)
    # The best order has 0, 0, 1/3, 1/2.
    assert e_aurc([1, 2, 3, 4], [0, 1, 0, 1]) == pytest.approx(1 / 2 / 4)
    assert e_aurc([1, 3, 2, 4], [0, 1, 0, 1]) == pytest.approx(0)
    assert aurc([1, 2], [0, 0]) == e_aurc([1, 2], [1, 1]) == 0


def test_ties_are_the_mean_over_all_orders():
    scores, failures = [1, 1, 1, 2, 2], [1, 0, 0, 1, 0]
    orders = [
        [failures[i] for i in (*first, *second)]
        for first in itertools.permutations(range(3))
        for second in itertools.permutations(range(3, 5))
    ]
    expected = np.mean([by_definition(order) for order in orders])
    assert aurc(scores, failures) == pytest.approx(expected)
    assert aurc([7] * 5, failures) == pytest.approx(2 / 5)  # no information: the overall risk


def test_against_the_formulas_of_others():
    rng = np.random.default_rng(0)
    failures = rng.random(4000) < 0.2
    scores = rng.normal(failures * 1.2, 1)
    order = np.argsort(scores)
    assert aurc(scores, failures) == pytest.approx(by_definition(failures[order]), rel=1e-12)
    assert aurc(scores, failures) == pytest.approx(fd_shifts(scores, failures), abs=2e-4)
    r = failures.mean()
    limit = aurc(scores, failures) - (r + (1 - r) * np.log(1 - r))  # arXiv 1805.08206
    assert e_aurc(scores, failures) == pytest.approx(limit, abs=2e-4)


def over_thresholds(scores, failures):
    """AUGRC from every threshold: trapezoids over (share accepted, share accepted and wrong)."""
    points = [(0.0, 0.0)]
    for t in np.unique(scores):
        accepted = scores <= t
        points.append((accepted.mean(), (accepted & failures).mean()))
    c, r = np.array(points).T
    return float(np.sum(np.diff(c) * (r[1:] + r[:-1]) / 2))


def test_generalised_risk_by_hand_and_at_chance():
    # Failures are accepted second and fourth of four: (2.5 + 0.5) / 16.
    assert augrc([1, 2, 3, 4], [0, 1, 0, 1]) == pytest.approx(3 / 16)
    assert augrc([7] * 5, [1, 0, 0, 1, 0]) == pytest.approx(2 / 5 / 2)  # half of the overall risk
    assert augrc([1, 2], [1, 1]) == pytest.approx(1 / 2)
    assert augrc([1, 2], [0, 0]) == 0


@pytest.mark.parametrize("steps", [4, 10_000])
def test_generalised_risk_over_thresholds_and_from_the_auroc(steps):
    rng = np.random.default_rng(3)
    failures = rng.random(500) < 0.3
    scores = np.round(rng.normal(failures * 0.8, 1) * steps)
    assert augrc(scores, failures) == pytest.approx(over_thresholds(scores, failures), rel=1e-12)
    r = failures.mean()  # equation of arXiv 2407.01032
    lost = 1 - auroc(scores[~failures], scores[failures])
    assert augrc(scores, failures) == pytest.approx(lost * r * (1 - r) + r**2 / 2, rel=1e-12)


def test_selective_accuracy_is_the_mean_over_all_orders_of_ties():
    scores, failures = [1, 1, 1, 2, 2], [1, 0, 0, 1, 0]
    orders = [
        [failures[i] for i in (*first, *second)]
        for first in itertools.permutations(range(3))
        for second in itertools.permutations(range(3, 5))
    ]
    # 0.2 x 5 is one image, 0.5 x 5 and 0.6 x 5 are three, 0.7 x 5 four.
    for coverage, k in ((0.2, 1), (0.5, 3), (0.6, 3), (0.7, 4), (1.0, 5)):
        expected = 1 - np.mean([np.mean(order[:k]) for order in orders])
        assert selective_accuracy(scores, failures, coverage) == pytest.approx(expected)
    assert selective_accuracy([3, 1, 2, 4], [1, 0, 0, 1], 0.5) == 1
    for outside in (0, 1.1):
        with pytest.raises(ValueError, match=r"coverage: expected a share in \(0, 1\]"):
            selective_accuracy(scores, failures, outside)


def test_counts_are_repeated_images():
    rng = np.random.default_rng(1)
    scores, failures = rng.integers(0, 9, 40), rng.random(40) < 0.4
    counts = rng.integers(0, 4, (3, 40)).astype(np.int32)
    area, best = Ranked.of(scores, failures).accepted(counts).areas()
    every = Ranked.of(scores, failures).measures(counts)
    for b in range(3):
        again = np.repeat(scores, counts[b]), np.repeat(failures, counts[b])
        assert area[b] == pytest.approx(aurc(*again))
        assert area[b] - best[b] == pytest.approx(e_aurc(*again))
        assert every["augrc"][b] == pytest.approx(augrc(*again))
        assert every["accuracy_at_coverage_80"][b] == pytest.approx(selective_accuracy(*again, 0.8))


def test_a_failure_is_one_or_none():
    with pytest.raises(ValueError, match="failures: expected 0 or 1"):
        aurc([1, 2], [0, 0.5])
    with pytest.raises(ValueError, match=r"failures: expected \(2,\)"):
        aurc([1, 2], [0])


def frame(rng, n=400, m=100):
    wrong = rng.random(n) < 0.25
    test = pd.DataFrame({"dataset": "test", "label": 0, "pred": wrong.astype(int)})
    test["a"] = rng.normal(wrong * 1.0, 1)
    far = pd.DataFrame({"dataset": "far", "label": -1, "pred": 0, "a": rng.normal(2, 1, m)})
    return pd.concat([test, far], ignore_index=True)


def test_rows_of_the_results_table():
    scores = frame(np.random.default_rng(0))
    scores.loc[3, "label"] = -1  # unknown: no failure, no success
    results = results_of(Evaluation(scores, ["a"], n_bootstrap=200), "net").fillna(
        {"dataset": "ID"}
    )
    results = results.set_index(["dataset", "metric"])
    test = scores[(scores.dataset == "test") & (scores.label >= 0)]
    own = results.loc[("ID", "aurc")].squeeze()
    assert own.value == pytest.approx(aurc(test["a"], test.label != test.pred))
    assert (own.n_id, own.n_ood) == (399, 0)
    assert own.ci_low < own.value < own.ci_high
    both = pd.concat([test, scores[scores.dataset == "far"]])
    far = results.loc[("far", "aurc")].squeeze()
    assert far.value == pytest.approx(aurc(both["a"], both.label != both.pred))
    assert far.n_ood == 100
    kept = results.loc[("far", "accuracy_at_coverage_80")].squeeze()
    wrong = both.label != both.pred
    assert kept.value == pytest.approx(selective_accuracy(both["a"], wrong, 0.8))
    assert kept.ci_low < kept.value < kept.ci_high
    assert results.loc[("far", "augrc")].squeeze().value == pytest.approx(augrc(both["a"], wrong))
    without = results_of(Evaluation(scores.drop(columns="pred"), ["a"], n_bootstrap=10), "net")
    assert not without.metric.isin(["aurc", "e_aurc"]).any()


@pytest.mark.slow
def test_the_interval_covers():
    """Nominal 95%: of 200 draws of the data, most intervals hold the value of a large sample."""
    truth = frame(np.random.default_rng(99), 200_000, 50_000)
    values = aurc(truth["a"], truth.label != truth.pred)
    hits = 0
    for seed in range(200):
        scores = frame(np.random.default_rng(seed))
        table = results_of(Evaluation(scores, ["a"], n_bootstrap=200), "net").set_index(
            ["dataset", "metric"]
        )
        row = table.loc[("far", "aurc")].squeeze()
        hits += row.ci_low <= values <= row.ci_high
    assert 180 <= hits <= 199
