"""Detectors by distance in feature space, against a second implementation."""

import logging
from dataclasses import replace

import numpy as np
import pytest
import pytorch_ood.detector as pytorch_ood
import torch
from detector_toys import arrays, close, identity_head, random_head, relabelled
from scipy.spatial.distance import cdist
from scipy.special import logsumexp
from scipy.stats import multivariate_normal
from sklearn.decomposition import PCA
from sklearn.neighbors import NearestNeighbors
from sklearn.preprocessing import StandardScaler

from ood_lab.common.errors import UserError
from ood_lab.detectors import (
    GMM,
    KNN,
    MDS,
    MDSPP,
    NECO,
    RMDS,
    SHE,
    DetectorRefusal,
    NNGuide,
    OpenMax,
    Residual,
    ViM,
    check_memory,
)
from ood_lab.detectors.base import checked_score


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
    bank = make_bank(features, torch.zeros(3).long(), *identity_head(2))
    detector = KNN(k=2).fit(bank)
    close(detector.score(bank), neighbour_distances(features, features, 2), 1e-6)
    assert KNN(k=1).fit(bank).score(bank)[0] == 0


def test_knn_is_exact_in_a_bank_of_several_blocks(make_bank):
    generator = torch.Generator().manual_seed(0)
    features = torch.randn(33_000, 16, generator=generator).relu()  # a few rows are all 0
    assert (features[100:] == 0).all(dim=1).any()
    bank = make_bank(features, torch.zeros(33_000).long(), *random_head(2, 16))
    queries = bank.rows(torch.arange(50))
    queries.features[10:40] += torch.rand(30, 16, generator=generator)
    for k in (1, 50, 1000):
        detector = KNN(k=k).fit(bank)
        found = detector.score(queries)
        # float32 resolves squared distances to about 1e-7, so distances near 0 to 3e-4.
        expected = torch.from_numpy(neighbour_distances(features, queries.features, k))
        close(found.square(), expected.square(), 2e-6)
        again = detector.score(bank.rows(torch.arange(20)))
        close(again[:10], found[:10], 1e-6)


def test_knn_never_searches_the_bank_of_an_earlier_fit(blobs):
    detector = KNN(k=5).fit(blobs.train)
    first = detector.score(blobs.ood)
    detector.fit(blobs.test)
    assert torch.equal(detector.score(blobs.ood), KNN(k=5).fit(blobs.test).score(blobs.ood))
    assert not torch.equal(detector.score(blobs.ood), first)


@pytest.mark.parametrize("value", [torch.nan, torch.inf])
def test_knn_tells_features_that_are_not_finite(blobs, make_bank, value):
    def spoiled(bank):
        features = bank.features.clone()
        features[[3, 8], 1] = value
        return make_bank(features, bank.labels, *random_head(5, 32))

    with pytest.raises(UserError, match=r"knn gave NaN .* 2 of 200 .*\(first rows: 3, 8\)"):
        checked_score(KNN(k=5).fit(blobs.train), spoiled(blobs.test))
    with pytest.raises(UserError, match="KNN: the train features hold NaN or infinity"):
        KNN(k=5).fit(spoiled(blobs.train))


def test_knn_searches_the_features_themselves(blobs):
    detector = KNN().fit(blobs.train)
    assert detector.fitted["bank"].data_ptr() == blobs.train.features.data_ptr()


def test_knn_thins_its_bank_reproducibly(blobs):
    thinned = KNN(k=5, max_bank=40, seed=1).fit(blobs.train)
    assert thinned.describe()["bank"] == 40
    again = KNN(k=5, max_bank=40, seed=1).fit(blobs.train)
    assert torch.equal(thinned.fitted["bank"], again.fitted["bank"])
    other = KNN(k=5, max_bank=40, seed=2).fit(blobs.train)
    assert not torch.equal(thinned.fitted["bank"], other.fitted["bank"])


def test_knn_refuses_a_k_beyond_its_bank(blobs):
    refusal = "KNN: k=1,000 exceeds the 600 cached train images: set detector.knn.k"
    with pytest.raises(DetectorRefusal, match=refusal):
        KNN(k=1000).fit(blobs.train)


@pytest.mark.parametrize(("classes", "k"), [(10, 50), (11, 200), (100, 200), (101, 1000)])
def test_knn_of_the_authors_depends_on_the_number_of_classes(make_bank, classes, k):
    bank = make_bank(torch.rand(1000, 3), torch.zeros(1000).long(), *random_head(classes, 3))
    assert KNN(k="authors").fit(bank).describe()["k"] == k


