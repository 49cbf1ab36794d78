"""Statistics of images against independent computations, and the distance that they make."""

import colorsys

import numpy as np
import pytest
import torch
from scipy import ndimage

from ood_lab.schema.image_statistics import PIXELS
from ood_lab.shift import StatisticsDistance, image_statistics

RNG = np.random.default_rng(0)
#: A smooth picture with some noise, ``[H, W, 3]``.
SMOOTH = ndimage.gaussian_filter(RNG.random((32, 48, 3)), (4, 4, 0))
PICTURE = (4 * (SMOOTH - 0.5) + 0.5 + 0.02 * RNG.standard_normal(SMOOTH.shape)).clip(0, 1)


def measured(picture):
    pixels = torch.from_numpy(np.ascontiguousarray(picture.transpose(2, 0, 1))).float()[None]
    return dict(zip(PIXELS, image_statistics(pixels)[0].double().tolist(), strict=True))


def test_each_statistic_is_that_of_its_formula():
    red, green, blue = np.moveaxis(PICTURE, 2, 0)
    grey = 0.299 * red + 0.587 * green + 0.114 * blue
    cells = PICTURE.reshape(16, 2, 16, 3, 3).mean(axis=(1, 3))
    hsv = np.array([colorsys.rgb_to_hsv(*cell) for cell in cells.reshape(-1, 3)])
    rg, yb = cells[..., 0] - cells[..., 1], cells[..., :2].mean(axis=2) - cells[..., 2]
    cross = np.array([[0, 1, 0], [1, -4, 1], [0, 1, 0]])
    mask = np.array([[1, -2, 1], [-2, 4, -2], [1, -2, 1]])
    laplacian, noise = (ndimage.convolve(grey, of)[1:-1, 1:-1] for of in (cross, mask))
    power = np.abs(np.fft.fft2(grey - grey.mean())) ** 2
    radius = np.hypot(*np.meshgrid(np.fft.fftfreq(48), np.fft.fftfreq(32)))
    ordered = np.sort(np.abs(noise).ravel())
    middle = ordered[(len(ordered) - 1) // 2]  # torch takes the lower of two
    expected = {
        "brightness": grey.mean(),
        "contrast": grey.std(),
        "saturation": hsv[:, 1].mean(),
        "colourfulness": np.hypot(rg.std(), yb.std()) + 0.3 * np.hypot(rg.mean(), yb.mean()),
        "warmth": (red - blue).mean(),
        "sharpness": np.log10(laplacian.var() / grey.var()),
        "noise": np.log10(middle / (6 * 0.6745)),
        "high frequencies": np.log10(power[radius > 0.25].sum() / power.sum()),
        "clipped white": (grey >= 0.98).mean(),
        "clipped black": (grey <= 0.02).mean(),
    }
    found = measured(PICTURE)
    for name, value in expected.items():
        assert found[name] == pytest.approx(value, abs=2e-3), name


def test_the_noise_of_a_flat_picture_is_that_added_to_it():
    flat = 0.5 + 0.05 * RNG.standard_normal((200, 200, 1)).repeat(3, axis=2)
    assert 10 ** measured(flat)["noise"] == pytest.approx(0.05, rel=0.05)


@pytest.mark.parametrize("shift", [0, 3])
def test_blocks_of_eight_show_at_any_phase(shift):
    small = RNG.random((8, 8, 1)).repeat(3, axis=2)
    blocks = np.roll(small.repeat(8, axis=0).repeat(8, axis=1), shift, axis=(0, 1))
    assert measured(blocks)["blockiness"] > 5
    assert measured(RNG.random((64, 64, 3)))["blockiness"] < 1.3


def test_exposure_changes_brightness_and_contrast_but_not_sharpness():
    light, dark = measured(PICTURE), measured(0.5 * PICTURE)
    for name in ("brightness", "contrast"):
        assert dark[name] == pytest.approx(light[name] / 2, rel=1e-4)
    for name in ("saturation", "sharpness", "high frequencies"):
        assert dark[name] == pytest.approx(light[name], abs=1e-3)


def test_every_kind_of_image_has_finite_statistics():
    for shape in ((2, 1, 8, 8), (2, 5, 33, 7), (1, 3, 2, 2), (1, 3, 224, 224)):
        for fill in (0.0, 1.0):
            assert image_statistics(torch.full(shape, fill)).isfinite().all()


def test_the_distance_is_mahalanobis_with_a_ridge():
    train = RNG.random((60, len(PIXELS))) + 1
    log = train.copy()
    for place, added in ((8, 0), (9, 0.01), (10, 0.01)):
        log[:, place] = np.log10(log[:, place] + added)
    middle = np.median(log, axis=0)
    spread = np.maximum(1.4826 * np.median(np.abs(log - middle), axis=0), log.std(axis=0))
    z = (log - middle) / spread
    second = z.T @ z
    scale = np.sqrt(np.diag(second))
    ridged = second / np.outer(scale, scale) + 0.1 * np.eye(len(PIXELS))
    expected = [np.sqrt(row @ np.linalg.solve(ridged, row) / len(PIXELS)) for row in z]
    np.testing.assert_allclose(StatisticsDistance.of(train)(train), expected)


def test_a_statistic_that_never_varies_does_not_count():
    train = RNG.random((30, len(PIXELS)))
    train[:, 4] = 0.5
    other = train.copy()
    other[:, 4] = 0.9
    distance = StatisticsDistance.of(train)
    np.testing.assert_array_equal(distance(train), distance(other))
