"""Detectors that compare with single fit images, each against loops over them."""

import logging

import numpy as np
import pytest
import pytorch_ood.detector as pytorch_ood
import torch
from detector_toys import close, identity_head, relabelled
from scipy.spatial.distance import cdist
from scipy.special import logsumexp, softmax

from ood_lab.detectors import CFOOD, GROOD, DetectorRefusal, NNGuide, Relation
from ood_lab.detectors.cfood import SHARES


def unit(bank):
    x = bank.features.double().numpy()
    return x / np.maximum(np.linalg.norm(x, axis=1, keepdims=True), 1e-12)


def energies(bank):
    return logsumexp(bank.logits.double().numpy(), axis=1)


@pytest.mark.parametrize("k", [1, 10, 600])
def test_nnguide_is_its_definition_and_that_of_pytorch_ood(blobs, k):
    train, bank = blobs.train, blobs.ood
    products = unit(bank) @ (unit(train) * energies(train)[:, None]).T
    guidance = np.sort(products, axis=1)[:, -k:].mean(1)
    scores = NNGuide(k).fit(train).score(bank)
    close(scores, -energies(bank) * guidance, 1e-5)
    theirs = pytorch_ood.NNGuide(None, lambda z: z @ train.head_weight.T + train.head_bias, k=k)
    theirs.fit_features(train.features, train.labels)
    close(scores, theirs.predict_features(bank.features), 1e-4)


def test_nnguide_draws_its_bank_at_random_and_refuses_a_k_beyond_it(blobs):
    by_class = blobs.train.rows(blobs.train.labels.argsort())  # as a list grouped by class is
    kept = NNGuide(5, max_bank=60).fit(by_class).fitted["bank"]
    places = (kept[:, None] == by_class.features).all(dim=2).nonzero()[:, 1]
    assert by_class.labels[places].bincount().min() > 3
    assert not torch.equal(kept, NNGuide(5, max_bank=60, seed=1).fit(by_class).fitted["bank"])
    refusal = "NNGuide: k=100 exceeds the 60 cached train images: set detector.nnguide.k"
    with pytest.raises(DetectorRefusal, match=refusal):
        NNGuide(100, max_bank=60).fit(by_class)


def test_nnguide_warns_where_energies_are_negative(blobs, make_bank, caplog):
    low = make_bank(
        blobs.train.features, blobs.train.labels, blobs.train.head_weight, torch.full((5,), -99.0)
    )
    with caplog.at_level(logging.WARNING):
        NNGuide(5).fit(blobs.train)
        assert not caplog.text
        NNGuide(5).fit(low)
    assert "not above 0 on 600 of 600 fit images" in caplog.text


@pytest.mark.parametrize("power", [1, 4])
def test_relation_sums_over_all_images(blobs, power):
    p = [softmax(bank.logits.double().numpy(), axis=1) for bank in (blobs.ood, blobs.train)]
    kernel = np.maximum(unit(blobs.ood) @ unit(blobs.train).T, 0) * (p[0] @ p[1].T)
    expected = -np.where(kernel > 0.03, kernel**power, 0).sum(1)
    close(Relation(power).fit(blobs.train).score(blobs.ood), expected, 1e-7)
    detector = Relation().fit(blobs.train)
    assert detector.fitted["features"].data_ptr() == blobs.train.features.data_ptr()
    assert Relation(max_bank=50).fit(blobs.train).describe()["bank"] == 50


def cfood_reference(references, queries, k):
    n = len(references)
    among = np.sort(cdist(references, references, "sqeuclidean"), axis=1)
    expected = []
    for query in queries:
        distances = ((references - query) ** 2).sum(1)
        for share in SHARES:
            radius = among[:, max(int(share * n - 1), 0) + 1]
            if (radius >= distances).sum() >= k * n - 1e-9:
                expected.append(share)
                break
        else:
            expected.append(1.0)
    return np.array(expected)


@pytest.mark.parametrize(("alpha", "k"), [(1.0, 0.01), (0.5, 0.2)])
def test_cfood_by_loops(blobs, alpha, k):
    detector = CFOOD(alpha, k, max_bank=int(600 * alpha)).fit(blobs.train)
    references = detector.fitted["bank"].numpy()
    assert len(references) == 600 * alpha
    queries = type(blobs.ood)(
        **{
            **vars(blobs.ood.rows(torch.arange(100))),
            "features": torch.cat([blobs.ood.features[:50], blobs.test.features[:50]]),
        }
    )
    expected = cfood_reference(references, unit(queries), k)
    assert len(np.unique(expected)) > 5
    close(detector.score(queries), expected, 1e-9)
    away = unit(queries) * -1
    bank = type(queries)(**{**vars(queries), "features": torch.from_numpy(away).float()})
    assert (detector.score(bank) == 1).any()


def test_cfood_refuses_too_few_references(blobs):
    assert len(CFOOD().fit(blobs.train.rows(torch.arange(10))).fitted["bank"]) == 10
    with pytest.raises(DetectorRefusal, match="CFOOD: 1 train images leave 1 references"):
        CFOOD().fit(blobs.train.rows(torch.arange(1)))


def grood_gradients(features, means, prototype):
    """By automatic differentiation of the cross-entropy towards the prototype's class."""
    gradients = []
    for x in features.double():
        p = prototype.clone().requires_grad_()
        away = torch.stack([(x - p).norm(), *(x - means).norm(dim=1)])
        # -log of the share that is not the prototype's: its gradient is that of the definition.
        loss = -(-away).log_softmax(0)[1]
        (gradient,) = torch.autograd.grad(loss, p)
        gradients.append(gradient)
    return torch.stack(gradients)


def test_grood_is_the_distance_between_gradients(blobs):
    train, bank = blobs.train, blobs.ood
    means = torch.stack([train.features[train.labels == c].double().mean(0) for c in range(5)])
    right = train.features[train.predictions == train.labels]
    own, stored = (
        grood_gradients(features, means, means.mean(0)).numpy()
        for features in (bank.features, right)
    )
    expected = cdist(own, stored, "sqeuclidean").min(1)
    close(GROOD().fit(train).score(bank), expected, 1e-6)
    assert GROOD(max_bank=50).fit(train).describe()["bank"] == 50


def test_grood_stands_an_image_at_the_prototype_and_refuses_without_a_correct_one(make_bank):
    bank = make_bank(torch.eye(2), torch.arange(2), *identity_head(2))
    middle = make_bank(torch.full((1, 2), 0.5), torch.zeros(1).long(), *identity_head(2))
    assert GROOD().fit(bank).score(middle).isfinite().all()
    with pytest.raises(DetectorRefusal, match="GROOD: no train image is classified correctly"):
        GROOD().fit(relabelled(bank, torch.tensor([1, 0])))