@pytest.mark.parametrize(
    ("images", "classes", "k"),
    [(8, 8, 1), (182, 8, 3), (200, 10, 2), (5_000, 10, 50), (60, 0, 1), (182, 0, 2)],
)
def test_neighbours_are_a_tenth_of_a_class(make_bank, images, classes, k):
    """0 classes: no labels, taken as of ten classes."""
    labels = torch.arange(images) % classes if classes else torch.full((images,), -1)
    bank = make_bank(torch.rand(images, 3), labels, *random_head(max(classes, 2), 3))
    for detector in (KNN(), NNGuide()):
        assert detector.fit(bank).describe()["k"] == k
        assert detector.used_settings()["chosen"].startswith(f"k = {k}, for ")


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


def test_mds_pp_is_mds_of_unit_vectors(blobs):
    def unit(bank):
        return replace(bank, features=torch.nn.functional.normalize(bank.features))

    scores = MDSPP().fit(blobs.train).score(blobs.ood)
    close(scores, mahalanobis(unit(blobs.train), unit(blobs.ood).features), 1e-5)
    longer = replace(blobs.ood, features=3 * blobs.ood.features)
    close(MDSPP().fit(blobs.train).score(longer), scores, 1e-5)


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


@pytest.mark.parametrize("detector", [MDS, RMDS, SHE, GMM, OpenMax])
@pytest.mark.parametrize(("label", "reason"), [(-1, "all 600 are -1"), (0, "all are 0, but")])
def test_label_free_fit_splits_are_refused(blobs, detector, label, reason):
    bank = relabelled(blobs.train, torch.full((600,), label))
    refusal = f"{detector.__name__} needs class labels in the train split: {reason}"
    with pytest.raises(DetectorRefusal, match=refusal):
        detector().fit(bank)


def test_mds_refuses_a_fit_split_without_spread(make_bank):
    bank = make_bank(torch.eye(2).repeat(3, 1), torch.arange(6) % 2, *identity_head(2))
    with pytest.raises(DetectorRefusal, match="every train image equals its class mean"):
        MDS().fit(bank)


@pytest.mark.parametrize("detector", [MDS, RMDS, GMM, NECO, Residual, ViM])
def test_non_finite_fit_features_are_refused(blobs, make_bank, detector):
    features = blobs.train.features.clone()
    features[5, 5] = torch.nan
    bank = make_bank(features, blobs.train.labels, *random_head(5, 32))
    with pytest.raises(DetectorRefusal, match="train features hold NaN or infinity"):
        detector().fit(bank)


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


@pytest.mark.parametrize("kind", [ViM, Residual])
@pytest.mark.parametrize("dim", [32, 33, 256, "auto"])
def test_a_dimension_that_leaves_no_residual_is_halved(blobs, kind, dim):
    detector = kind(dim=dim).fit(blobs.train)
    assert detector.describe()["dim"] == 16
    assert detector.settings["dim"] == dim
    assert torch.equal(detector.score(blobs.ood), kind(dim=16).fit(blobs.train).score(blobs.ood))
    assert detector.score(blobs.ood).std() > 0


@pytest.mark.parametrize(
    ("d", "dim"),
    [(600, 512), (512, 256), pytest.param(2048, 1000, marks=pytest.mark.slow)],
)
def test_vim_of_the_authors_depends_on_the_width(make_bank, d, dim):
    generator = torch.Generator().manual_seed(0)
    features = torch.rand(4, d, generator=generator)
    bank = make_bank(features, torch.zeros(4).long(), *random_head(3, d))
    with pytest.raises(DetectorRefusal, match=f"no residual outside {dim} of {d} dimensions"):
        ViM(dim="authors").fit(bank)  # four images span four directions
    detector = ViM().fit(bank)
    assert detector.describe()["dim"] == 1
    assert detector.chosen == "dim = 1, for 4 images of rank 3"  # about their mean


