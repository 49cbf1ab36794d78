"""Pixel AUROC and AUPRO, next to other ways to compute them."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from scipy import ndimage
from torchmetrics.functional.classification import binary_auroc

from ood_lab.common.random_streams import Resampling
from ood_lab.metrics.pixel_scores import areas, pixel_counts, pixel_rows, thresholds_of


@pytest.fixture(scope="module")
def images():
    """Smooth maps, and masks of some regions that they show more or less."""
    rng, images = np.random.default_rng(0), []
    for number in range(24):
        mask = np.zeros((48, 40), bool)
        for _ in range(number % 4):
            y, x = rng.integers(0, (40, 32))
            mask[y : y + rng.integers(1, 9), x : x + rng.integers(1, 9)] = True
        scores = ndimage.gaussian_filter(rng.standard_normal(mask.shape), 2) * 3
        images.append((scores + rng.uniform(0, 2) * mask, mask))
    return images


def counts_of(images):
    thresholds = thresholds_of(np.concatenate([scores.ravel() for scores, _ in images]))
    return [pixel_counts(scores, mask, thresholds) for scores, mask in images]


def by_definition(images, limit=0.3):
    """Every region by itself, at every value of a score as threshold."""
    scores = np.concatenate([s.ravel() for s, _ in images])
    normal = np.sort(np.concatenate([s[~m] for s, m in images]))
    regions = [
        np.sort(s[labels == k])
        for s, m in images
        for labels, n in [ndimage.label(m, np.ones((3, 3)))]
        for k in range(1, n + 1)
    ]
    levels = np.append(np.inf, np.unique(scores)[::-1])

    def above(values):
        return 1 - np.searchsorted(values, levels) / len(values)

    fpr, pro = above(normal), np.mean([above(values) for values in regions], axis=0)
    grid = np.linspace(0, limit, 20_001)
    return float(np.interp(grid, fpr, pro).mean())


def test_areas_are_those_of_the_definitions(images):
    auroc, aupro = areas(sum(counts_of(images)))
    scores, masks = (
        torch.from_numpy(np.stack(part)).flatten() for part in zip(*images, strict=True)
    )
    expected = float(binary_auroc((scores - scores.min()) / 100, masks.long()))
    assert auroc == pytest.approx(expected, abs=3e-4)
    assert aupro == pytest.approx(by_definition(images), abs=1e-3)


def test_a_map_that_is_the_mask_is_perfect_and_a_constant_one_is_chance(images):
    perfect = counts_of([(mask.astype(float), mask) for _, mask in images])
    assert areas(sum(perfect)) == pytest.approx((1, 1))
    thresholds = np.linspace(1, 2, 5)
    constant = [pixel_counts(np.zeros(mask.shape), mask, thresholds) for _, mask in images]
    assert areas(sum(constant)) == pytest.approx((0.5, 0.15))


def test_rows_have_intervals_around_the_values(images):
    counts = counts_of(images * 10)
    marked = [mask.any() for _, mask in images] * 10
    ood = [c for c, m in zip(counts, marked, strict=True) if m]
    normal = [c for c, m in zip(counts, marked, strict=True) if not m] * 2
    rows = pixel_rows(normal, ood, resampling=Resampling(draws=200, seed=0))
    assert [row["metric"] for row in rows] == ["pixel_auroc", "aupro"]
    for row in rows:
        assert row["ci_low"] < row["value"] < row["ci_high"]
        assert row["n"] == row["n_id"] + row["n_ood"] == 120 + 180
