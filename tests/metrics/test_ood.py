"""AUROC, FPR and AUPR against scikit-learn and against the definitions written out as loops."""

from statistics import NormalDist

import numpy as np
import pytest
import torch
from sklearn import metrics as sk

from ood_lab.metrics import (
    SortedScores,
    aupr,
    auroc,
    fpr_at_tpr,
    roc_curve,
)


def normal(rng, n, shift=0.0):
    return rng.normal(shift, 1, n)


def pair(name):
    rng = np.random.default_rng(7)
    n, m = 137, 61
    return {
        "plain": (normal(rng, n), normal(rng, m, 1)),
        "tied": (rng.integers(0, 6, n) / 1.0, rng.integers(2, 9, m) / 1.0),
        "around_500": (500 + normal(rng, n), 501 + normal(rng, m)),
        "around_1e-6": (1e-6 * normal(rng, n), 1e-6 * normal(rng, m, 1)),
        "huge": (1e300 * normal(rng, n), 1e300 * normal(rng, m, 1)),
        "constant": (np.zeros(n), np.zeros(m)),
        "separated": (normal(rng, n), normal(rng, m, 50)),
        "inverted": (normal(rng, n, 50), normal(rng, m)),
        "one_each": (np.array([0.3]), np.array([0.7])),
        "one_ood": (normal(rng, n), np.array([0.1])),
        "one_id": (np.array([0.1]), normal(rng, m)),
    }[name]


CASES = [
    "plain",
    "tied",
    "around_500",
    "around_1e-6",
    "huge",
    "constant",
    "separated",
    "inverted",
    "one_each",
    "one_ood",
    "one_id",
]


def labelled(id_scores, ood_scores):
    scores = np.concatenate([id_scores, ood_scores])
    return np.r_[np.zeros(len(id_scores)), np.ones(len(ood_scores))], scores


def brute_fpr(id_scores, ood_scores, tpr, positive):
    """Tries every threshold, from the strictest."""
    if positive == "ood":
        for t in sorted(set(ood_scores), reverse=True):
            if np.mean(ood_scores >= t) >= tpr:
                return np.mean(id_scores >= t)
    for t in sorted(set(id_scores)):
        if np.mean(id_scores <= t) >= tpr:
            return np.mean(ood_scores <= t)
    raise AssertionError


@pytest.mark.parametrize("case", CASES)
def test_auroc_is_sklearn_and_pair_counting(case):
    i, o = pair(case)
    wins = (o[:, None] > i).mean() + (o[:, None] == i).mean() / 2
    assert auroc(i, o) == pytest.approx(wins, abs=1e-12)
    assert auroc(i, o) == pytest.approx(sk.roc_auc_score(*labelled(i, o)), abs=1e-12)


@pytest.mark.parametrize("case", CASES)
@pytest.mark.parametrize("tpr", [0.95, 0.5, 1.0, 0.001])
@pytest.mark.parametrize("positive", ["ood", "id"])
def test_fpr_is_the_definition(case, tpr, positive):
    i, o = pair(case)
    assert fpr_at_tpr(i, o, tpr, positive) == pytest.approx(brute_fpr(i, o, tpr, positive))


@pytest.mark.parametrize("case", CASES)
def test_fpr_is_sklearn_without_dropped_points(case):
    y, s = labelled(*pair(case))
    fpr, tpr, _ = sk.roc_curve(y, s, drop_intermediate=False)
    assert fpr_at_tpr(*pair(case)) == pytest.approx(fpr[np.argmax(tpr >= 0.95)])
    fpr, tpr, _ = sk.roc_curve(1 - y, -s, drop_intermediate=False)
    expected = fpr[np.argmax(tpr >= 0.95)]
    assert fpr_at_tpr(*pair(case), positive="id") == pytest.approx(expected)


@pytest.mark.parametrize("n", [20, 40, 60, 100, 140, 1000, 7])
def test_fpr_at_exact_multiples_of_the_rate(n):
    # 0.95 * n is not always representable: the threshold must not slip by one sample.
    id_scores, ood_scores = np.arange(n) + 0.5, np.arange(n).astype(float)
    for positive in ("ood", "id"):
        value = fpr_at_tpr(id_scores, ood_scores, 0.95, positive)
        assert value == pytest.approx(brute_fpr(id_scores, ood_scores, 0.95, positive))


@pytest.mark.parametrize("case", CASES)
@pytest.mark.parametrize("positive", ["in", "out"])
def test_aupr_is_sklearn(case, positive):
    y, s = labelled(*pair(case))
    if positive == "in":
        y, s = 1 - y, -s
    precision, recall, _ = sk.precision_recall_curve(y, s)
    ap = aupr(*pair(case), positive, "average_precision")
    area = aupr(*pair(case), positive, "trapezoid")
    assert ap == pytest.approx(sk.average_precision_score(y, s), abs=1e-12)
    assert area == pytest.approx(sk.auc(recall, precision), abs=1e-12)