@pytest.mark.parametrize("each", [1, 2, 18])
def test_few_images_shrink_the_covariance_as_scikit_learn_does(make_bank, each):
    """Where a class has one image, the covariance is that of all images."""
    from sklearn.covariance import ledoit_wolf

    generator = torch.Generator().manual_seed(each)
    labels = torch.arange(6).repeat(each)
    features = torch.randn(len(labels), 40, generator=generator) + labels[:, None] * 0.3
    bank = make_bank(features, labels, *random_head(6, 40))
    x, y = features.double().numpy(), labels.numpy()
    means = np.stack([x[y == c].mean(0) for c in range(6)])
    covariance, rho = ledoit_wolf(x - (means[y] if each > 1 else x.mean(0)), assume_centered=True)
    expected = cdist(x, means, "mahalanobis", VI=np.linalg.inv(covariance)).min(1) ** 2
    detector = MDS().fit(bank)
    close(detector.score(bank), expected, 1e-6)
    assert detector.describe()["shrinkage"] == pytest.approx(rho)
    marginal, _ = ledoit_wolf(x - x.mean(0), assume_centered=True)
    center = x.mean(0, keepdims=True)
    away = cdist(x, center, "mahalanobis", VI=np.linalg.inv(marginal))[:, 0] ** 2
    close(RMDS().fit(bank).score(bank), expected - away, 1e-6)
    parts = [
        np.log(1 / len(means)) + multivariate_normal(mean, covariance).logpdf(x) for mean in means
    ]
    if each > 1:
        close(GMM(ridge=1e-12).fit(bank).score(bank), -logsumexp(parts, axis=0), 1e-6)


def test_residual_is_the_length_outside_the_top_directions(blobs):
    w, b = (t.double().numpy() for t in (blobs.train.head_weight, blobs.train.head_bias))
    origin = -np.linalg.pinv(w) @ b
    basis = np.linalg.svd(blobs.train.features.double().numpy() - origin)[2][10:]
    expected = np.linalg.norm((blobs.ood.features.double().numpy() - origin) @ basis.T, axis=1)
    close(Residual(dim=10).fit(blobs.train).score(blobs.ood), expected, 1e-6)


@pytest.mark.parametrize(("dim", "used"), [("auto", 4), (7, 7), (99, 32)])
def test_neco_is_that_of_scikit_learn(blobs, dim, used):
    scaler = StandardScaler().fit(blobs.train.features.double().numpy())
    standard = scaler.transform(blobs.ood.features.double().numpy())
    pca = PCA(used).fit(scaler.transform(blobs.train.features.double().numpy()))
    share = np.linalg.norm(pca.transform(standard), axis=1) / np.linalg.norm(standard, axis=1)
    detector = NECO(dim).fit(blobs.train)
    assert detector.describe()["dim"] == used
    close(detector.score(blobs.ood), -share * blobs.ood.logits.double().amax(1).numpy(), 1e-6)
    close(NECO(dim, max_logit=False).fit(blobs.train).score(blobs.ood), -share, 1e-6)


def test_neco_is_not_decided_by_a_constant_feature(blobs, make_bank):
    def widened(bank, value):
        features = torch.cat([bank.features, torch.full((len(bank), 1), value)], dim=1)
        return make_bank(features, bank.labels, *random_head(5, 33))

    detector = NECO(max_logit=False).fit(widened(blobs.train, 0.1))
    scores = detector.score(widened(blobs.ood, 0.1))
    close(scores, NECO(max_logit=False).fit(blobs.train).score(blobs.ood), 1e-5)


def test_rmds_subtracts_the_distance_to_all_images(blobs):
    everything = relabelled(blobs.train, torch.zeros(600).long())
    expected = mahalanobis(blobs.train, blobs.ood.features) - mahalanobis(
        everything, blobs.ood.features
    )
    scores = RMDS().fit(blobs.train).score(blobs.ood)
    close(scores, expected, 1e-6)
    theirs = pytorch_ood.RMD(None)
    theirs.fit_features(blobs.train.features, blobs.train.labels)
    other = theirs.predict_features(blobs.ood.features)
    assert np.corrcoef(scores, other)[0, 1] > 0.9999


def test_rmds_refuses_an_absent_class(blobs):
    present = blobs.train.rows(blobs.train.labels != 3)
    with pytest.raises(DetectorRefusal, match=r"RMDS: 1 of 5 classes \(first: 3\) have no train"):
        RMDS().fit(present)


