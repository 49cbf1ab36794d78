"""Losses, scores and the schedule: values of the authors' code, and second formulas."""

import pytest
import torch
import torch.nn.functional as F
from prompt_waves import cosines, sines

from ood_lab.detectors import DetectorRefusal
from ood_lab.features.bank import FeatureBank
from ood_lab.prompts import GLMCM, LMCM, MCM, CLIPNScore, IDLikeScore, warmup_cosine
from ood_lab.prompts.clipn import agreeing_to_differ, competing_to_win
from ood_lab.prompts.idlike import diversity_loss, id_log_odds, outlier_loss, select_views
from ood_lab.prompts.locoop import outlier_entropy, outlier_regions

LOCAL, GLOBAL = sines((2, 4, 5), 0.7, 0.3, 4), cosines((2, 5), 0.5, 0.0, 4)
LABELS = torch.tensor([1, 3])


@pytest.mark.parametrize(
    ("k", "regions", "entropy", "loss"),
    [
        (1, [0, 1, 3, 4, 5, 6], 0.613600, 1.425966),
        (2, [1, 3, 4, 6], 0.424533, 1.473233),
        (3, [1, 3, 4, 6], 0.424533, 1.473233),
        (4, [1, 6], 0.358415, 1.489762),
        (5, [], 0.0, 1.579366),
    ],
)
def test_locoop(k, regions, entropy, loss):
    assert outlier_regions(LOCAL, LABELS, k).flatten().nonzero().flatten().tolist() == regions
    h = outlier_entropy(LOCAL, LABELS, k)
    torch.testing.assert_close(h, torch.tensor(entropy), atol=1e-6, rtol=0)
    total = F.cross_entropy(GLOBAL, LABELS) - 0.25 * h
    torch.testing.assert_close(total, torch.tensor(loss), atol=1e-6, rtol=0)


def test_locoop_regions_are_those_outside_the_top_k():
    logits = torch.randn(3, 7, 9, generator=torch.Generator().manual_seed(0))
    labels = torch.tensor([4, 0, 8])
    for k in range(1, 9):
        top = logits.topk(k, dim=2).indices
        expected = ~(top == labels[:, None, None]).any(dim=2)
        assert torch.equal(outlier_regions(logits, labels, k), expected)


def test_locoop_without_regions_has_gradients():
    logits = LOCAL.clone().requires_grad_()
    outlier_entropy(logits, LABELS, 5).backward()
    assert torch.equal(logits.grad, torch.zeros_like(logits))


IMAGES, TEXTS = sines((3, 4), 0.9, 0.2), cosines((5, 4), 1.3, 0.5)
REGIONS = sines((3, 2, 2, 4), 0.6, 0.1).flatten(1, 2)
MCM_SCORES = [-0.331384, -0.375225, -0.350773]
LOCAL_SCORES = [-0.417231, -0.369771, -0.419629]


def bank(**columns):
    features = F.normalize(IMAGES, dim=1)
    weight = 14.3 * F.normalize(TEXTS, dim=1)  # the scale does not matter
    zeros = torch.zeros(3, dtype=torch.int64)
    return FeatureBank(
        features, features @ weight.T, zeros, torch.arange(3), weight, torch.zeros(5), columns
    )


def close(scores, expected):
    torch.testing.assert_close(scores, torch.tensor(expected).double(), atol=2e-6, rtol=0)


def test_mcm():
    cosine = F.normalize(IMAGES, dim=1) @ F.normalize(TEXTS, dim=1).T
    close(cosine[0].double(), [-0.557039, 0.102921, 0.724934, 0.495270, -0.170347])
    close(MCM().score(bank()), MCM_SCORES)
    close(MCM(temperature=0.01).score(bank()), [-1.0, -1.0, -1.0])  # saturated


class Clip:
    """Stands for the two towers: images are their own features."""

    def image_features_and_local(self, images):
        return F.normalize(IMAGES, dim=1), F.normalize(REGIONS, dim=2)


def test_gl_mcm(monkeypatch):
    from types import SimpleNamespace

    from ood_lab.prompts import mcm

    monkeypatch.setattr(mcm, "ClipImages", SimpleNamespace)
    backbone = SimpleNamespace(clip=Clip(), head=SimpleNamespace(weight=bank().head_weight))
    for detector, expected in (
        (LMCM(), LOCAL_SCORES),
        (GLMCM(), [-0.748615, -0.744996, -0.770401]),
        (GLMCM(weight=0.5), [-0.540000, -0.560110, -0.560587]),
    ):
        assert (detector.cost, detector.input_type) == ("forward", "network")
        column = detector.extraction_hook
        values = column.compute(backbone, IMAGES, None, {})
        close(detector.score(bank(**{column.key: values})), expected)
        with pytest.raises(DetectorRefusal, match="extracted without"):
            detector.score(bank())