def test_aupr_of_constant_scores():
    i, o = np.ones(100), np.ones(50)
    assert aupr(i, o, "out", "average_precision") == pytest.approx(1 / 3)
    assert aupr(i, o, "out", "trapezoid") == pytest.approx(2 / 3)
    assert aupr(i, o, "in", "trapezoid") == pytest.approx(5 / 6)


@pytest.mark.parametrize("case", ["plain", "tied", "constant", "one_each"])
def test_roc_curve_is_sklearn(case):
    i, o = pair(case)
    expected = sk.roc_curve(*labelled(i, o), drop_intermediate=False)
    for ours, theirs in zip(roc_curve(i, o), expected, strict=True):
        np.testing.assert_allclose(ours, theirs)


def test_monotone_rescaling_changes_nothing():
    i, o = pair("tied")
    for f in (lambda x: x + 300, lambda x: x * 1e6, lambda x: np.exp(x - 5)):
        assert auroc(f(i), f(o)) == auroc(i, o)
        assert fpr_at_tpr(f(i), f(o)) == fpr_at_tpr(i, o)
        assert aupr(f(i), f(o)) == aupr(i, o)


def test_infinite_scores_rank_first_and_last():
    i, o = np.array([-np.inf, 0.0, 1.0]), np.array([0.5, np.inf, np.inf])
    finite = auroc(np.array([-9.0, 0, 1]), np.array([0.5, 9, 9]))
    assert auroc(i, o) == finite == pytest.approx(8 / 9)
    assert auroc([np.inf], [np.inf]) == 0.5


@pytest.mark.parametrize("dtype", [torch.float64, torch.float32, torch.bfloat16, torch.int64])
def test_torch_scores_equal_numpy(dtype):
    i, o = torch.tensor([0.0, 1, 2, 3]).to(dtype), torch.tensor([2.0, 3, 5]).to(dtype)
    assert auroc(i, o) == auroc(i.tolist(), o.tolist()) == pytest.approx(10 / 12)
    with_grad = o.double().requires_grad_()
    assert auroc(i, with_grad) == auroc(i, o)


def test_scores_beyond_float32_resolution_are_not_tied():
    assert auroc([1.0], [1.0 + 1e-12]) == 1.0


@pytest.mark.parametrize("metric", [auroc, fpr_at_tpr, aupr, roc_curve])
@pytest.mark.parametrize(
    ("i", "o", "message"),
    [
        ([], [1.0], "id_scores: no samples"),
        ([1.0], [], "ood_scores: no samples"),
        ([1.0], [0.0, np.nan, np.nan], r"ood_scores: 2 of 3 scores are NaN.*position 1"),
        ([[1.0]], [1.0], r"id_scores: expected a 1-D array.*\(1, 1\)"),
    ],
)
def test_bad_scores_are_named(metric, i, o, message):
    with pytest.raises(ValueError, match=message):
        metric(i, o)


@pytest.mark.parametrize(
    ("call", "message"),
    [
        (lambda: fpr_at_tpr([0], [1], positive="in"), "positive"),
        (lambda: fpr_at_tpr([0], [1], tpr=0), "tpr"),
        (lambda: fpr_at_tpr([0], [1], tpr=95), "tpr"),
        (lambda: aupr([0], [1], positive="ood"), "positive"),
        (lambda: aupr([0], [1], method="ap"), "method"),
    ],
)
def test_unknown_options_are_named(call, message):
    with pytest.raises(ValueError, match=f"^{message}: expected"):
        call()


def test_ties_at_the_threshold_are_counted():
    zeros = SortedScores.of([0.0, 0, 0, 1], [0.0] * 5 + [2.0] * 15)
    assert zeros.fpr_at_tpr(0.95, "ood") == 1
    assert zeros.tied_at_threshold(0.95, "ood") == 0.75
    assert zeros.tied_at_threshold(0.95, "id") == 0
    assert not zeros.constant
    assert SortedScores.of([3.0] * 5, [3.0]).constant


def test_a_million_samples():
    """No table of all pairs, which would not fit."""
    rng = np.random.default_rng(0)
    i, o = rng.normal(size=500_000), rng.normal(1, 1, size=500_000)
    pair_ = SortedScores.of(i, o)
    bell = NormalDist()
    assert pair_.auroc() == pytest.approx(bell.cdf(0.5**0.5), abs=0.002)
    for positive in ("id", "ood"):
        expected = bell.cdf(bell.inv_cdf(0.95) - 1)
        assert pair_.fpr_at_tpr(positive=positive) == pytest.approx(expected, abs=0.005)
    assert 0.7 < pair_.aupr("in", "trapezoid") < 0.8