def test_she_compares_with_the_mean_of_correct_images(blobs):
    labels = blobs.train.labels.clone()
    labels[:30] = 4  # 24 of these images are now predicted wrong, and belong to no pattern
    train, bank = relabelled(blobs.train, labels), blobs.ood
    x, right = train.features.double().numpy(), (train.predictions == labels).numpy()
    assert (~right).sum() == 24
    stored = np.stack([x[right & (train.labels.numpy() == c)].mean(0) for c in range(5)])
    query, own = bank.features.double().numpy(), stored[bank.predictions.numpy()]
    inner = (query * own).sum(1)
    scores = SHE().fit(train).score(bank)
    close(scores, -inner, 1e-9)
    lengths = np.linalg.norm(query, axis=1) * np.linalg.norm(own, axis=1)
    close(SHE("cosine").fit(train).score(bank), -inner / lengths, 1e-9)
    distance = np.linalg.norm(query - own, axis=1)
    close(SHE("euclidean").fit(train).score(bank), distance, 1e-9)
    theirs = pytorch_ood.SHE(None, lambda z: z @ train.head_weight.T + train.head_bias)
    theirs.fit_features(train.features, train.labels)
    assert np.corrcoef(scores, theirs.predict_features(bank.features))[0, 1] > 0.9999


@pytest.mark.parametrize("each", [99, 100])
def test_she_compares_directions_below_100_correct_images_per_class(blobs, each):
    right = blobs.train.predictions == blobs.train.labels
    rows = [(right & (blobs.train.labels == c)).nonzero().flatten() for c in range(5)]
    few = torch.cat([of[torch.arange(each) % len(of)] for of in rows])
    found, metric = SHE("auto").fit(blobs.train.rows(few)), ["inner_product", "cosine"][each < 100]
    assert found.describe()["metric"] == metric
    assert found.chosen == f"metric = {metric}, for {each} correct images per class"
    expected = SHE(metric).fit(blobs.train.rows(few))
    close(found.score(blobs.ood), expected.score(blobs.ood))


def test_she_takes_the_most_probable_class_that_has_a_pattern(blobs):
    wrong = relabelled(blobs.train, torch.where(blobs.train.labels == 3, 4, blobs.train.labels))
    detector = SHE().fit(wrong)
    right = (wrong.predictions == wrong.labels).numpy()
    x, z, *_ = arrays(blobs.ood)
    train, y = wrong.features.double().numpy()[right], wrong.labels.numpy()[right]
    patterns = {c: train[y == c].mean(0) for c in (0, 1, 2, 4)}
    z[:, 3] = -np.inf
    expected = [-row @ patterns[c] for row, c in zip(x, z.argmax(1), strict=True)]
    close(detector.score(blobs.ood), expected, 1e-5)
    with pytest.raises(DetectorRefusal, match="SHE: no train image is classified correctly"):
        SHE().fit(relabelled(blobs.train, (blobs.train.predictions + 1) % 5))


def test_gmm_of_classes_is_that_of_scipy_and_of_pytorch_ood(blobs):
    # 10 images of a class for each of 12 features: no covariance is shrunk.
    train, ood = (
        replace(bank, features=bank.features[:, :12].contiguous())
        for bank in (blobs.train, blobs.ood)
    )
    x, y = train.features.double().numpy(), train.labels.numpy()
    query = ood.features.double().numpy()
    parts = [
        np.log((y == c).mean())
        + multivariate_normal(
            x[y == c].mean(0), np.cov(x[y == c].T, bias=True) + 1e-6 * np.eye(12)
        ).logpdf(query)
        for c in range(5)
    ]
    scores = GMM().fit(train).score(ood)
    close(scores, -logsumexp(parts, axis=0), 1e-6)
    theirs = pytorch_ood.GMM(None)
    theirs.fit_features(train.features.double(), train.labels)
    close(scores, theirs.predict_features(ood.features.double()), 1e-5)


def test_gmm_of_clusters_is_the_likelihood_of_scikit_learn(blobs):
    from sklearn.mixture import GaussianMixture

    mixture = GaussianMixture(3, covariance_type="tied", random_state=0)
    mixture.fit(blobs.train.features.double().numpy())
    unlabelled = relabelled(blobs.train, torch.full((600,), -1))
    scores = GMM("tied", clusters=3).fit(unlabelled).score(blobs.ood)
    close(scores, -mixture.score_samples(blobs.ood.features.double().numpy()), 1e-6)


def test_gmm_refuses_what_cannot_be_fitted(blobs):
    message = "GMM takes .* 2,048 features and 1,000 classes; .* set detector.gmm.covariance=tied"
    with pytest.raises(UserError, match=message):
        check_memory(GMM(), 10_000, 2048, 1000, 16 * 10**9)
    with pytest.raises(DetectorRefusal, match="GMM: 600 train images cannot make 700 clusters"):
        GMM("tied", clusters=700).fit(blobs.train)
