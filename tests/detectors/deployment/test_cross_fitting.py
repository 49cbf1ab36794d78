"""p-values of images by a detector that was fitted on all ID images there are."""

import pytest
import torch

import ood_lab
from ood_lab.common.errors import UserError
from ood_lab.detectors import KNN, MDS, CalibratedDetector, load_detector, save_detector
from ood_lab.detectors.deployment.cross_fitting import cross_fitted_scores
from ood_lab.metrics import group_comparison


def bank_of(n, seed=0, d=8):
    generator = torch.Generator().manual_seed(seed)
    return ood_lab.features_from_arrays(torch.randn(n, d, generator=generator) + 3)


def test_leave_one_out_is_the_neighbour_among_the_others():
    bank = bank_of(40)
    scores = cross_fitted_scores(KNN(k=2).fit(bank), bank)
    unit = torch.nn.functional.normalize(bank.features.double(), dim=1)
    distances = torch.cdist(unit, unit).fill_diagonal_(torch.inf)
    torch.testing.assert_close(scores, distances.sort(dim=1).values[:, 1], atol=1e-3, rtol=0)


def test_k_is_that_of_all_images_in_every_fit():
    """101 images of unknown classes have k = 2, 100 have 1: new scores would all be higher."""
    bank = bank_of(101)
    scores = [cross_fitted_scores(KNN(k=k).fit(bank), bank) for k in ("auto", 2)]
    assert torch.equal(*scores)


def test_folds_are_scored_by_fits_on_the_others():
    bank = bank_of(50)
    scores = cross_fitted_scores(MDS().fit(bank), bank, seed=3)
    order = torch.randperm(50, generator=torch.Generator().manual_seed(3))
    for part in range(10):
        own = torch.zeros(50, dtype=torch.bool)
        own[order[part::10]] = True
        expected = MDS().fit(bank.rows(~own)).score(bank.rows(own))
        torch.testing.assert_close(scores[own], expected)


@pytest.mark.slow
@pytest.mark.parametrize("detector", [KNN, MDS])
def test_false_alarms_are_as_rare_as_asked_for(detector):
    flagged, p_of_groups, runs = 0, [], 30
    for run in range(runs):
        bank, new = bank_of(40, 2 * run), bank_of(50, 2 * run + 1)
        it = CalibratedDetector.cross_fitted(detector().fit(bank), bank, 0.1)
        flagged += int(it.is_ood(it.score(new)).sum())
        p_of_groups.append(group_comparison(it.id_scores, it.score(new)).p_value)
    assert flagged / (50 * runs) < 0.1 + 4 * (0.1 * 0.9 * (1 / 40 + 1 / 50) / runs) ** 0.5
    assert sum(p <= 0.05 for p in p_of_groups) <= 5  # P(X > 5) = 0.3% of Binomial(30, 0.05)


def test_one_broken_photograph_does_not_blind_the_answer():
    bank = bank_of(60)
    bank.features[7] = 0  # as of a black image
    far = ood_lab.features_from_arrays(-bank_of(30, 1).features)
    far.features[:, 0] += 20
    for detector in (KNN(), MDS()):
        it = CalibratedDetector.cross_fitted(detector.fit(bank), bank)
        scores = it.score(far)
        assert it.is_ood(scores).all(), detector
        assert group_comparison(it.id_scores, scores).p_value < 1e-9


def test_the_way_of_calibration_is_kept_in_the_file(tmp_path):
    bank = bank_of(10)
    it = CalibratedDetector.cross_fitted(KNN().fit(bank), bank)
    save_detector(tmp_path / "it", it)
    assert load_detector(tmp_path / "it").calibration == it.calibration == "leave-one-out"
    assert "no p-value is below 1/11 = 0.091" in it.shortage
    with pytest.raises(UserError, match="one image"):
        CalibratedDetector.cross_fitted(KNN(k=1).fit(bank_of(1)), bank_of(1))
