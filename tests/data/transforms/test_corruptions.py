"""The corruptions against other ways to compute them: moments, other libraries, plain formulas."""

import io

import matplotlib.colors
import numpy as np
import pytest
import torch
import torchvision.transforms.v2.functional as F
from PIL import Image
from scipy import ndimage, stats

from ood_lab.data.transforms import corruptions as c
from ood_lab.data.transforms.corruptions import CORRUPTIONS, SEVERITIES, SIZES, corrupt


def rng(seed=0):
    return np.random.default_rng(seed)


def photo(height=96, width=128):
    """Smooth colours, an edge and some texture, in [0, 1]."""
    y, x = np.mgrid[:height, :width] / height
    base = np.stack([0.5 + 0.4 * np.sin(5 * x), 0.3 + 0.5 * y, 0.6 - 0.3 * x * y], -1)
    base[height // 3 : height // 2, width // 4 : width // 2] *= 0.3
    return np.clip(base + 0.05 * rng(1).normal(size=base.shape), 0, 1)


def as_image(x):
    return Image.fromarray((x * 255).round().astype(np.uint8))


def test_there_are_fifteen_with_five_strengths_at_each_size():
    assert len(CORRUPTIONS) == 15
    for corruption in CORRUPTIONS.values():
        assert tuple(corruption.strengths) == SIZES
        assert all(len(strengths) == 5 for strengths in corruption.strengths.values())


def test_an_image_takes_the_nearest_published_size():
    sides = (8, 32, 44, 46, 64, 96, 119, 121, 224, 512)
    assert [c.published_size(side) for side in sides] == [32] * 3 + [64] * 4 + [224] * 3


@pytest.mark.slow
@pytest.mark.parametrize("name", CORRUPTIONS)
@pytest.mark.parametrize("size", [(33, 40), (90, 64), (150, 130)])
def test_every_one_keeps_the_size_and_repeats_itself(name, size):
    image = as_image(photo(*size[::-1]))
    for severity in SEVERITIES:
        one, two = (corrupt(image, name, severity, rng(3)) for _ in range(2))
        assert (one.size, one.mode) == (size, "RGB")
        assert one.tobytes() == two.tobytes()
        assert one.tobytes() != image.tobytes()


@pytest.mark.slow
@pytest.mark.parametrize("name", sorted(set(CORRUPTIONS) - {"elastic_transform"}))
def test_the_strongest_changes_most(name):
    # The published strengths of the elastic transform are not in order.
    image = as_image(photo(224, 224))
    start = np.asarray(image, float)

    def change(severity):
        made = [np.asarray(corrupt(image, name, severity, rng(k)), float) for k in range(3)]
        return np.abs(np.stack(made) - start).mean()

    moved = [change(severity) for severity in (1, 3, 5)]
    assert moved[0] < moved[2]
    assert moved[1] < 1.1 * moved[2]


def test_gaussian_noise_has_its_moments():
    grey = np.full((200, 200, 3), 0.5)
    noise = c.gaussian_noise(grey, rng(), 0.08) - 0.5
    assert abs(noise.mean()) < 4 * 0.08 / np.sqrt(noise.size)
    assert noise.std() == pytest.approx(0.08, rel=0.02)
    assert stats.kstest(noise.ravel() / 0.08, "norm").pvalue > 1e-3


def test_shot_noise_has_the_variance_of_its_photons():
    grey = np.full((200, 200, 3), 0.3)
    noisy = c.shot_noise(grey, rng(), 25)
    assert noisy.mean() == pytest.approx(0.3, rel=0.01)
    assert noisy.var() == pytest.approx(0.3 / 25, rel=0.03)
    np.testing.assert_allclose(noisy * 25 % 1, 0, atol=1e-9)


def test_impulses_hit_their_share_half_of_them_white():
    noisy = c.impulse_noise(np.full((200, 200, 3), 0.5), rng(), 0.09)
    assert (noisy == 1).mean() == pytest.approx(0.045, rel=0.1)
    assert (noisy == 0).mean() == pytest.approx(0.045, rel=0.1)
    assert set(np.unique(noisy)) == {0, 0.5, 1}


@pytest.mark.parametrize(("radius", "softness"), [(3, 0.1), (8, 0.5), (10, 0.5), (0.3, 0.4)])
def test_the_kernel_of_defocus_is_an_even_disk(radius, softness):
    kernel = c.disk(radius, softness)
    # Softened at the border of its grid, a large one gains a little, as the published one does.
    assert kernel.sum() == pytest.approx(1, abs=0.03 if radius >= 8 else 1e-9)
    np.testing.assert_allclose(kernel, kernel[::-1])
    np.testing.assert_allclose(kernel, kernel.T)
    middle = len(kernel) // 2
    inside = sum(i * i + j * j <= radius**2 for i in range(-20, 21) for j in range(-20, 21))
    if radius > 3:
        assert kernel[middle, middle] == pytest.approx(1 / inside)
    assert not kernel[middle, middle + int(radius) + 3 :].any()


def test_defocus_is_a_convolution_with_that_kernel():
    x = photo()
    expected = [ndimage.convolve(x[..., k], c.disk(4, 0.5), mode="mirror") for k in range(3)]
    np.testing.assert_allclose(c.defocus_blur(x, rng(), 4, 0.5), np.stack(expected, -1), atol=1e-9)


def test_blurs_keep_the_mean_and_even_images():
    even, x = np.full((64, 80, 3), 0.4), photo()
    for blur in (
        lambda a: c.defocus_blur(a, rng(), 6, 0.5),
        lambda a: c.motion_blur(a, rng(), 15, 8),
        lambda a: c.zoom_blur(a, rng(), 1.16, 0.01),
    ):
        np.testing.assert_allclose(blur(even), even, atol=1e-9)
        assert blur(x).mean() == pytest.approx(x.mean(), abs=0.02)
        assert np.abs(np.diff(blur(x), axis=1)).mean() < np.abs(np.diff(x, axis=1)).mean() / 2


def test_motion_is_half_a_gaussian_along_one_line():
    point = np.zeros((101, 101))
    point[50, 50] = 1
    weights = np.exp(-(np.arange(31) ** 2) / 50)
    weights /= weights.sum()
    straight = c._streak(point, 15, 5, 0.0)
    np.testing.assert_allclose(straight[50, 50:19:-1], weights, atol=1e-12)
    for angle in (0.5, -2.0):
        spread = c._streak(point, 15, 5, angle)
        assert spread.sum() == pytest.approx(1)
        rows, columns = np.nonzero(spread)
        offsets = np.c_[50 - rows, 50 - columns]
        across = offsets @ (-np.cos(angle), np.sin(angle))
        assert np.abs(across).max() <= 0.75  # rounded to pixels
        along = offsets @ (np.sin(angle), np.cos(angle))
        mean = spread[rows, columns] @ along
        assert mean == pytest.approx(weights @ np.arange(31), abs=0.3)


def test_glass_takes_colours_from_neighbours_in_turn():
    x = photo(20, 26)
    expected = np.floor(ndimage.gaussian_filter(x, (0.7, 0.7, 0), mode="nearest") * 255) / 255
    down, right = rng().integers(-2, 2, (2, 2 * 16 * 22))
    step = 0
    for _ in range(2):
        for row in range(18, 2, -1):
            for column in range(24, 2, -1):
                expected[row, column] = expected[row + down[step], column + right[step]]
                step += 1
    expected = ndimage.gaussian_filter(expected, (0.7, 0.7, 0), mode="nearest")
    np.testing.assert_allclose(c.glass_blur(x, rng(), 0.7, 2, 2), expected, atol=1e-9)


def test_brightness_raises_v_of_hsv():
    x = photo()
    x[0, 0] = 0
    hsv = matplotlib.colors.rgb_to_hsv(x)
    hsv[..., 2] = np.clip(hsv[..., 2] + 0.3, 0, 1)
    expected = matplotlib.colors.hsv_to_rgb(hsv)
    np.testing.assert_allclose(c.brightness(x, rng(), 0.3), expected, atol=1e-9)


def test_contrast_draws_channels_to_their_mean():
    x = photo()
    out = c.contrast(x, rng(), 0.2)
    np.testing.assert_allclose(out.mean((0, 1)), x.mean((0, 1)))
    np.testing.assert_allclose(out.std((0, 1)), 0.2 * x.std((0, 1)))


def test_pixelate_is_area_means_written_back():
    x = photo(64, 128)
    out = c.pixelate(x, rng(), 0.25)
    whole = (x * 255).round()
    blocks = whole.reshape(16, 4, 32, 4, 3).mean((1, 3)).repeat(4, 0).repeat(4, 1)
    np.testing.assert_allclose(out * 255, blocks, atol=1.01)  # rounded along each side


def test_jpeg_is_that_of_another_writer():
    x = photo()
    tensor = torch.from_numpy(np.asarray(as_image(x)).copy()).permute(2, 0, 1)
    other = F.jpeg(tensor, 15).permute(1, 2, 0).numpy() / 255
    assert np.abs(c.jpeg_compression(x, rng(), 15) - other).mean() < 2 / 255
    assert np.abs(other - x).mean() > 5 / 255
    tables = Image.open(io.BytesIO(_stored(x, 15))).quantization
    assert tables[0][0] == (16 * (5000 // 15) + 50) // 100  # the standard's table at that quality


def _stored(x, quality):
    stored = io.BytesIO()
    as_image(x).save(stored, "JPEG", quality=quality)
    return stored.getvalue()


def test_plasma_fills_its_range_and_is_smooth_for_a_fast_decay():
    rough, smooth = (c.plasma(rng(), (96, 128), decay) for decay in (1.2, 3))
    for field in (rough, smooth):
        assert field.shape == (96, 128)
        assert 0 <= field.min() < 0.4
        assert 0.6 < field.max() <= 1
    steps = [np.abs(np.diff(field, axis=0)).mean() for field in (rough, smooth)]
    assert steps[1] < steps[0] / 3


def test_fog_mixes_in_plasma_up_to_the_brightest():
    x = photo()
    cloud = c.plasma(rng(5), (96, 128), 2.0)
    expected = (x + 1.5 * cloud[..., None]) * x.max() / (x.max() + 1.5)
    np.testing.assert_allclose(c.fog(x, rng(5), 1.5, 2.0), expected)


def test_zooms_are_those_of_a_linear_interpolation():
    x = np.zeros((60, 60))
    x[20:40, 20:40] = 1
    out = c._zoomed(x, 1.5)
    assert out.shape == x.shape
    assert out.sum() == pytest.approx(1.5**2 * x.sum(), rel=0.06)
    inner = c.zoom_blur(np.dstack([x] * 3), rng(), 1.31, 0.03)
    np.testing.assert_allclose(inner[25:35, 25:35], 1, atol=1e-9)


def test_snow_brightens_and_falls_from_both_ends():
    dark = np.full((96, 128, 3), 0.2)
    out = c.snow(dark, rng(), 0.55, 0.3, 2.5, 0.85, 12, 8, 0.7)
    base = 0.7 * 0.2 + 0.3 * (1.5 * 0.2 + 0.5)
    assert out.min() == pytest.approx(base)
    np.testing.assert_allclose(out, out[::-1, ::-1])
    assert out.mean() > base + 0.05


def test_frost_is_bright_bluish_ice():
    pictures = [c.ice(rng(seed), (96, 128)) for seed in range(20)]
    red, green, blue = np.mean([p.mean((0, 1)) for p in pictures], axis=0)
    assert red < green < blue
    assert 0.5 < green < 0.75
    x = photo()
    expected = 0.8 * x + 0.6 * c.ice(rng(2), (96, 128))
    np.testing.assert_allclose(c.frost(x, rng(2), 0.8, 0.6), expected)


def test_elastic_without_strength_is_the_image_and_with_jitter_moves_it():
    x = photo()
    np.testing.assert_allclose(c.elastic_transform(x, rng(), 0, 1, 0), x, atol=1e-9)
    # The affine part alone: the three points land where the draws say.
    spot = np.zeros((90, 90, 3))
    spot[45 + 30, 45 + 30] = 1
    moved = c.elastic_transform(ndimage.gaussian_filter(spot, (2, 2, 0)), rng(4), 0, 1, 8)
    draw = rng(4).uniform(-8, 8, (3, 2))[0]
    centre = ndimage.center_of_mass(moved[..., 0])
    np.testing.assert_allclose(centre, 75 + draw, atol=1.0)
