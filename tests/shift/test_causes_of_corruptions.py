"""What differs, of images with a known corruption, and of halves of images without one."""

import numpy as np
import pandas as pd
import pytest
import torch
from scipy import stats

from ood_lab.builtin.vessels.datamodule import VesselsDataModule
from ood_lab.common.random_streams import Resampling
from ood_lab.data.transforms.corruptions import corrupt
from ood_lab.metrics import causes_of, named_causes
from ood_lab.schema.image_statistics import PIXELS
from ood_lab.shift import image_statistics
from tests.benchmarks.shift_causes import EXPECTED

N = 40


@pytest.fixture(scope="module")
def images():
    data = VesselsDataModule(train=60, val=20, test=2 * N, per_shift_set=1, per_cell=0)
    data.setup()
    return [data.splits["test"].load_image(i) for i in range(2 * N)]


def statistics(images):
    pixels = np.stack([np.asarray(image, np.float32) / 255 for image in images])
    return image_statistics(torch.from_numpy(pixels).permute(0, 3, 1, 2)).double().numpy()


def causes(inside, outside):
    parts = [pd.DataFrame(x, columns=list(PIXELS)) for x in (inside, outside)]
    images = pd.concat([parts[0].assign(dataset="test"), parts[1].assign(dataset="mine")])
    return named_causes(causes_of(images, list(PIXELS), resampling=Resampling(draws=2)))


@pytest.mark.slow
@pytest.mark.parametrize("severity", [3, 4, 5])
@pytest.mark.parametrize("name", EXPECTED)
def test_a_corruption_is_named_among_the_first_two_causes(name, severity, images):
    made = [corrupt(x, name, severity, np.random.default_rng(i)) for i, x in enumerate(images[N:])]
    found = causes(statistics(images[:N]), statistics(made))
    assert set(found["statistic"].head(2)) & EXPECTED[name]


@pytest.mark.slow
def test_halves_of_the_same_images_have_no_cause_in_19_of_20_draws(images):
    every, rng = statistics(images), np.random.default_rng(0)
    draws = [rng.permutation(2 * N) for _ in range(100)]
    wrong = sum(len(causes(every[order[:N]], every[order[N:]])) > 0 for order in draws)
    assert wrong <= stats.binom.ppf(0.999, 100, 0.05)
