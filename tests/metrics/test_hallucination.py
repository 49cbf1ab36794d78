import numpy as np
import pytest

from ood_lab.metrics.hallucination import (
    amber_caption_metrics,
    amber_f1,
    amber_yes_no_metrics,
    caption_metrics,
)
from ood_lab.metrics.resampling.clustered_bootstrap import clustered

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
        clustered(few, caption_metrics).estimates(),
        clustered(many, caption_metrics).estimates(),
    )
    for name in small:
        assert small[name].low <= small[name].value <= small[name].high
        assert small[name].value == large[name].value
        assert large[name].high - large[name].low <= small[name].high - small[name].low


def test_no_images_give_no_numbers():
    assert np.isnan(clustered(np.zeros((0, 8)), caption_metrics).estimates()["chair"].value)


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
