"""Metrics of both answers: the check values of ORIC's tables, and an independent library."""

import numpy as np
import pytest
from sklearn.metrics import precision_recall_fscore_support

from ood_lab.common.random_streams import Resampling
from ood_lab.metrics.answer_metrics import (
    mean_over_prompts,
    outcome_counts,
    two_class_metrics,
)
from ood_lab.metrics.resampling.clustered_bootstrap import clustered

#: TP, FP, TN, FN and the columns of ORIC's table 4: macro P, R, F1, yes-rate, then P, R, F1 of yes
#: and of no.
DETECTORS = {
    "OWLv2": (
        (631, 186, 814, 369),
        (73.02, 72.25, 72.02, 40.85, 77.23, 63.10, 69.46, 68.81, 81.40, 74.58),
    ),
    "Grounding DINO 1.5 Pro": (
        (917, 449, 551, 83),
        (77.02, 73.40, 72.48, 68.30, 67.13, 91.70, 77.51, 86.91, 55.10, 67.44),
    ),
    "all no": ((0, 0, 1000, 1000), (25, 50, 33.33, 0, 0, 0, 0, 50, 100, 66.67)),
}
PRINTED = (
    "macro_precision",
    "macro_recall",
    "macro_f1",
    "yes_rate",
    "precision_yes",
    "recall_yes",
    "f1_yes",
    "precision_no",
    "recall_no",
    "f1_no",
)


@pytest.mark.parametrize("name", DETECTORS)
def test_published_columns(name):
    counts, wanted = DETECTORS[name]
    found = two_class_metrics([*counts, 0, 0])
    for metric, value in zip(PRINTED, wanted, strict=True):
        assert 100 * found[metric] == pytest.approx(value, abs=0.006), metric
    # Half of the questions have the answer yes.
    assert found["macro_recall"] == pytest.approx(found["accuracy"])
    between = (found["recall_yes"] + 1 - found["recall_no"]) / 2
    assert found["yes_rate"] == pytest.approx(between)


def test_unmatched_answers_are_wrong_but_neither_yes_nor_no():
    rng = np.random.default_rng(0)
    truth, said = rng.integers(0, 2, 300), rng.integers(0, 3, 300)
    counts = outcome_counts(truth == 1, said == 1, said == 0).sum(axis=0)
    found = two_class_metrics(counts)
    for label, name in ((1, "yes"), (0, "no")):
        precision, recall, f1, _ = precision_recall_fscore_support(
            truth, said, labels=[label], zero_division=0
        )
        assert found[f"precision_{name}"] == pytest.approx(precision[0])
        assert found[f"recall_{name}"] == pytest.approx(recall[0])
        assert found[f"f1_{name}"] == pytest.approx(f1[0])
    assert found["yes_rate"] == pytest.approx((said == 1).mean())
    assert found["accuracy"] == pytest.approx((truth == said).mean())


def test_mean_of_wordings_is_not_the_pooled_metric():
    one, other = [10, 0, 10, 0, 0, 0], [10, 90, 0, 0, 0, 0]
    found = clustered(
        np.array([[one, other]]), mean_over_prompts, resampling=Resampling(draws=10)
    ).estimates()
    assert found["precision_yes"].value == pytest.approx((1 + 0.1) / 2)


def test_intervals_resample_images_whole():
    """Ten answers about each of 40 images that stand or fall together: the interval is that of

    40 coin flips, not of 400.
    """
    rng = np.random.default_rng(1)
    counts = np.zeros((40, 1, 6), int)
    right = rng.random(40) < 0.5
    counts[:, 0, 0], counts[:, 0, 3] = 10 * right, 10 * ~right
    found = clustered(counts, mean_over_prompts, resampling=Resampling(draws=2000)).estimates()[
        "recall_yes"
    ]
    share = right.mean()
    half = 2.05 * np.sqrt(share * (1 - share) / 40)
    assert found.high - found.low == pytest.approx(2 * half, rel=0.15)


def test_models_are_drawn_together():
    rng = np.random.default_rng(2)
    counts = rng.integers(0, 3, (30, 1, 2, 6))
    drawn = clustered(
        np.concatenate([counts, counts], axis=1), mean_over_prompts, resampling=Resampling(draws=50)
    ).draws
    assert (drawn["macro_f1"][0] == drawn["macro_f1"][1]).all()
