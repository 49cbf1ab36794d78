"""Generated images are made once for all processes of a job, within bounds."""

import pickle

import numpy as np
import torch
from torch.utils.data import DataLoader

from ood_lab.builtin.vessels import LightAugment, VesselsDataset, datasets
from ood_lab.data.datamodules.epoch_sampler import TrainingView
from ood_lab.data.dataset import UNKNOWN
from ood_lab.data.sources import pixel_cache
from ood_lab.data.sources.pixel_cache import KeptImages


def picture(row):
    return np.full((4, 5, 3), row, np.uint8)


def test_an_image_is_made_once():
    kept, made = KeptImages(3, 4, 5), []
    for row in (2, 0, 2, 0):
        image = kept.get(row, lambda row=row: made.append(row) or picture(row))
        np.testing.assert_array_equal(image, picture(row))
    assert made == [2, 0]


def test_memory_is_bounded(monkeypatch):
    monkeypatch.setattr(pixel_cache, "MOST_BYTES", 2 * 60 + 59)
    kept, made = KeptImages(3, 4, 5), []
    for row in (0, 1, 2, 2):
        image = kept.get(row, lambda row=row: made.append(row) or picture(row))
        np.testing.assert_array_equal(image, picture(row))
    assert made == [0, 1, 2, 2]


def test_a_pickled_copy_starts_empty():
    kept = KeptImages(3, 4, 5)
    kept.get(1, lambda: picture(1))
    copy = pickle.loads(pickle.dumps(kept))
    np.testing.assert_array_equal(copy.get(1, lambda: picture(7)), picture(7))


def test_what_a_loader_process_has_rendered_is_not_rendered_again(monkeypatch):
    data = VesselsDataset("train", 22, 0)
    data.transform = lambda image: torch.from_numpy(np.array(image))
    batches = list(DataLoader(data, 11, num_workers=2))
    monkeypatch.setattr(datasets, "render", None)  # nothing calls it from now on
    for batch in batches:
        for row, image in zip(batch["index"], batch["image"], strict=True):
            np.testing.assert_array_equal(data.load_image(int(row)), image)


def test_a_batch_of_the_training_view_is_its_rows_drawn_one_by_one():
    data, augment = VesselsDataset("train", 22, 0), LightAugment(noise=1.0)
    view = TrainingView(data, lambda image: torch.from_numpy(np.array(augment(image))))
    torch.manual_seed(3)
    before = torch.get_rng_state(), np.random.get_state()[1].copy()
    pairs = [(5, 1), (3, 2**32 - 1), (5, 2)]
    together = view.__getitems__(pairs)
    for pair, sample in zip(pairs, together, strict=True):
        assert sample["index"] == pair[0]
        assert sample["label"] != UNKNOWN
        assert torch.equal(view[pair]["image"], sample["image"])
    assert not torch.equal(together[0]["image"], together[2]["image"])
    assert torch.equal(torch.get_rng_state(), before[0])
    np.testing.assert_array_equal(np.random.get_state()[1], before[1])
