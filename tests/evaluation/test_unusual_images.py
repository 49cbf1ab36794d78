"""The most unusual of the training images, against distances by brute force."""

import numpy as np
import torch

from ood_lab.builtin.vessels.datamodule import VesselsDataModule
from ood_lab.evaluation.run_page import MOST, unusual_training_images
from ood_lab.features.bank import FeatureBank


def bank_of(x, logits, labels):
    none = torch.empty(0)
    return FeatureBank(x, logits, labels, torch.arange(len(x)), none, none)


def test_an_image_that_is_like_no_other_is_the_most_unusual():
    data = VesselsDataModule(train=60, val=20, test=20, per_shift_set=1, per_cell=0)
    data.setup()
    images = data.splits["train"]
    x = torch.randn(60, 8, generator=torch.Generator().manual_seed(0)) + 3
    x[7] = -x[7]
    bank = bank_of(x, torch.empty(60, 0), torch.as_tensor(images.labels))
    found = unusual_training_images(data, bank)
    scores = found.table["knn_score"].to_numpy()
    assert scores.argmax() == 7
    assert found.table["knn_p_value"].min() == 1 / 60
    unit = torch.nn.functional.normalize(x.double(), dim=1)
    apart = torch.cdist(unit, unit).fill_diagonal_(torch.inf).sort(dim=1).values.numpy()
    # Of about six images a class, the nearest other one counts.
    np.testing.assert_allclose(scores, apart[:, 0], rtol=1e-4)
    assert list(found.table["path"]) == list(images.table["path"])
    assert np.array_equal(found.image(7), images.load_image(7))


def test_nothing_is_said_without_features_or_of_too_many_images():
    rows = torch.empty(MOST + 1, 1)
    for x in (rows[:5, :0], rows):
        n = len(x)
        bank = bank_of(x, torch.zeros(n, 2), torch.zeros(n, dtype=torch.int64))
        assert unusual_training_images(None, bank) is None
    assert unusual_training_images(None, None) is None
