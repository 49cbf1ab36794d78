"""Detectors that reshape features or the last layer, against a second implementation."""

import math

import numpy as np
import pytest
import pytorch_ood.detector as pytorch_ood
import torch
from detector_toys import arrays, close, identity_head, random_head
from scipy.special import logsumexp, softmax
from torch import nn

from ood_lab.detectors import (
    ASH,
    DICE,
    FDBD,
    LTS,
    NAC,
    NCI,
    PNML,
    SCALE,
    VRA,
    DetectorRefusal,
    GradNorm,
    GradUncertainty,
    ReAct,
)
from ood_lab.detectors.support.chunked_arithmetic import percentile


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
def test_the_authors_percentile_of_dice_depends_on_the_number_of_classes(make_bank, classes, p):
    bank = make_bank(torch.rand(8, 6), torch.zeros(8).long(), *random_head(classes, 6))
    assert DICE(percentile="authors").fit(bank).describe()["percentile"] == p


@pytest.mark.parametrize(("images", "p"), [(5, 10.0), (6, 90.0)])
def test_dice_of_fewer_images_than_features_drops_less(make_bank, images, p):
    bank = make_bank(torch.rand(images, 6), torch.zeros(images).long(), *random_head(3, 6))
    found = DICE(percentile="auto").fit(bank)
    assert found.describe()["percentile"] == p
    close(found.score(bank), DICE(percentile=p).fit(bank).score(bank))
    assert found.chosen == ("percentile = 10, for 5 images of 6 features" if images < 6 else "")


@pytest.mark.parametrize("p", [0, 33.3, 90, 99.99, 100])
@pytest.mark.parametrize("kind", ["normal", "relu", "tiny", "one"])
def test_percentile_is_that_of_numpy(kind, p):
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


@pytest.mark.parametrize(
    "detector", [ASH(), ReAct(), SCALE(), VRA(fit_split="val")], ids=lambda d: d.name
)
def test_features_below_zero_are_refused_unless_forced(blobs, make_bank, detector):
    features = blobs.val.features.clone()
    features[:125, :] = -1
    bank = make_bank(features, blobs.val.labels, blobs.val.head_weight, blobs.val.head_bias)
    name = type(detector).__name__
    refusal = f"{name} needs non-negative features: 50% are below 0: .*{detector.name}.force=true"
    with pytest.raises(DetectorRefusal, match=refusal):
        detector.fit(bank).score(bank)
    assert type(detector)(force=True).fit(bank).score(bank).isfinite().all()


def head_of(bank):
    net = nn.Linear(*bank.head_weight.shape[::-1]).double()
    net.load_state_dict({"weight": bank.head_weight, "bias": bank.head_bias})
    return net.requires_grad_(False)


@pytest.mark.parametrize("p", [0, 65, 85, 100])
def test_scale_and_lts_by_sorting(blobs, p):
    x, z, w, b = arrays(blobs.ood)
    k = max(1, 32 - round(32 * p / 100))
    r = x.sum(1) / np.sort(x, axis=1)[:, -k:].sum(1)
    close(SCALE(p).score(blobs.ood), -logsumexp(np.exp(r)[:, None] * x @ w.T + b, axis=1), 1e-8)
    close(LTS(p).score(blobs.ood), -logsumexp(r[:, None] ** 2 * z, axis=1), 1e-8)


def test_scale_and_lts_agree_with_pytorch_ood(blobs):
    x, head = blobs.ood.features.double(), head_of(blobs.ood)
    theirs = pytorch_ood.SCALE(nn.Identity(), lambda maps: head(maps.flatten(1)), 0.65)
    close(SCALE(65).score(blobs.ood), theirs.predict(x[:, :, None, None]), 1e-5)
    theirs = pytorch_ood.LTS(None, head, p=0.25)
    close(LTS(75).score(blobs.ood), theirs.predict_features(x), 1e-5)


