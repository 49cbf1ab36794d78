"""The hierarchy table: which predictions it rests on, and what it counts."""

import numpy as np
import pytest
import torch
from sklearn.metrics import recall_score
from torch import nn

from ood_lab.builtin.vessels import CATEGORIES, CLASSES, DYNASTIES
from ood_lab.builtin.vessels.datamodule import VesselsDataModule
from ood_lab.common.errors import UserError
from ood_lab.evaluation.hierarchy_tables import (
    KIND,
    HeadPredictions,
    heads_to_read,
    hierarchy_results,
)
from ood_lab.features.bank import FeatureBank
from ood_lab.models import Backbone, Output
from ood_lab.models.fgvc.base import FGVCNet
from ood_lab.schema.label_space import LabelSpace
from ood_lab.schema.results import CORE


@pytest.fixture(scope="module")
def data():
    module = VesselsDataModule(train=110, val=22, test=66, per_shift_set=2, per_cell=0)
    module.setup()
    return module


class Plain(Backbone):
    """Has no heads but the one."""


class WithHeads(FGVCNet):
    """Heads on the flat image, which are called before the classes are known."""

    level_heads = ("above.0",)
    category_head = "category"

    def __init__(self, labels):
        nn.Module.__init__(self)
        self.labels = LabelSpace(**{**labels, "classes": 11})
        self.above = nn.ModuleList([nn.Linear(12, 4)])
        self.category = nn.Linear(12, 2)
        self.head = nn.Linear(12, 11)

    def forward(self, image):
        flat = image.flatten(1)
        self.category(flat).sigmoid()
        self.above[0](flat)
        return Output(self.head(flat), flat)


def bank_of(data, classes, **columns):
    n = len(classes)
    return FeatureBank(
        features=torch.zeros(n, 1),
        logits=torch.nn.functional.one_hot(torch.tensor(classes), 11).float(),
        labels=data.splits["test"].labels,
        index=torch.arange(n),
        head_weight=torch.zeros(11, 1),
        head_bias=torch.zeros(11),
        columns=columns,
    )


@pytest.fixture(scope="module")
def guesses():
    rng = np.random.default_rng(0)
    return rng.integers(0, 11, 66), rng.integers(0, 4, 66), rng.integers(0, 2, 66)


def test_without_heads_the_parent_of_the_class_stands_for_the_coarse_level(data, guesses):
    classes, _, _ = guesses
    table = hierarchy_results(data, bank_of(data, classes), Plain(), "net", 3)
    assert list(table) == [*CORE, *KIND.keys]
    assert set(table["seed"]) == {3}
    assert table.groupby("label_level")["source"].unique().explode().to_dict() == {
        "coarse": "derived",
        "fine": "head",
    }
    truth = data.splits["test"].table
    dynasty_of = truth.groupby("label")["level_0"].first()
    rows = table.set_index(["label_level", "subset", "metric"])
    for level, names, label, guess in (
        ("coarse", DYNASTIES, truth["level_0"], dynasty_of[classes].to_numpy()),
        ("fine", CLASSES, truth["label"], classes),
    ):
        for subset, mask in (("all", truth["category"] >= 0), ("gui", truth["category"] == 1)):
            recalls = rows.loc[(level, subset, "recall")]
            assert recalls["name"].tolist() == list(names)
            expected = recall_score(label[mask], guess[mask], average=None, zero_division=0)
            np.testing.assert_allclose(recalls["value"], expected)
            accuracy = rows.loc[(level, subset, "accuracy"), "value"].item()
            assert accuracy == pytest.approx((label[mask] == guess[mask]).mean())


def test_heads_speak_for_their_level_and_the_category(data, guesses):
    classes, dynasties, categories = guesses
    net = WithHeads(vars(data.labels))
    column = heads_to_read(data, net)
    assert column.heads == ["above.0", "category"]
    read = torch.tensor(np.stack([dynasties, categories], 1))
    table = hierarchy_results(data, bank_of(data, classes, **{column.key: read}), net, "net", 0)
    accuracy = table[(table.metric == "accuracy") & (table.subset == "all")].set_index(
        "label_level"
    )
    assert accuracy.index.tolist() == ["category", "coarse", "fine"]
    assert set(accuracy.source) == {"head"}
    truth = data.splits["test"].table
    expected = [
        (truth["category"] == categories).mean(),
        (truth["level_0"] == dynasties).mean(),
        (truth["label"] == classes).mean(),
    ]
    np.testing.assert_allclose(accuracy.value, expected)
    of_category = table[table.label_level == "category"]
    assert set(of_category.subset) == {"all"}
    assert of_category["name"].dropna().tolist() == list(CATEGORIES)


def test_heads_for_other_labels_are_not_read(data):
    net = WithHeads({"level_sizes": [5, 11], "categories": 3})
    assert heads_to_read(data, net) is None


def test_the_column_holds_the_most_likely_label_of_every_head(data):
    net = WithHeads(vars(data.labels))
    column = HeadPredictions(["above.0", "category"])
    image = torch.randn(5, 3, 2, 2)
    with torch.no_grad(), net.capture(column.layers(net)) as maps:
        read = column.compute(net, image, net(image), maps)
        flat = image.flatten(1)
        expected = [head(flat).argmax(1) for head in (net.above[0], net.category)]
    assert torch.equal(read, torch.stack(expected, 1))
    with pytest.raises(UserError, match="no head 'shape'"):
        HeadPredictions(["shape"]).layers(net)


def test_data_without_levels_or_category_has_no_table(data):
    bare = VesselsDataModule(train=22, val=11, test=66, per_shift_set=2, per_cell=0)
    bare.setup()
    for split in ("train", "test"):
        table = bare.splits[split].table
        bare.splits[split].table = table.drop(columns=["level_0", "level_1", "category"])
    assert hierarchy_results(bare, bank_of(bare, [0] * 66), Plain(), "net", 0) is None
