"""Detectors over cached features, each against a second formula or implementation."""

import logging
import math

import numpy as np
import pytest
import pytorch_ood.detector as pytorch_ood
import torch
from scipy.spatial.distance import cdist
from scipy.stats import entropy, weibull_min
from sklearn.neighbors import NearestNeighbors
from torch import nn

from ood_lab.detectors import (
    ASH,
    DICE,
    EBO,
    KLM,
    KNN,
    MDS,
    MLS,
    MSP,
    DetectorRefusal,
    GradNorm,
    OpenMax,
    ReAct,
    ViM,
)
from ood_lab.detectors.numeric import percentile
from ood_lab.detectors.weibull import fit_weibull
from ood_lab.features.bank import FeatureBank


def close(actual, expected, tolerance=1e-9):
    expected = torch.as_tensor(expected, dtype=torch.float64)
    torch.testing.assert_close(actual.double(), expected, rtol=tolerance, atol=tolerance)


def logits_bank(rows) -> FeatureBank:
    """Features are the logits, under the identity as head."""
    logits = torch.tensor(rows)
    n, c = logits.shape
    return FeatureBank(logits, logits, torch.zeros(n).long(), torch.arange(n), *head(c))


def head(c):
    return torch.eye(c), torch.zeros(c)


def relabelled(bank, labels) -> FeatureBank:
    return FeatureBank(**{**vars(bank), "labels": labels})


def random_head(c, d):
    generator = torch.Generator().manual_seed(3)
    return torch.randn(c, d, generator=generator), torch.randn(c, generator=generator)


# --- logits only


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


# --- OpenMax


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


# --- last layer


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
    bank = make_bank(torch.tensor([[1.0, 3.0]]), torch.zeros(1).long(), *head(2))
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


# --- KNN


def neighbour_distances(train, queries, k):
    def unit(x):
        return x / np.maximum(np.linalg.norm(x, axis=1, keepdims=True), 1e-12)

    index = NearestNeighbors(n_neighbors=k).fit(unit(train.double().numpy()))
    return index.kneighbors(unit(queries.double().numpy()))[0][:, -1]


@pytest.mark.parametrize("k", [1, 50, 600])
def test_knn_is_exact(blobs, k):
    scores = KNN(k=k).fit(blobs.train).score(blobs.ood)
    close(scores, neighbour_distances(blobs.train.features, blobs.ood.features, k), 1e-5)


def test_knn_puts_a_zero_vector_at_distance_one(make_bank):
    features = torch.tensor([[0.0, 0.0], [3.0, 0.0], [0.0, 2.0]])
    bank = make_bank(features, torch.zeros(3).long(), *head(2))
    detector = KNN(k=2).fit(bank)
    close(detector.score(bank), neighbour_distances(features, features, 2), 1e-6)
    assert KNN(k=1).fit(bank).score(bank)[0] == 0


def test_knn_searches_the_features_themselves(blobs):
    detector = KNN().fit(blobs.train)
    assert detector.fitted["bank"].data_ptr() == blobs.train.features.data_ptr()


def test_knn_thins_its_bank_reproducibly(blobs):
    thinned = KNN(k=5, max_bank=40, max_per_class=10, seed=1).fit(blobs.train)
    assert thinned.describe()["bank"] == 40
    again = KNN(k=5, max_bank=40, max_per_class=10, seed=1).fit(blobs.train)
    assert torch.equal(thinned.fitted["bank"], again.fitted["bank"])
    other = KNN(k=5, max_bank=40, max_per_class=10, seed=2).fit(blobs.train)
    assert not torch.equal(thinned.fitted["bank"], other.fitted["bank"])

    per_class = KNN(k=5, max_per_class=10).fit(blobs.train)
    matches = (per_class.fitted["bank"][:, None] == blobs.train.features).all(dim=2)
    kept = blobs.train.labels[matches.nonzero()[:, 1]]
    assert kept.bincount().tolist() == [10] * 5


def test_knn_refuses_a_k_beyond_its_bank(blobs):
    refusal = "KNN: k=1,000 exceeds the bank of 600 train images: set detector.knn.k"
    with pytest.raises(DetectorRefusal, match=refusal):
        KNN(k=1000).fit(blobs.train)


def test_knn_cannot_thin_by_class_without_labels(blobs):
    bank = relabelled(blobs.train, torch.full((600,), -1))
    assert KNN().fit(bank)
    with pytest.raises(DetectorRefusal, match="KNN needs class labels in the train split"):
        KNN(max_per_class=3).fit(bank)


@pytest.mark.parametrize(("classes", "k"), [(10, 50), (11, 200), (100, 200), (101, 1000)])
def test_knn_auto_depends_on_the_number_of_classes(make_bank, classes, k):
    bank = make_bank(torch.rand(1000, 3), torch.zeros(1000).long(), *random_head(classes, 3))
    assert KNN(k="auto").fit(bank).describe()["k"] == k


# --- MDS


def mahalanobis(train, queries):
    x, y = train.features.double().numpy(), train.labels.numpy()
    means = np.stack([x[y == c].mean(0) for c in np.unique(y)])
    within = x - means[np.searchsorted(np.unique(y), y)]
    precision = np.linalg.pinv(within.T @ within / len(x), hermitian=True, rcond=1e-10)
    return cdist(queries.double().numpy(), means, "mahalanobis", VI=precision).min(1) ** 2