def test_lts_takes_features_below_zero_and_a_zero_vector(make_bank):
    features = torch.tensor([[-1.0, 2.0, 1.0], [0.0, 0.0, 0.0], [-1.0, -2.0, 0.0]])
    bank = make_bank(features, torch.zeros(3).long(), *identity_head(3))
    expected = [-logsumexp(1.5**2 * features[0].numpy()), -np.log(3), -logsumexp([-1, -2, 0])]
    close(LTS(67).score(bank), expected, 1e-6)


def vra_reference(x, low, high, gamma=0.0, floor=0.0):
    return np.where(x > high, high, np.where(x < low, floor, x + gamma))


@pytest.mark.parametrize("gamma", [0, 0.6])
def test_vra_cuts_each_feature_on_the_fit_split(blobs, gamma, monkeypatch):
    monkeypatch.setattr(
        "ood_lab.detectors.support.chunked_arithmetic.CHUNK_BYTES", 4 * len(blobs.train) * 5
    )
    x, _, w, b = arrays(blobs.ood)
    low, high = np.percentile(blobs.train.features.double().numpy(), [60, 95], axis=0)
    energy = -logsumexp(vra_reference(x, low, high, gamma) @ w.T + b, axis=1)
    close(VRA(60, 95, gamma=gamma).fit(blobs.train).score(blobs.ood), energy, 1e-9)
    far = 0.01 * ((x - 4) ** 2).sum(1)
    plus = VRA(60, 95, gamma=gamma, quadratic=0.01, center=4).fit(blobs.train)
    close(plus.score(blobs.ood), energy + far, 1e-9)


def test_vra_of_openood_and_of_pytorch_ood(blobs):
    x, _, w, b = arrays(blobs.ood)
    low, high = np.percentile(blobs.val.features.double().numpy(), [10, 90])
    scores = VRA(10, 90, per_feature=False, below="clip", fit_split="val").fit(blobs.val)
    close(scores.score(blobs.ood), -logsumexp(np.clip(x, low, high) @ w.T + b, axis=1), 1e-6)
    theirs = pytorch_ood.VRA(nn.Identity(), head_of(blobs.ood), 0.1, 0.9)
    theirs.fit_feature_maps(blobs.train.features, blobs.train.labels)
    ours = VRA(10, 90, below="clip").fit(blobs.train).score(blobs.ood)
    close(ours, theirs.predict_feature_maps(torch.from_numpy(x)), 1e-5)


def test_fdbd_is_its_definition(blobs):
    x, z, w, _ = arrays(blobs.ood)
    mean = blobs.train.features.double().numpy().mean(0)
    for relative, length in ((True, x - mean), (False, x)):
        expected = []
        for logits, norm in zip(z, np.linalg.norm(length, axis=1), strict=True):
            top = logits.argmax()
            others = [c for c in range(5) if c != top]
            ratio = [(logits[top] - logits[c]) / np.linalg.norm(w[top] - w[c]) for c in others]
            expected.append(-np.mean(ratio) / norm)
        close(FDBD(relative).fit(blobs.train).score(blobs.ood), expected, 1e-9)


def test_fdbd_stands_equal_weights_and_an_image_at_the_mean(make_bank):
    weight = torch.tensor([[1.0, 0.0], [1.0, 0.0], [0.0, 1.0]])
    features = torch.tensor([[1.0, 3.0], [3.0, 1.0], [2.0, 2.0]])
    bank = make_bank(features, torch.zeros(3).long(), weight, torch.tensor([0.0, 0.5, 0.0]))
    scores = FDBD().fit(bank).score(bank)
    assert scores.isfinite().all()
    # Row 0: z = (1, 1.5, 3), boundaries at (2 + 1.5)/√2 / 2, length √2 from the mean.
    close(scores[0], -(2 + 1.5) / 2 / 2, 1e-6)
    # Row 1: z = (3, 3.5, 1): no boundary with class 0.
    close(scores[1], -2.5 / 2 / 2, 1e-6)
    assert scores[2] < -1e9  # nothing is more typical than the mean
    assert NCI().fit(bank).score(bank).isfinite().all()


