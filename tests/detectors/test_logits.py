"""Detectors over logits, each against a second formula or implementation."""

import logging
import math

import numpy as np
import pytest
import pytorch_ood.detector as pytorch_ood
import torch
from detector_toys import close, logits_bank, relabelled
from scipy.stats import entropy, weibull_min

from ood_lab.detectors import (
    EBO,
    KLM,
    MLS,
    MSP,
    OpenMax,
)
from ood_lab.detectors.weibull import fit_weibull
from ood_lab.features.bank import FeatureBank


def test_logit_scores_in_closed_form():
    bank = logits_bank([[0.0, math.log(3.0)], [1000.0, -1000.0], [0.0, 0.0]])
    close(MSP().score(bank), [-0.75, -1, -0.5], 1e-7)
    close(MLS().score(bank), [-math.log(3), -1000, 0], 1e-7)
    close(EBO().score(bank), [-math.log(4), -1000, -math.log(2)], 1e-7)
    close(
        EBO(temperature=2).score(bank), [-2 * math.log(1 + math.sqrt(3)), -1000, -math.log(4)], 1e-7
    )
    close(MSP(temperature=2).score(bank)[:1], [-math.sqrt(3) / (1 + math.sqrt(3))], 1e-7)


def test_msp_keeps_apart_what_float32_ties():
    scores = MSP().score(logits_bank([[20.0, 0.0], [21.0, 0.0]]))
    assert scores[1] < scores[0]


def test_klm_is_the_smallest_divergence_to_the_mean_posteriors(blobs):
    detector = KLM().fit(blobs.val)
    p = blobs.val.logits.double().softmax(1)
    templates = [p[p.argmax(1) == k].mean(0).numpy() for k in range(5)]
    q = blobs.ood.logits.double().softmax(1).numpy()
    close(detector.score(blobs.ood), [min(entropy(row, t) for t in templates) for row in q])
    theirs = pytorch_ood.KLMatching(None).fit_logits(blobs.val.logits.double())
    close(detector.score(blobs.ood), theirs.predict_logits(blobs.ood.logits.double()))


def test_klm_has_no_template_for_a_class_never_predicted():
    rows = [[4.0, 0.0, -900.0], [0.0, 4.0, -900.0], [5.0, 0.0, -900.0]]
    detector = KLM().fit(logits_bank(rows))
    assert detector.describe()["templates"] == 2
    unseen = detector.score(logits_bank([[0.0, 0.0, 9.0], [4.5, 0.0, -900.0]]))
    assert unseen.isfinite().all()
    assert unseen[0] > 100 > 0.01 > unseen[1]


@pytest.mark.parametrize("translate", [1.0, 10_000.0])
def test_weibull_fit_is_the_maximum_likelihood(translate):
    tails = np.random.default_rng(0).gumbel(5, 0.7, (4, 20))
    shifted = tails - tails.min(axis=1, keepdims=True) + translate
    k, log_scale = fit_weibull(torch.tensor(shifted))
    for row, ours, scale in zip(shifted, k, log_scale.exp(), strict=True):
        start = (float(ours) * 0.9, float(scale))
        theirs = weibull_min.fit(row, start[0], floc=0, scale=start[1])
        best = weibull_min.logpdf(row, float(ours), scale=float(scale)).sum()
        assert best >= weibull_min.logpdf(row, theirs[0], scale=theirs[2]).sum() - 1e-6
        assert theirs[0] == pytest.approx(float(ours), rel=0.02)
        assert theirs[2] == pytest.approx(float(scale), rel=1e-3)


def test_weibull_fit_recovers_parameters_and_ignores_padding():
    sample = weibull_min.rvs(2.5, scale=3, size=20_000, random_state=1)
    padded = torch.full((2, 25_000), torch.nan, dtype=torch.float64)
    padded[0, : len(sample)] = padded[1, : len(sample)] = torch.tensor(sample)
    k, log_scale = fit_weibull(padded)
    close(k, [2.5, 2.5], 0.05)
    close(log_scale.exp(), [3, 3], 0.05)


def openmax_log_odds(train, bank, alpha, tail, translate, unfitted=frozenset()):
    """The definition, image by image, with scipy's distribution."""
    z, y = train.logits.double().numpy(), train.labels.numpy()
    right = z.argmax(1) == y
    models = {}
    for c in set(range(z.shape[1])) - unfitted:
        rows = z[right & (y == c)]
        distances = np.sort(np.linalg.norm(rows - rows.mean(0), axis=1))[-tail:]
        k, log_scale = fit_weibull(torch.tensor(distances - distances[0] + translate)[None])
        models[c] = rows.mean(0), distances[0], float(k), float(log_scale.exp())
    odds = []
    for row in bank.logits.double().numpy():
        revised = row.copy()
        for rank, c in enumerate(np.argsort(-row)[:alpha]):
            if c in unfitted:
                continue
            mean, start, k, scale = models[c]
            w = weibull_min.cdf(np.linalg.norm(row - mean) - start + translate, k, scale=scale)
            revised[c] = row[c] * (1 - w * (alpha - rank) / alpha)
        unknown = (row - revised).sum()
        p = np.exp(unknown) / (np.exp(unknown) + np.exp(revised).sum())
        odds.append(np.log(p) - np.log1p(-p))
    return odds


@pytest.mark.parametrize(("alpha", "translate"), [(3, 1.0), (5, 10_000.0)])
def test_openmax_is_its_definition(blobs, alpha, translate):
    wrong = blobs.train.labels.clone()
    wrong[::7] = (wrong[::7] + 1) % 5  # wrongly classified images must not count
    train = relabelled(blobs.train, wrong)
    scores = OpenMax(alpha=alpha, tail=15, translate=translate).fit(train).score(blobs.ood)
    close(scores, openmax_log_odds(train, blobs.ood, alpha, 15, translate), 1e-6)


def test_openmax_agrees_with_pytorch_ood_where_that_is_right(blobs):
    # All images correct, and a batch in which every class is predicted.
    keep = blobs.train.predictions == blobs.train.labels
    train = blobs.train.rows(keep)
    ours = OpenMax(alpha=5, tail=20, translate=10_000).fit(train)
    theirs = pytorch_ood.OpenMax(None, tailsize=20, alpha=5)
    theirs.fit_logits(train.logits.double(), train.labels)
    bank = blobs.test
    assert len(bank.predictions.unique()) == 5
    p = theirs.predict_logits(bank.logits.double())
    close(ours.score(bank).sigmoid(), p, 2e-3)


def test_openmax_does_not_overflow(blobs):
    bank = FeatureBank(**{**vars(blobs.train), "logits": blobs.train.logits * 1e4})
    scores = OpenMax().fit(bank).score(bank)
    assert scores.isfinite().all()
    assert len(scores.unique()) > len(scores) / 2


@pytest.mark.parametrize("images", [0, 1, 2])
def test_openmax_leaves_the_logit_of_a_class_it_cannot_fit(blobs, caplog, images):
    keep = (blobs.train.labels != 2) | (torch.arange(600) < 5 * images)
    with caplog.at_level(logging.WARNING):
        detector = OpenMax(alpha=5).fit(blobs.train.rows(keep))
    assert "OpenMax: 1 classes (2) have too few correct images" in caplog.text
    assert detector.describe()["classes"] == 4
    expected = openmax_log_odds(blobs.train, blobs.test, 5, 20, 1.0, unfitted={2})
    close(detector.score(blobs.test), expected, 1e-6)
