"""Metrics of yes/no questions against their definitions, and their intervals."""

import numpy as np
import pytest
from sklearn.metrics import f1_score, matthews_corrcoef, precision_score, recall_score

from ood_lab.common.random_streams import Resampling
from ood_lab.metrics.answer_metrics import (
    amber_caption_metrics,
    amber_f1,
    amber_yes_no_metrics,
    caption_metrics,
    outcome_counts,
    yes_no_metrics,
)
from ood_lab.metrics.resampling.clustered_bootstrap import clustered, resampled_sums


@pytest.mark.parametrize("seed", range(5))
def test_equals_scikit_learn_with_yes_as_the_positive_class(seed):
    rng = np.random.default_rng(seed)
    truth, said = rng.random((2, 200)) < [[0.4], [0.7]]
    found = yes_no_metrics(outcome_counts(truth, said, ~said).sum(0))
    assert found["accuracy"] == pytest.approx((truth == said).mean())
    assert found["precision"] == pytest.approx(precision_score(truth, said))
    assert found["recall"] == pytest.approx(recall_score(truth, said))
    assert found["f1"] == pytest.approx(f1_score(truth, said))
    assert found["mcc"] == pytest.approx(matthews_corrcoef(truth, said))
    assert found["yes_rate"] == pytest.approx(said.mean())


@pytest.mark.parametrize("seed", range(3))
def test_an_unread_answer_is_neither_yes_nor_no(seed):
    rng = np.random.default_rng(seed)
    truth, said = rng.integers(0, 2, 200), rng.integers(0, 3, 200)  # 2: unread
    counts = outcome_counts(truth == 1, said == 1, said == 0).sum(0)
    found = yes_no_metrics(counts)
    one = {"labels": [1], "average": "macro"}
    assert found["accuracy"] == pytest.approx((truth == said).mean())
    assert found["precision"] == pytest.approx(precision_score(truth, said, **one))
    assert found["recall"] == pytest.approx(recall_score(truth, said, **one))
    assert found["f1"] == pytest.approx(f1_score(truth, said, **one))
    assert found["mcc"] == pytest.approx(matthews_corrcoef(truth, said))
    assert found["yes_rate"] == pytest.approx((said == 1).mean())
    read = said < 2
    answered = yes_no_metrics(counts, recall_of="answered")["recall"]
    assert answered == pytest.approx(recall_score(truth[read], said[read]))


@pytest.mark.parametrize("precision", [0.55, 0.7, 0.92, 1.0])
@pytest.mark.parametrize("recall", [0.2, 0.64, 1.0])
def test_of_balanced_questions_precision_and_recall_say_all_the_rest(precision, recall):
    tp = recall / 2
    fn, fp = 0.5 - tp, tp / precision - tp
    tn = 0.5 - fp
    if tn < 0:
        pytest.skip("no balanced set has these two")
    found = yes_no_metrics([tp, fp, tn, fn])
    assert found["precision"] == pytest.approx(precision)
    assert found["recall"] == pytest.approx(recall)
    assert found["accuracy"] == pytest.approx(tp + tn)
    assert found["f1"] == pytest.approx(2 * precision * recall / (precision + recall))
    false_rate = fp / 0.5
    mcc = (recall - false_rate) / np.sqrt((recall + false_rate) * (2 - recall - false_rate))
    assert found["mcc"] == pytest.approx(mcc)


def test_zero_denominators_are_zero_and_no_answer_is_missing():
    never_yes = yes_no_metrics([0, 0, 5, 5])
    assert (never_yes["precision"], never_yes["f1"], never_yes["mcc"]) == (0, 0, 0)
    assert all(np.isnan(value) for value in yes_no_metrics([0, 0, 0, 0]).values())
    assert np.isnan(
        clustered(np.zeros((0, 4)), yes_no_metrics, resampling=Resampling())
        .estimates()["accuracy"]
        .value
    )