@pytest.mark.parametrize("alpha", [0, 1e-3])
def test_nci_is_its_definition_and_that_of_pytorch_ood(blobs, alpha):
    x, z, w, _ = arrays(blobs.ood)
    centered = x - blobs.train.features.double().numpy().mean(0)
    along = (w[z.argmax(1)] * centered).sum(1) / np.linalg.norm(centered, axis=1)
    scores = NCI(alpha).fit(blobs.train).score(blobs.ood)
    close(scores, -along - alpha * np.abs(x).sum(1), 1e-9)
    theirs = pytorch_ood.NCI(None, head_of(blobs.ood).float(), alpha)
    theirs.fit_features(blobs.train.features)
    close(scores, theirs.predict_features(blobs.ood.features), 1e-5)


def pnml_reference(train, bank, constant):
    def rows(b):
        unit = b.features.double().numpy()
        unit = unit / np.maximum(np.linalg.norm(unit, axis=1, keepdims=True), 1e-12)
        return np.concatenate([np.ones((len(unit), 1)), unit], axis=1)[:, 0 if constant else 1 :]

    h, fit = rows(bank), rows(train)
    inverse = np.linalg.pinv(fit.T @ fit, rcond=1e-10, hermitian=True)
    q = ((h @ inverse) * h).sum(1)
    outside = np.square(h - h @ inverse @ (fit.T @ fit)).sum(1)
    kappa = np.maximum(outside, q / (1 + q))[:, None]
    _, _, w, b = arrays(bank)
    p = softmax(rows(bank)[:, -w.shape[1] :] @ w.T + b, axis=1)
    return np.log((p / (p + (1 - p) * p**kappa)).sum(1)) / np.log(p.shape[1])


def test_pnml_is_its_definition(blobs, make_bank):
    close(PNML().fit(blobs.train).score(blobs.ood), pnml_reference(blobs.train, blobs.ood, 1), 1e-7)
    theirs = pytorch_ood.PNML(None, head_of(blobs.ood).float())
    theirs.fit_features(blobs.train.features, blobs.train.labels)
    reduced = pnml_reference(blobs.train, blobs.ood, 0)  # theirs leaves out the constant
    close(theirs.predict_features(blobs.ood.features), reduced, 1e-4)


def test_pnml_counts_what_lies_outside_the_span_of_the_fit_images(make_bank):
    torch.manual_seed(0)
    head = random_head(3, 4)
    train = make_bank(torch.rand(50, 4) * torch.tensor([1.0, 1, 1, 0]), torch.zeros(50), *head)
    bank = make_bank(torch.rand(9, 4), torch.zeros(9), *head)
    detector = PNML().fit(train)
    assert detector.describe()["rank"] == 4
    close(detector.score(bank), pnml_reference(train, bank, 1), 1e-7)
    assert detector.score(bank).mean() > 2 * detector.score(train).mean()


def test_grad_uncertainty_is_the_norm_of_the_gradient(blobs):
    bank = blobs.test.rows(torch.arange(20))
    weight = bank.head_weight.double().requires_grad_()
    expected = []
    for x in bank.features.double():
        z = weight @ x + bank.head_bias.double()
        (gradient,) = torch.autograd.grad(-z.log_softmax(0).sum(), weight)
        expected.append(-gradient.square().sum())
    close(GradUncertainty().score(bank), torch.stack(expected), 1e-5)


@pytest.mark.parametrize(
    "detector",
    [SCALE(), LTS(), VRA(), FDBD(), NCI(), PNML(), GradUncertainty(), NAC(fit_images=None)],
    ids=lambda d: d.name,
)
def test_two_classes_and_a_zero_vector(make_bank, detector):
    generator = torch.Generator().manual_seed(0)
    features = torch.rand(40, 6, generator=generator)
    bank = make_bank(features, torch.arange(40) % 2, *random_head(2, 6))
    zero = make_bank(torch.zeros(1, 6), torch.zeros(1).long(), *random_head(2, 6))
    assert detector.fit(bank).score(zero).isfinite().all()
    assert len(detector.score(bank).unique()) > 20 or detector.name == "nac"