def test_mcm_wants_normalised_features():
    raw = bank()
    raw = FeatureBank(**{**vars(raw), "features": 3 * raw.features})
    with pytest.raises(DetectorRefusal, match="model=clip"):
        MCM().score(raw)


PROMPTS = F.normalize(sines((6, 4), 2.3, 0.4), dim=1)  # 3 classes, 3 outliers
X_IN = F.normalize(sines((4, 4), 0.8, 0.6), dim=1)
X_OUT = F.normalize(sines((4, 4), 0.5, 1.7), dim=1)
Y = torch.tensor([0, 1, 2, 0])


@pytest.mark.parametrize(
    ("scale", "expected"),
    [
        (10, [1.787003, -0.557404, 0.295581, 1.678898]),
        (100, [3.180993, -0.679858, 0.295581, 3.036152]),
    ],
)
def test_idlike_losses(scale, expected):
    inside = F.cross_entropy(scale * X_IN @ PROMPTS.T, Y)
    outside = outlier_loss(scale * X_OUT @ PROMPTS.T, classes=3)
    diversity = diversity_loss(PROMPTS[3:])
    total = inside + 0.3 * outside + 0.2 * diversity
    found = torch.stack([inside, outside, diversity, total])
    torch.testing.assert_close(found, torch.tensor(expected), atol=2e-5, rtol=0)


def test_idlike_loss_is_bounded_below():
    far = torch.tensor([[-500.0, 500.0]])
    close(outlier_loss(far, classes=1).double()[None], [-36.841361])


def test_diversity_is_the_mean_over_pairs():
    texts = F.normalize(torch.randn(7, 5, generator=torch.Generator().manual_seed(1)), dim=1)
    pairs = [max(0.0, float(texts[i] @ texts[j])) for i in range(7) for j in range(i)]
    assert float(diversity_loss(texts)) == pytest.approx(sum(pairs) / len(pairs))
    assert float(diversity_loss(texts[:1])) == 0


def test_idlike_selection():
    inside, outside = select_views(torch.tensor([[0.2, 0.9, 0.5, 0.1, 0.7, 0.3]]), 2)
    assert inside.tolist() == [[1, 4]]
    assert outside.tolist() == [[3, 0]]


def test_idlike_score_is_the_log_odds_of_the_probability():
    logits = 10 * F.normalize(IMAGES, dim=1) @ PROMPTS.T
    odds = id_log_odds(logits[:, :3], logits[:, 3:])
    close(-odds.sigmoid().double(), [-0.523284, -0.426681, -0.497399])
    torch.testing.assert_close(odds.sigmoid(), logits.softmax(dim=1)[:, :3].sum(dim=1))
    stored = bank(**{IDLikeScore().extraction_hook.key: odds})
    assert torch.equal(IDLikeScore().score(stored), -odds.double())


def test_clipn_scores():
    yes, no = sines((3, 4), 0.7, 0.3, 4), cosines((3, 4), 0.5, 0.1, 4)
    won, none = competing_to_win(yes, no), agreeing_to_differ(yes, no)
    close(won.sigmoid().double(), [0.895881, 0.898959, 0.701650])
    close(1 - none.exp().double(), [0.765606, 0.873375, 0.765700])
    stored = bank(**{CLIPNScore().extraction_hook.key: torch.stack([won, none], dim=1)})
    assert torch.equal(CLIPNScore().score(stored), none.double())
    assert torch.equal(CLIPNScore(rule="ctw").score(stored), -won.double())


def test_the_schedule():
    parameter = torch.nn.Parameter(torch.zeros(1))
    optimizer = torch.optim.SGD([parameter], lr=2e-3)
    schedule = warmup_cosine(optimizer, T_max=5)
    rates = []
    for _ in range(5):
        rates.append(optimizer.param_groups[0]["lr"])
        optimizer.step()
        schedule.step()
    expected = [1e-5, 2e-3, 1.80901699e-3, 1.30901699e-3, 6.90983006e-4]
    assert rates == pytest.approx(expected, rel=1e-8)