def test_mds_is_the_squared_mahalanobis_distance(blobs):
    scores = MDS().fit(blobs.train).score(blobs.ood)
    close(scores, mahalanobis(blobs.train, blobs.ood.features), 1e-6)
    theirs = pytorch_ood.Mahalanobis(None)
    theirs.fit_features(blobs.train.features, blobs.train.labels)
    ratio = scores / theirs.predict_features(blobs.ood.features).double()
    close(ratio, torch.full_like(ratio, 2 * len(blobs.train)), 1e-2)


def test_mds_survives_collinear_and_dead_features(blobs, make_bank):
    mix = torch.randn(32, 10, generator=torch.Generator().manual_seed(0))

    def widened(bank):
        # Collinear up to float32 rounding, then a feature that fires on OOD images only.
        fires = torch.full((len(bank), 1), 0.01 if bank is blobs.ood else 0.0)
        features = torch.cat([bank.features, bank.features @ mix, fires], dim=1)
        return make_bank(features, bank.labels, *random_head(5, 43))

    detector = MDS().fit(widened(blobs.train))
    assert detector.describe()["rank"] == 32
    scores = detector.score(widened(blobs.ood))
    assert (scores >= 0).all()
    close(scores, MDS().fit(blobs.train).score(blobs.ood), 1e-3)


def test_mds_skips_and_names_an_absent_class(blobs, caplog):
    present = blobs.train.rows(blobs.train.labels != 3)
    with caplog.at_level(logging.WARNING):
        detector = MDS().fit(present)
    assert "MDS: 1 classes (3) have no train image and are skipped" in caplog.text
    assert detector.describe()["classes"] == 4
    close(detector.score(blobs.ood), mahalanobis(present, blobs.ood.features), 1e-6)


def test_mds_takes_a_class_with_one_image_and_ignores_unlabelled_ones(blobs, caplog):
    labels = blobs.train.labels.clone()
    labels[labels == 3] = -1
    labels[3] = 3
    bank = relabelled(blobs.train, labels)
    with caplog.at_level(logging.WARNING):
        scores = MDS().fit(bank).score(blobs.ood)
    assert "MDS: 1 classes (3) have one image" in caplog.text
    close(scores, mahalanobis(bank.rows(labels >= 0), blobs.ood.features), 1e-6)


@pytest.mark.parametrize("detector", [MDS, OpenMax])
@pytest.mark.parametrize(("label", "reason"), [(-1, "all 600 are -1"), (0, "all are 0, but")])
def test_label_free_fit_splits_are_refused(blobs, detector, label, reason):
    bank = relabelled(blobs.train, torch.full((600,), label))
    refusal = f"{detector.__name__} needs class labels in the train split: {reason}"
    with pytest.raises(DetectorRefusal, match=refusal):
        detector().fit(bank)


def test_mds_refuses_a_fit_split_without_spread(make_bank):
    bank = make_bank(torch.eye(2).repeat(3, 1), torch.arange(6) % 2, *head(2))
    with pytest.raises(DetectorRefusal, match="every train image equals its class mean"):
        MDS().fit(bank)


@pytest.mark.parametrize("detector", [MDS, ViM])
def test_non_finite_fit_features_are_refused(blobs, make_bank, detector):
    features = blobs.train.features.clone()
    features[5, 5] = torch.nan
    bank = make_bank(features, blobs.train.labels, *random_head(5, 32))
    with pytest.raises(DetectorRefusal, match="train features hold NaN or infinity"):
        detector().fit(bank)


# --- ViM


def test_vim_is_its_definition_and_that_of_pytorch_ood(blobs):
    train, bank = blobs.train, blobs.ood
    weight, bias = train.head_weight.double(), train.head_bias.double()
    origin = -np.linalg.pinv(weight.numpy()) @ bias.numpy()
    basis = np.linalg.svd(train.features.double().numpy() - origin)[2][10:]

    def residual(b):
        return np.linalg.norm((b.features.double().numpy() - origin) @ basis.T, axis=1)

    alpha = train.logits.double().amax(1).mean().item() / residual(train).mean()
    expected = alpha * residual(bank) - bank.logits.double().logsumexp(1).numpy()
    scores = ViM(dim=10).fit(train).score(bank)
    close(scores, expected, 1e-6)
    theirs = pytorch_ood.ViM(None, 10, weight, bias)
    theirs.fit_features(train.features, train.labels)
    close(scores, theirs.predict_features(bank.features), 1e-3)


@pytest.mark.parametrize("dim", [32, 33, 256, "auto"])
def test_vim_halves_a_dimension_that_leaves_no_residual(blobs, dim):
    detector = ViM(dim=dim).fit(blobs.train)
    assert detector.describe()["dim"] == 16
    assert detector.describe()["dim_asked"] == dim
    assert torch.equal(detector.score(blobs.ood), ViM(dim=16).fit(blobs.train).score(blobs.ood))


@pytest.mark.parametrize(("d", "dim"), [(600, 512), (512, 256), (2048, 1000)])
def test_vim_auto_depends_on_the_width(make_bank, d, dim):
    generator = torch.Generator().manual_seed(0)
    features = torch.rand(4, d, generator=generator)
    bank = make_bank(features, torch.zeros(4).long(), *random_head(3, d))
    detector = ViM(dim="auto")
    with pytest.raises(DetectorRefusal, match=f"no residual outside {dim} of {d} dimensions"):
        detector.fit(bank)  # four images span four directions
