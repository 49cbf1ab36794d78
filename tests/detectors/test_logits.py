"""Detectors over logits, each against a second formula or implementation."""

import logging
import math
from dataclasses import replace

import numpy as np
import pytest
import pytorch_ood.detector as pytorch_ood
import torch
from detector_toys import close, logits_bank, relabelled
from scipy.optimize import minimize_scalar
from scipy.special import logsumexp, softmax
from scipy.stats import entropy, weibull_min

from ood_lab.detectors import (
    EBO,
    GEN,
    KLM,
    MLS,
    MSP,
    DetectorRefusal,
    Entropy,
    OpenMax,
    TempScaling,
)
from ood_lab.detectors.openmax import fit_weibull
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
    bank = replace(blobs.train, logits=blobs.train.logits * 1e4)
    scores = OpenMax().fit(bank).score(bank)
    assert scores.isfinite().all()
    assert len(scores.unique()) > len(scores) / 2


@pytest.mark.parametrize("images", [0, 1, 2])
def test_openmax_leaves_the_logit_of_a_class_it_cannot_fit(blobs, caplog, images):
    keep = (blobs.train.labels != 2) | (torch.arange(600) < 5 * images)
    with caplog.at_level(logging.WARNING):
        detector = OpenMax(alpha=5, tail=20).fit(blobs.train.rows(keep))
    assert "OpenMax: 1 classes (2) have too few correct images" in caplog.text
    assert detector.describe()["classes"] == 4
    expected = openmax_log_odds(blobs.train, blobs.test, 5, 20, 1.0, unfitted={2})
    close(detector.score(blobs.test), expected, 1e-6)


def test_openmax_fits_a_twentieth_of_the_images(blobs):
    """120 images a class, of which a distribution is fitted to 6 at most; to none of below 40."""
    train = blobs.train
    right = train.predictions == train.labels
    sizes = [int((right & (train.labels == c)).sum()) for c in range(5)]
    (tail,) = {n // 20 for n in sizes}
    detector = OpenMax(alpha=3).fit(train)
    close(detector.score(blobs.ood), OpenMax(alpha=3, tail=tail).fit(train).score(blobs.ood), 1e-9)
    assert detector.chosen.startswith(f"tail = {tail}, for ")
    few = OpenMax().fit(train.rows(torch.arange(600) < 150))
    close(few.score(blobs.ood), -blobs.ood.logits.double().logsumexp(1), 1e-9)


@pytest.mark.parametrize(("gamma", "m"), [(0.1, 100), (0.5, 2), (2, 5)])
def test_gen_is_its_definition_and_that_of_pytorch_ood(blobs, gamma, m):
    p = np.sort(softmax(blobs.ood.logits.double().numpy(), axis=1), axis=1)[:, ::-1][:, :m]
    scores = GEN(gamma, m).score(blobs.ood)
    close(scores, ((p * (1 - p)) ** gamma).sum(1), 1e-7)
    logits = blobs.ood.logits / 3  # far from its clipping at 1e-7
    theirs = pytorch_ood.GEN.score(logits.double(), gamma, min(m, 5)) * min(m, 5)
    close(GEN(gamma, m).score(logits_bank(logits.tolist())), theirs, 1e-5)


def test_gen_and_entropy_keep_confident_images_apart():
    bank = logits_bank([[0.0, 40.0], [0.0, 41.0], [0.0, 80.0]])
    gen, ent = GEN(gamma=1, m=1).score(bank), Entropy().score(bank)
    close(gen.log(), [-40, -41, -80], 1e-9)
    assert (gen.diff() < 0).all()
    assert (ent.diff() < 0).all()
    close(GEN(gamma=0.1, m=1000).score(logits_bank([[0.0, 0.0]])), [2 * 0.25**0.1], 1e-9)


def test_entropy_is_that_of_scipy(blobs):
    p = softmax(blobs.ood.logits.double().numpy(), axis=1)
    close(Entropy().score(blobs.ood), entropy(p, axis=1), 1e-9)
    theirs = pytorch_ood.Entropy.score(blobs.ood.logits.double())
    close(Entropy().score(blobs.ood), theirs, 1e-5)


def uncertain(blobs):
    """Validation images with every fifth label moved, so that a finite temperature is best."""
    labels = blobs.val.labels.clone()
    labels[::25] = (labels[::25] + 1) % 5
    return relabelled(blobs.val, labels)


def test_temp_scaling_finds_the_optimum(blobs):
    bank = uncertain(blobs)
    z, y = bank.logits.double().numpy(), bank.labels.numpy()

    def loss(log_t):
        scaled = z / np.exp(log_t)
        return (logsumexp(scaled, axis=1) - scaled[np.arange(len(z)), y]).mean()

    detector = TempScaling().fit(bank)
    found = detector.describe()["temperature"]
    best = minimize_scalar(loss, bounds=(-3, 4), method="bounded", options={"xatol": 1e-9})
    assert found == pytest.approx(np.exp(best.x), rel=1e-5)
    grid = np.linspace(-4, 4, 2001)
    assert loss(np.log(found)) <= min(map(loss, grid))
    top = (blobs.ood.logits.double() / found).softmax(1).amax(1)
    close(detector.score(blobs.ood), ((1 - top) / top).log(), 1e-6)


def test_temp_scaling_ignores_unlabelled_images_and_needs_labels(blobs):
    bank = uncertain(blobs)
    labels = bank.labels.clone()
    labels[100:] = -1
    some = TempScaling().fit(relabelled(bank, labels)).fitted["temperature"]
    close(some, TempScaling().fit(bank.rows(torch.arange(100))).fitted["temperature"], 1e-9)
    with pytest.raises(DetectorRefusal, match="TempScaling needs class labels in the val split"):
        TempScaling().fit(relabelled(bank, torch.full((250,), -1)))


def test_temp_scaling_without_an_optimum_says_so_and_still_ranks(caplog):
    rows = [[0.0, 9.0], [8.0, 0.0], [0.0, 50.0]]
    right = relabelled(logits_bank(rows), torch.tensor([1, 0, 1]))
    with caplog.at_level(logging.WARNING):
        detector = TempScaling().fit(right)
    assert "has no optimum between T = 0.01 and 100: T = 0.01 is taken" in caplog.text
    close(detector.score(right), [-900, -800, -5000], 1e-9)
    wrong = relabelled(right, torch.tensor([0, 1, 0]))
    assert TempScaling().fit(wrong).describe()["temperature"] == 100
    one = FeatureBank(
        torch.ones(2, 1), torch.ones(2, 1), torch.zeros(2).long(), *[torch.ones(1)] * 3
    )
    with pytest.raises(DetectorRefusal, match="TempScaling needs a head of two classes"):
        TempScaling().fit(one)
