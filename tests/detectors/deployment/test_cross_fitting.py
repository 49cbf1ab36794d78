"""p-values of images by a detector that was fitted on all ID images there are."""

from dataclasses import replace

import pandas as pd
import pytest
import torch
from cross_fitted import cross_fitted

import ood_lab
from ood_lab.common.errors import UserError
from ood_lab.detectors import KNN, MDS, CalibratedDetector, load_detector, save_detector
from ood_lab.detectors.deployment.calibration import cross_fitted_scores
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
        it = cross_fitted(detector().fit(bank), bank, 0.1)
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
        it = cross_fitted(detector.fit(bank), bank)
        scores = it.score(far)
        assert it.is_ood(scores).all(), detector
        assert group_comparison(it.id_scores, scores).p_value < 1e-9


def test_the_way_of_calibration_is_kept_in_the_file(tmp_path):
    bank = bank_of(10)
    it = cross_fitted(KNN().fit(bank), bank)
    save_detector(tmp_path / "it", it)
    assert load_detector(tmp_path / "it").calibration == it.calibration == "leave-one-out"
    assert "no p-value is below 1/11 = 0.091" in it.shortage
    with pytest.raises(UserError, match="one image"):
        cross_fitted(KNN(k=1).fit(bank_of(1)), bank_of(1))


def frames_of(scenes, frames, seed=0, d=8):
    """Frames that differ from their scene by a hundredth of what scenes differ by."""
    scene, generator = bank_of(scenes, seed, d), torch.Generator().manual_seed(seed + 1000)
    x = scene.features.repeat_interleave(frames, dim=0)
    x = x + 0.01 * torch.randn(x.shape, generator=generator)
    groups = torch.arange(scenes).repeat_interleave(frames)
    order = torch.randperm(len(x), generator=generator)
    return ood_lab.features_from_arrays(x[order], groups=groups[order])


def test_the_neighbour_of_an_image_is_of_another_group_and_folds_are_whole():
    bank = frames_of(12, 3)
    scores = cross_fitted_scores(KNN(k=2).fit(bank), bank)
    unit = torch.nn.functional.normalize(bank.features.double(), dim=1)
    distances = torch.cdist(unit, unit)
    distances[bank.groups[:, None] == bank.groups] = torch.inf
    torch.testing.assert_close(scores, distances.sort(dim=1).values[:, 1], atol=1e-3, rtol=0)
    codes = torch.from_numpy(pd.factorize(bank.groups.numpy())[0])
    order = torch.randperm(12, generator=torch.Generator().manual_seed(0))
    own = torch.isin(codes, order[3::10])
    scores = cross_fitted_scores(MDS().fit(bank), bank)
    torch.testing.assert_close(scores[own], MDS().fit(bank.rows(~own)).score(bank.rows(own)))


def test_a_group_has_weight_one_in_a_p_value(tmp_path):
    """Thirds add up to whole numbers: p is alpha itself where 1 of 19 groups is above."""
    generator = torch.Generator().manual_seed(0)
    groups = torch.arange(19).repeat_interleave(3)[torch.randperm(57, generator=generator)]
    scores = groups.double() + torch.rand(57, generator=generator, dtype=torch.float64) / 9
    made = {"alpha": 0.1, "weights_sha256": "", "transform": "", "groups": groups}
    it = CalibratedDetector.of(KNN().fit(bank_of(20)), scores, **made)
    save_detector(tmp_path / "it", it)
    it = load_detector(tmp_path / "it")
    new = torch.cat([scores, scores + 0.05, torch.tensor([17.5, 99.0])])
    share = torch.stack([(scores[groups == g, None] >= new).double().mean(0) for g in range(19)])
    torch.testing.assert_close(it.p_values(new), (1 + share.sum(0)) / 20)
    assert it.p_values(torch.tensor([17.5])) == 0.1
    assert it.is_ood(torch.tensor([it.threshold, 17.5])).tolist() == [False, True]
    assert it.groups == 19
    assert it.false_alarms == 1
    assert it.at(0.05).shortage is None
    assert "needs 99 ID groups, there are 19" in it.at(0.01).shortage
    assert it.at_threshold(17.0).false_positive_rate == pytest.approx(2 / 19)


def test_single_images_as_groups_change_nothing():
    bank, new = bank_of(40), bank_of(9, 1)
    single = ood_lab.features_from_arrays(bank.features, groups=[f"image {i}" for i in range(40)])
    for make in KNN, MDS:
        one, other = (cross_fitted(make().fit(b), b) for b in (bank, single))
        assert torch.equal(one.id_scores, other.id_scores)
        assert torch.equal(one.p_values(one.score(new)), other.p_values(other.score(new)))
        assert other.id_groups is None


def test_new_scenes_are_flagged_as_rarely_as_asked_for():
    """Where frames count as images, every new scene is stranger than all frames are."""
    flagged, p_of_groups, runs = [0, 0], [], 20
    for run in range(runs):
        bank, new = frames_of(30, 4, 2 * run), frames_of(20, 2, 2 * run + 1)
        for place, known in enumerate((bank, replace(bank, groups=None))):
            it = cross_fitted(KNN().fit(known), known, 0.1)
            flagged[place] += int(it.is_ood(it.score(new)).sum())
            if it.id_groups is not None:
                groups = it.id_groups, new.groups
                p_of_groups.append(group_comparison(it.id_scores, it.score(new), groups).p_value)
    assert flagged[0] / (40 * runs) < 0.1 + 4 * (0.1 * 0.9 * (1 / 30 + 1 / 20) / runs) ** 0.5
    assert flagged[1] / (40 * runs) > 0.9
    assert sum(p <= 0.05 for p in p_of_groups) <= 4  # P(X > 4) = 0.3% of Binomial(20, 0.05)


def test_copies_of_images_in_their_groups_compare_as_the_images_do():
    generator = torch.Generator().manual_seed(0)
    inside, outside = torch.randn(30, generator=generator), torch.randn(12, generator=generator) + 1
    copies = inside.repeat_interleave(3), outside.repeat(2)
    groups = torch.arange(30).repeat_interleave(3), torch.arange(12).repeat(2)
    one, other = group_comparison(inside, outside), group_comparison(*copies, groups)
    assert other == pytest.approx(one, rel=1e-9)
