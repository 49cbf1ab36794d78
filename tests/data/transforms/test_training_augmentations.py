"""``augmentation=``: PixMix against the formula of its paper, and all files through train.py."""

import numpy as np
import pytest
import torch
from cli import ROOT, call
from hydra.utils import instantiate
from omegaconf import OmegaConf
from PIL import Image
from scipy.stats import beta, kstest

from ood_lab.common.errors import UserError
from ood_lab.data.transforms.pixmix import PixMix

FILES = sorted((ROOT / "conf/augmentation").glob("*.yaml"))
SIZES = {"train": 40, "val": 10, "test": 10, "per_shift_set": 4, "per_cell": 0}


@pytest.fixture
def mixing_set(tmp_path):
    folder = tmp_path / "fractals"
    folder.mkdir()
    noise = np.random.default_rng(0).integers(0, 256, (2, 20, 30, 3), np.uint8)
    for n, pixels in enumerate(noise):
        Image.fromarray(pixels).save(folder / f"{n}.png")
    return folder


@pytest.mark.parametrize("path", FILES, ids=lambda path: path.stem)
def test_an_image_keeps_its_size_and_follows_from_the_seed(path, mixing_set):
    settings = OmegaConf.load(path)
    if "mixing_set" in settings:
        settings.mixing_set = str(mixing_set)
    augment = instantiate(settings)
    image = Image.fromarray(np.full((24, 17, 3), 90, np.uint8))
    image.putpixel((3, 4), (250, 10, 10))

    def drawn(seed):
        torch.manual_seed(seed)
        return np.asarray(augment(image))

    results = [drawn(seed) for seed in range(12)]
    assert {result.shape for result in results} == {(24, 17, 3)}
    assert any((result != np.asarray(image)).any() for result in results)
    assert all((drawn(seed) == results[seed]).all() for seed in range(12))


def test_pixmix_adds_and_multiplies_with_the_weights_of_the_paper(mixing_set):
    # With x = 1 and y = 1/2 a sum is (1 + a) / 2, and a product 2^a / 2: both tell a alone.
    torch.manual_seed(0)
    mix, x, y = PixMix(mixing_set, beta=3.0), torch.ones(1, dtype=torch.float64), torch.tensor(0.5)
    values = torch.cat([mix.mixed(x, y) for _ in range(4000)]).numpy()

    def chance(v):
        """Of a value up to v: a quarter for each kind of weights and of mixing."""
        of_sum, of_product = 2 * v - 1, np.log2(2 * v)
        strong, weak = beta(3, 1), beta(1, 3)
        return sum(strong.cdf(a) + weak.cdf(a - 1) for a in (of_sum, of_product)) / 4

    assert kstest(values, chance).pvalue > 0.001
    # And x = 1/2, y = 1 tells b.
    values = torch.cat([mix.mixed(x / 2, 2 * y[None]) for _ in range(4000)]).numpy()

    def chance_of_b(v):
        of_sum, of_product = 2 * v - 1, np.log2(2 * v)
        weak = beta(1, 3)
        return sum(weak.cdf(b) + weak.sf(-b) for b in (of_sum, of_product)) / 4

    assert kstest(values, chance_of_b).pvalue > 0.001


def test_pixmix_without_images_says_what_is_missing(tmp_path):
    with pytest.raises(UserError, match=r"augmentation\.mixing_set=DIR"):
        PixMix()
    with pytest.raises(UserError, match="contains no images"):
        PixMix(tmp_path)


@pytest.mark.slow
@pytest.mark.parametrize("name", [path.stem for path in FILES])
def test_every_augmentation_trains(name, mixing_set, tmp_path):
    sizes = [f"data.{key}={n}" for key, n in SIZES.items()]
    mixing = [f"augmentation.mixing_set={mixing_set}"] if name == "pixmix" else []
    line = ["experiment=smoke", "detector=[msp]", "logger=none", "debug=true", *sizes, *mixing]
    assert call("train.py", f"augmentation={name}", *line, f"paths.outputs={tmp_path}") == 0
    assert list(tmp_path.rglob("results.parquet"))


def test_what_does_not_train_says_that_it_augments_nothing(tmp_path, capsys):
    sizes = [f"data.{key}={n}" for key, n in SIZES.items()]
    line = ["task=data_check", "augmentation=augmix", "logger=none", f"paths.outputs={tmp_path}"]
    assert call("eval.py", *line, *sizes) == 0
    assert "augmentation changes nothing: this task does not read it" in capsys.readouterr().out
