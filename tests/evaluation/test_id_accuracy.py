"""What a network's answers on ID images say of it, before any detector is believed."""

import pytest
import torch

from ood_lab.evaluation.id_accuracy import (
    accuracy_warnings,
    advice_on,
    check_id_accuracy,
    other_order,
)
from ood_lab.features.bank import FeatureBank
from ood_lab.models import Backbone
from ood_lab.schema.run_record import RunRecord

CLASSES = ["cat", "dog", "fox"]


def bank_of(labels, predictions):
    logits = torch.nn.functional.one_hot(torch.tensor(predictions), 3).float()
    labels = torch.tensor(labels)
    index = torch.arange(len(labels))
    return FeatureBank(logits, logits, labels, index, torch.eye(3), torch.zeros(3))


def asked(test, val=None, **manifest):
    """``lost`` and the warnings of a network that answers ``test`` and ``val`` like this."""
    banks = {"test": bank_of(*test)} | ({"val": bank_of(*val)} if val else {})
    accuracy = check_id_accuracy(banks["test"], CLASSES)
    facts = RunRecord(id_accuracy=accuracy, classes=CLASSES, **manifest)
    val_labels = torch.tensor(val[0] if val else [0, 1, 2] * 20)
    return accuracy_warnings(banks, val_labels, facts, advice_on(Backbone(), facts))


# 49% dogs: far from 1 / 3, but what a network reaches that knows nothing else.
DOGS = [0] * 50 + [1] * 98 + [2] * 52
TRAINED = {"training": {"epochs": 2, "steps": 10}}


def test_a_collapsed_network_is_at_chance():
    lost, (warning,) = asked((DOGS, [1] * 200), **TRAINED)
    assert lost
    assert "49.0%, no better than chance (49.0%, the share of the largest class, 'dog')" in warning
    assert "names 'dog' for 100.0% of the ID test images, of which 49.0% are" in warning
    assert "with another learning rate" in warning


def test_equal_classes_are_counted_as_such():
    lost, (warning,) = asked(([0, 1, 2] * 30, [0] * 90))
    assert lost
    assert "33.3%, no better than chance (33.3% of 3 classes)" in warning


@pytest.mark.parametrize(
    ("order", "said"),
    [
        ([1, 2, 0], "with every label 1 higher the accuracy is 95.0%"),
        ([2, 0, 1], "with every label 1 lower the accuracy is 95.0%"),
        ([1, 0, 2], "another order the accuracy is 97.3% ('cat' is output 1, 'dog' is output 0)"),
        ([0, 1, 2], None),
    ],
)
def test_an_order_of_the_classes_that_explains_it_is_named(order, said):
    labels = [0, 1, 2] * 100
    answers = [order[label] for label in labels]
    answers[:15] = [labels[i] for i in range(15)]  # not all fit
    lost, warnings = asked((labels, answers), **TRAINED)
    assert lost == (said is not None)
    if said:
        assert said in warnings[0]
        assert "train longer" not in warnings[0]


def test_a_permutation_is_named_and_not_read_into_chance():
    generator = torch.Generator().manual_seed(0)
    names = [f"c{i}" for i in range(8)]
    labels = torch.arange(400) % 8
    outputs = torch.tensor([3, 0, 1, 2, 7, 4, 5, 6])  # two circles: no offset
    for answers, found in [
        (outputs[labels], True),
        (torch.randint(8, (400,), generator=generator), False),
        (torch.zeros(400, dtype=torch.long), False),
    ]:
        logits = torch.nn.functional.one_hot(answers, 8).float()
        bank = FeatureBank(logits, logits, labels, torch.arange(400), torch.eye(8), torch.zeros(8))
        said = other_order(bank, names)
        assert (said is not None) == found
        if said:
            assert "100.0% ('c0' is output 3, 'c1' is output 0, 'c2' is output 1 and 5" in said


def test_nearly_one_class_is_told_above_chance_too():
    """Of 3,000 images one in 25 is another class, and rightly so: above chance by 4 points."""
    labels = [0] * 1000 + [1] * 1000 + [2] * 1000
    lost, (warning,) = asked((labels, [0] * 60 + [1] * 2880 + [2] * 60))
    assert not lost
    assert warning.startswith("the network names 'dog' for 96.0% of the ID test images, of which")


def test_images_that_are_nearly_all_of_one_class_are_no_collapse():
    labels = [1] * 960 + [0] * 20 + [2] * 20
    assert asked((labels, labels)) == (False, [])


@pytest.mark.parametrize("noted", [True, False])
def test_right_on_val_and_at_chance_on_test_means_other_labels(noted):
    right, wrong = [0, 1, 2] * 40, [1, 2, 0] * 40
    known = {"val_accuracy": 0.993} if noted else {"val": (right, right)}
    lost, (warning,) = asked((right, wrong), **known, **TRAINED)
    assert lost
    assert f"on the validation images it is {'99.3' if noted else '100.0'}%" in warning
    assert "labels of the test set are not those of train and val" in warning
    assert "train longer" not in warning
    # Where the network has not learnt anything on val either, its training is the cause.
    at_random = [0, 1, 2, 1, 2, 0, 2, 0, 1] * 14
    (warning,) = asked(([0, 1, 2] * 42, at_random), val_accuracy=0.34, **TRAINED)[1]
    assert "train longer" in warning


def test_without_labels_nothing_is_said():
    assert asked(([-1] * 9, [0] * 9)) == (False, [])