def test_interval_resamples_whole_pairs():
    """Pairs that are wholly right or wholly wrong vary twice as much as single answers would."""
    pairs = np.repeat([[1, 0, 1, 0], [0, 1, 0, 1]], 100, axis=0)
    wide = clustered(pairs, yes_no_metrics, resampling=Resampling(draws=4000)).estimates()[
        "accuracy"
    ]
    single = np.repeat([[1, 0, 0, 0], [0, 0, 1, 0], [0, 1, 0, 0], [0, 0, 0, 1]], 100, axis=0)
    narrow = clustered(single, yes_no_metrics, resampling=Resampling(draws=4000)).estimates()[
        "accuracy"
    ]
    assert wide.value == narrow.value == 0.5
    ratio = (wide.high - wide.low) / (narrow.high - narrow.low)
    assert ratio == pytest.approx(np.sqrt(2), rel=0.08)
    assert wide.high - wide.low == pytest.approx(2 * 1.96 * 0.5 / np.sqrt(200), rel=0.05)


def test_sums_of_resamples_have_the_distribution_of_the_bootstrap():
    rows = np.random.default_rng(0).integers(0, 3, (60, 2))
    drawn = resampled_sums(rows, 20_000, np.random.default_rng(1))
    assert drawn.mean(0) == pytest.approx(rows.sum(0), rel=0.01)
    assert np.cov(drawn.T) == pytest.approx(60 * np.cov(rows.T, ddof=0), rel=0.1, abs=1.0)


CHECK = [5, 15, 9, 20, 3, 15, 1, 3]


def test_amber_rounds_to_one_decimal():
    assert amber_caption_metrics(CHECK) == {"chair": 33.3, "cover": 45.0, "hal": 66.7, "cog": 20.0}


def test_unrounded_metrics_are_plain_shares():
    found = caption_metrics(CHECK)
    assert found["chair"] == pytest.approx(1 / 3)
    assert found["hal"] == pytest.approx(2 / 3)


def test_nothing_named_is_missing_and_not_zero():
    found = caption_metrics([0, 0, 0, 4, 0, 0, 2, 2])
    assert np.isnan(found["chair"])
    assert np.isnan(found["cog"])
    assert (found["cover"], found["hal"]) == (0, 0)


def test_intervals_hold_the_value_and_shrink_with_more_images():
    few = np.tile(np.array([[1, 4, 2, 3, 0, 5, 0, 1], [0, 3, 2, 3, 1, 5, 1, 1]]), (10, 1))
    many = np.tile(few, (25, 1))
    small, large = (
        clustered(few, caption_metrics, resampling=Resampling()).estimates(),
        clustered(many, caption_metrics, resampling=Resampling()).estimates(),
    )
    for name in small:
        assert small[name].low <= small[name].value <= small[name].high
        assert small[name].value == large[name].value
        assert large[name].high - large[name].low <= small[name].high - small[name].low


def test_no_images_give_no_numbers():
    assert np.isnan(
        clustered(np.zeros((0, 8)), caption_metrics, resampling=Resampling())
        .estimates()["chair"]
        .value
    )


@pytest.mark.parametrize(
    ("precision", "recall", "epsilon", "f1"),
    [(100.0, 26.2, 0.001, 41.5), (0.0, 0.0, 0.001, 0.0), (50.0, 50.0, 0.001, 50.0)],
)
def test_f1_with_epsilon(precision, recall, epsilon, f1):
    assert amber_f1(precision, recall, epsilon) == f1


def test_epsilon_can_change_the_last_digit():
    assert (amber_f1(100.0, 6.3, 0.001), amber_f1(100.0, 6.3, 0.0001)) == (11.8, 11.9)


def test_answers_that_are_neither_are_wrong_and_no_false_no():
    found = amber_yes_no_metrics([50, 0, 30, 50], unread=20)
    assert found["accuracy"] == 53.3
    assert (found["precision"], found["recall"]) == (100.0, 50.0)
