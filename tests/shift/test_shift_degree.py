"""Shift degrees: distances to the k-th nearest ID image in both parts."""

import numpy as np
import pytest
import torch
import torch.nn.functional as F

from ood_lab.schema.image_columns import AXES
from ood_lab.shift import Decomposition, ShiftMeter, polar_factor, undecomposed

CLIP = {"name": "toy", "weights_sha256": "a" * 64}


def brute(queries, bank, k):
    distances = 1 - queries.double().numpy() @ bank.double().numpy().T
    return np.sort(distances, axis=1)[:, k - 1]


def test_degrees_of_both_halves():
    W = polar_factor(torch.randn(12, 12))
    split = Decomposition("laid", W, 6, CLIP, k=2)
    bank, features = torch.randn(30, 12), torch.randn(7, 12)
    meter = ShiftMeter(split, bank)
    degrees = meter(features)
    expected = [brute(split.part(features, axis), split.part(bank, axis), 2) for axis in AXES]
    np.testing.assert_allclose(degrees.semantic, expected[0], atol=1e-6)
    np.testing.assert_allclose(degrees.covariate, expected[1], atol=1e-6)
    for axis, first in zip(AXES, degrees, strict=True):
        assert torch.equal(meter.on_axis(axis, features), first)
    # A rotation within the halves, and the length of the features, change nothing.
    turn = torch.block_diag(polar_factor(torch.randn(6, 6)), polar_factor(torch.randn(6, 6)))
    turned = ShiftMeter(Decomposition("laid", W @ turn, 6, CLIP, k=2), 3 * bank)(features)
    np.testing.assert_allclose(turned.semantic, degrees.semantic, atol=1e-5)
    np.testing.assert_allclose(turned.covariate, degrees.covariate, atol=1e-5)


def test_undecomposed_degrees_are_equal():
    bank = torch.randn(30, 12)
    degrees = ShiftMeter(undecomposed(12, CLIP), bank, k=3)(bank[:5])
    assert torch.equal(degrees.semantic, degrees.covariate)
    expected = brute(F.normalize(bank[:5]), F.normalize(bank), 3)
    np.testing.assert_allclose(degrees.semantic, expected, atol=1e-6)


def test_features_without_a_direction_are_refused():
    meter, bank = ShiftMeter(undecomposed(4, CLIP), torch.eye(4), k=1), torch.eye(4)
    with pytest.raises(ValueError, match="part of the images: 1 rows hold NaN"):
        meter(torch.cat([bank[:2], torch.full((1, 4), torch.nan)]))
    with pytest.raises(ValueError, match="part of the ID images"):
        ShiftMeter(undecomposed(4, CLIP), torch.full((3, 4), torch.nan), k=1)(bank)


def test_features_that_are_all_zero_are_at_distance_one_from_every_image():
    meter = ShiftMeter(undecomposed(4, CLIP), torch.eye(4), k=1)
    assert meter(torch.cat([torch.zeros(1, 4), torch.eye(4)])).semantic.tolist() == [1, 0, 0, 0, 0]
