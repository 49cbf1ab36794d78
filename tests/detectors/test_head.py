"""Detectors that reshape features or the last layer, against a second implementation."""

import math

import numpy as np
import pytest
import pytorch_ood.detector as pytorch_ood
import torch
from detector_toys import close, identity_head, random_head
from torch import nn

from ood_lab.detectors import (
    ASH,
    DICE,
    DetectorRefusal,
    GradNorm,
    ReAct,
)
from ood_lab.detectors.numeric import percentile


def test_gradnorm_is_the_norm_of_the_gradient(blobs):
    bank = blobs.test.rows(torch.arange(20))
    weight = bank.head_weight.double().requires_grad_()
    expected = []
    for x in bank.features.double():
        z = (weight @ x + bank.head_bias.double()) / 2
        (gradient,) = torch.autograd.grad(-z.log_softmax(0).sum(), weight)
        expected.append(-gradient.abs().sum())
    close(GradNorm(temperature=2).score(bank), torch.stack(expected), 1e-5)


def test_gradnorm_ranks_as_pytorch_ood_on_the_last_weight(blobs):
    bank = blobs.test.rows(torch.arange(20))
    net = nn.Linear(32, 5).double()
    net.load_state_dict({"weight": bank.head_weight, "bias": bank.head_bias})
    theirs = pytorch_ood.GradNorm(net, param_filter=lambda name: name == "weight")
    close(GradNorm().score(bank), 5 * theirs.predict(bank.features.double()), 1e-5)


@pytest.mark.parametrize("p", [0, 70, 90])
def test_dice_agrees_with_pytorch_ood(blobs, p):
    train, bank = blobs.train, blobs.ood
    theirs = pytorch_ood.DICE(None, train.head_weight, train.head_bias, p / 100)
    theirs.fit_features(train.features, train.labels)
    scores = DICE(percentile=p).fit(train).score(bank)
    close(scores, theirs.predict_features(bank.features), 1e-5)


def test_dice_drops_contributions_equal_to_the_threshold(make_bank):
    bank = make_bank(torch.ones(3, 4), torch.zeros(3).long(), torch.ones(2, 4), torch.zeros(2))
    close(DICE(percentile=50).fit(bank).score(bank), [-math.log(2)] * 3)


@pytest.mark.parametrize(("classes", "p"), [(100, 90.0), (101, 70.0)])
def test_dice_auto_depends_on_the_number_of_classes(make_bank, classes, p):
    bank = make_bank(torch.rand(8, 6), torch.zeros(8).long(), *random_head(classes, 6))
    assert DICE(percentile="auto").fit(bank).describe()["percentile"] == p


@pytest.mark.parametrize("p", [0, 33.3, 90, 99.99, 100])
@pytest.mark.parametrize("kind", ["normal", "relu", "tiny", "one"])
def test_percentile_is_that_of_numpy(kind, p, monkeypatch):
    monkeypatch.setattr("ood_lab.detectors.numeric.CHUNK_BYTES", 8 * 7 * 50)
    normal = torch.randn(300, 7, generator=torch.Generator().manual_seed(0))
    values = {
        "normal": normal,
        "relu": normal.relu(),
        "tiny": normal * 1e-42,
        "one": normal[:1, :1],
    }
    expected = np.percentile(values[kind].double().numpy(), p)
    assert percentile(values[kind], p) == pytest.approx(expected, rel=1e-12, abs=1e-60)


def test_react_agrees_with_pytorch_ood_on_pooled_features(blobs):
    val, bank = blobs.val, blobs.ood
    theirs = pytorch_ood.ReAct(
        nn.Identity(), lambda x: x.flatten(1) @ val.head_weight.T + val.head_bias, percentile=0.8
    )
    theirs.fit_feature_maps(val.features[:, :, None, None], val.labels)
    detector = ReAct(percentile=80).fit(val)
    assert detector.describe()["threshold"] == pytest.approx(theirs.threshold, rel=1e-6)
    close(detector.score(bank), theirs.predict(bank.features[:, :, None, None]), 1e-5)


@pytest.mark.parametrize("p", [0, 65, 90])
@pytest.mark.parametrize("variant", ["b", "s", "p"])
def test_ash_agrees_with_pytorch_ood_on_pooled_features(blobs, variant, p):
    bank = blobs.ood
    theirs = pytorch_ood.ASH(
        nn.Identity(),
        lambda x: x.flatten(1) @ bank.head_weight.T + bank.head_bias,
        variant=f"ash-{variant}",
        percentile=p / 100,
    )
    scores = ASH(variant=variant, percentile=p).score(bank)
    close(scores, theirs.predict(bank.features[:, :, None, None]), 1e-5)


def test_ash_keeps_at_least_one_entry(make_bank):
    bank = make_bank(torch.tensor([[1.0, 3.0]]), torch.zeros(1).long(), *identity_head(2))
    close(ASH(variant="b", percentile=100).score(bank), [-math.log(1 + math.exp(4))], 1e-7)


@pytest.mark.parametrize("detector", [ASH(), ReAct()], ids=["ash", "react"])
def test_features_below_zero_are_refused_unless_forced(blobs, make_bank, detector):
    features = blobs.val.features.clone()
    features[:125, :] = -1
    bank = make_bank(features, blobs.val.labels, blobs.val.head_weight, blobs.val.head_bias)
    name = type(detector).__name__
    refusal = f"{name} needs non-negative features: 50% are below 0: .*{detector.name}.force=true"
    with pytest.raises(DetectorRefusal, match=refusal):
        detector.check(bank)
    with pytest.raises(DetectorRefusal, match=refusal):
        detector.fit(bank).score(bank)
    assert type(detector)(force=True).fit(bank).score(bank).isfinite().all()
