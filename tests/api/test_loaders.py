"""What a loader gives is read once, as it was when it came, from one network."""

import logging
from functools import partial

import numpy as np
import pandas as pd
import pytest
import torch
from torch import nn
from torch.utils.data import (
    BatchSampler,
    DataLoader,
    Dataset,
    DistributedSampler,
    IterableDataset,
    RandomSampler,
    SubsetRandomSampler,
    TensorDataset,
    WeightedRandomSampler,
    get_worker_info,
)

import ood_lab
from ood_lab.common.errors import UserError
from ood_lab.detectors import (
    KNN,
    CalibratedDetector,
    checked_score,
    fit_detector,
    load_detector,
    save_detector,
)

N = 90


class Net(nn.Module):
    """Its first three pixels are features; always right on :func:`images`."""

    def __init__(self, body=1.0):
        super().__init__()
        self.body, self.fc = nn.Linear(3, 3, bias=False), nn.Linear(3, 3)
        with torch.no_grad():
            self.body.weight.copy_(body * torch.eye(3))
            self.fc.weight.copy_(5 * torch.eye(3)), self.fc.bias.zero_()

    def forward(self, image):
        return self.fc(self.body(image.mean((2, 3))))


def images(n=N, seed=0, far=False):
    g = torch.Generator().manual_seed(seed)
    found, labels = torch.rand(n, 3, 8, 8, generator=g) / 3, torch.arange(n) % 3
    if not far:
        found[torch.arange(n), labels] += 0.5
    order = torch.randperm(n, generator=g)
    return found[order], labels[order]


def accuracy(bank):
    return float((bank.logits.argmax(1) == bank.labels).float().mean())


def form(kind, image, label):
    if kind.startswith("array"):
        image, label = image.numpy(), label.numpy()
    return {"image": image, "label": label} if kind.endswith("dict") else (image, label)


@pytest.mark.parametrize("size", [15, 1])
@pytest.mark.parametrize("kind", ["tuple", "array tuple", "dict", "array dict"])
def test_a_loader_that_fills_one_buffer_again(kind, size):
    every, labels = images()
    image, label = torch.empty(size, 3, 8, 8), torch.empty(size, dtype=torch.long)
    one = form(kind, *((image, label) if size > 1 else (image[0], label[0])))

    def batches():
        for row in range(0, N, size):
            image.copy_(every[row : row + size]), label.copy_(labels[row : row + size])
            yield one

    bank = ood_lab.extract_features(Net(), batches())
    assert accuracy(bank) == 1
    assert torch.equal(bank.labels, labels)
    whole = ood_lab.extract_features(Net(), every, labels)
    torch.testing.assert_close(bank.features, whole.features)


def test_a_network_whose_features_are_its_input():
    class Flat(nn.Module):
        def __init__(self):
            super().__init__()
            self.fc = nn.Linear(192, 3)

        def forward(self, image):
            return self.fc(image.flatten(1))

    every, _ = images()
    buffer = torch.empty(10, 3, 8, 8)
    bank = ood_lab.extract_features(Flat(), (buffer.copy_(part) for part in every.split(10)))
    assert torch.equal(bank.features, every.flatten(1))


def test_arrays_that_are_filled_again_leave_a_bank_as_it_was():
    rng = np.random.default_rng(0)
    x, y, z = rng.random((9, 4), np.float32), np.arange(9) % 3, rng.random((9, 3), np.float32)
    head = nn.Linear(4, 3)
    for given in ({"head": head}, {"logits": z}):
        bank = ood_lab.features_from_arrays(x, y, **given)
        before = [t.clone() for t in (bank.features, bank.labels, bank.logits, bank.head_weight)]
        kept = x.copy(), y.copy(), z.copy(), head.weight.detach().clone()
        x[:], y[:], z[:], head.weight.data[:] = 0, 0, 0, 0
        after = bank.features, bank.labels, bank.logits, bank.head_weight
        assert all(map(torch.equal, before, after))
        x[:], y[:], z[:], head.weight.data[:] = kept


class Stream(IterableDataset):
    def __init__(self, shared=False):
        self.rows, self.shared = list(zip(*images(), strict=True)), shared

    def __iter__(self):
        info = get_worker_info()
        step = slice(info.id, None, info.num_workers) if info and self.shared else slice(None)
        return iter(self.rows[step])


class Sized(Stream):
    def __len__(self):
        return len(self.rows)


class Flipped(Dataset):
    def __init__(self, random=True):
        self.images, self.labels, self.random = *images(), random

    def __len__(self):
        return N

    def __getitem__(self, row):
        image = self.images[row]
        turned = torch.rand(()) < 0.5 if self.random else row % 2
        return (image.flip(-1) if turned else image), self.labels[row]


def mixed(items):
    image, label = map(torch.stack, zip(*items, strict=True))
    return torch.lerp(image, image[torch.randperm(len(image))], 0.2), label


def loader(data=None, **options):
    return DataLoader(TensorDataset(*images()) if data is None else data, 16, **options)


def distributed():
    data = TensorDataset(*images())
    return DataLoader(data, 16, sampler=DistributedSampler(data, 2, 0))


ones = torch.ones(N)
FAULTS = {
    "drop_last of a stream": (
        lambda: loader(Stream(), num_workers=0, drop_last=True),
        None,
        "omits the last images",
    ),
    "two workers, a stream": (lambda: loader(Stream(), num_workers=2), UserError, "num_workers=0"),
    "two workers, with len": (lambda: loader(Sized(), num_workers=2), UserError, "get_worker_info"),
    "replacement": (
        lambda: loader(sampler=RandomSampler(range(N), True)),
        UserError,
        "replacement",
    ),
    "weights": (lambda: loader(sampler=WeightedRandomSampler(ones, N)), UserError, "replacement"),
    "batches of weights": (
        lambda: DataLoader(
            TensorDataset(*images()),
            batch_sampler=BatchSampler(WeightedRandomSampler(ones, N), 16, False),
        ),
        UserError,
        "replacement",
    ),
    "twice": (lambda: loader(sampler=[*range(N), *range(N)]), UserError, "each image once"),
    "again in a list": (lambda: [images(), images()], None, "90 of 180 images repeat"),
    "drop_last": (lambda: loader(drop_last=True), None, "omits the last images"),
    "half": (distributed, None, "45 of 90"),
    "a sampler of its own": (lambda: loader(sampler=range(40)), None, "40 of 90"),
    "random transforms": (lambda: loader(Flipped()), None, "random transforms"),
    "a dataset with random transforms": (Flipped, None, "random transforms"),
    "mixup": (lambda: loader(collate_fn=mixed), None, "collate_fn"),
}


@pytest.mark.parametrize("name", FAULTS)
def test_a_loader_that_does_not_give_each_image_once(name, caplog):
    make, error, said = FAULTS[name]
    torch.manual_seed(0)  # by chance, all that are tried may be turned the same way twice
    if error is not None:
        with pytest.raises(error, match=said):
            ood_lab.extract_features(Net(), make())
    else:
        ood_lab.extract_features(Net(), make())
        warned = [r.getMessage() for r in caplog.records if r.levelno >= logging.WARNING]
        assert len(warned) == 1
        assert said in warned[0]


SOUND = {
    "plain": loader,
    "shuffled": lambda: loader(shuffle=True),
    "workers": lambda: loader(num_workers=2),
    "a shared stream": lambda: loader(Stream(shared=True), num_workers=2),
    "a stream, one worker": lambda: loader(Stream(), num_workers=1),
    "drop_last that drops nothing": lambda: DataLoader(Flipped(False), 15, drop_last=True),
    "a chosen part": lambda: loader(sampler=SubsetRandomSampler(range(30))),
    "a fixed transform": lambda: loader(Flipped(False)),
    "no batches": lambda: DataLoader(TensorDataset(*images()), batch_size=None),
}


@pytest.mark.slow
@pytest.mark.parametrize("name", SOUND)
def test_a_loader_that_does_is_left_alone(name, caplog):
    bank = ood_lab.extract_features(Net(), SOUND[name]())
    assert len(bank) == (30 if name == "a chosen part" else N)
    assert not [r.getMessage() for r in caplog.records if r.levelno >= logging.WARNING]


def sets(make):
    return {"train": make(seed=1), "test": make(seed=2)}, {"far": make(seed=3, far=True)}


def extracted(net, seed, far=False):
    found, labels = images(seed=seed, far=far)
    return ood_lab.extract_features(net, found, None if far else labels)


def test_features_of_other_weights_are_refused_wherever_they_meet(tmp_path):
    """The heads are equal: only the layers below differ."""
    net, other = Net(), Net(body=2.0)
    banks, ood = sets(partial(extracted, net))
    run = partial(ood_lab.evaluate, detectors=["knn"], n_bootstrap=10)
    assert run(**banks, ood=ood).results is not None
    mixes = (
        ("test", banks | {"test": extracted(other, 2)}, ood),
        ("far", banks, {"far": extracted(other, 3, far=True)}),
        ("val", banks | {"val": extracted(other, 4)}, ood),
    )
    for name, own, others in mixes:
        with pytest.raises(UserError, match=f"{name} and of train are from two networks"):
            run(**own, ood=others)
    detector = fit_detector(KNN(k=5), banks["train"])
    facts = {"classes": ["a", "b", "c"], "weights_sha256": "mine", "transform": "none"}
    calibrated = CalibratedDetector.of(detector, detector.score(banks["test"]), 0.1, **facts)
    save_detector(tmp_path / "knn.safetensors", calibrated)
    loaded = load_detector(tmp_path / "knn.safetensors")
    for score in (partial(checked_score, detector), calibrated.score, loaded.score):
        assert len(score(ood["far"])) == N
        with pytest.raises(UserError, match="another network"):
            score(extracted(other, 3, far=True))


def test_arrays_name_their_network_and_biases_count():
    rng = np.random.default_rng(0)
    head = (5 * np.eye(3), np.zeros(3))

    def arrays(network=None, bias=0.0):
        x, y = rng.random((60, 3)), np.arange(60) % 3
        x[np.arange(60), y] += 1
        shifted = (head[0], head[1] + bias)
        return ood_lab.features_from_arrays(x, y, head=shifted, network=network)

    run = partial(ood_lab.evaluate, detectors=["msp"], n_bootstrap=10)
    run(arrays("a"), arrays("a"), {"far": arrays()})  # what is not named cannot be compared
    with pytest.raises(UserError, match="far and of train are from two networks"):
        run(arrays("a"), arrays("a"), {"far": arrays("b")})
    with pytest.raises(UserError, match="far have another head"):
        run(arrays(), arrays(), {"far": arrays(bias=0.5)})
    x, y = rng.random((60, 8)), np.arange(60) % 3
    bank, narrow = ood_lab.features_from_arrays(x, y), ood_lab.features_from_arrays(x[:, :7])
    with pytest.raises(UserError, match="the set far has 7 features"):
        run(bank, bank, {"far": narrow}, detectors=["knn"])
    with pytest.raises(UserError, match=r"evaluate\.n_bootstrap=0: give"):
        run(bank, bank, {"far": bank}, n_bootstrap=0)


def test_rows_that_two_sets_share_are_named(caplog):
    banks, ood = sets(partial(extracted, Net()))
    train, test, far = banks["train"], banks["test"], ood["far"]
    run = partial(ood_lab.evaluate, detectors=["knn"], n_bootstrap=10)
    both = torch.arange(20)
    mixed_in = {
        "far": torch.cat([far.features, test.features[both]]),
    }
    found = run(train, test, mixed_in).warnings
    assert [w for w in found if "20 of 110 images of far (row 90" in w and "of test" in w]
    found = run(train, (train.features, train.labels), {"far": far}).warnings
    assert [w for w in found if "90 of 90 images of test" in w and "of train" in w]
    assert not [w for w in run(train, test, ood).warnings if "exactly the features" in w]
    caplog.clear()
    dark = train.features.clone(), test.features.clone()
    for rows in dark:  # all dark images have the same features: nothing is said of them
        rows[::3] = 0.25
    sets_of = ((x, y.labels) for x, y in zip(dark, (train, test), strict=True))
    assert not [w for w in run(*sets_of, {"far": far}).warnings if "exactly the features" in w]


@pytest.mark.parametrize("single", [False, True])
def test_batches_name_the_groups_of_their_images(single):
    """As numbers or names; of arrays, the same name is the same group in every bank."""
    pixels, labels = images()
    items = [
        {"image": image, "label": label, "group": f"scene {row // 4}"}
        for row, (image, label) in enumerate(zip(pixels, labels, strict=True))
    ]
    bank = ood_lab.extract_features(Net(), items if single else DataLoader(items, batch_size=7))
    other = ood_lab.features_from_arrays(bank.features[:2], groups=["scene 1", "scene 0"])
    assert other.groups.tolist() == bank.groups[[4, 0]].tolist()
    assert bank.groups.unique_consecutive().shape == (-(-N // 4),)
    assert bank.rows(bank.labels == 0).groups.tolist() == bank.groups[bank.labels == 0].tolist()
    for wrong, message in ((["a"], "should be .2."), ([0.5, 1], "whole numbers or names")):
        with pytest.raises(UserError, match=message):
            ood_lab.features_from_arrays(bank.features[:2], groups=wrong)


def test_copies_in_groups_are_evaluated_as_the_images_are():
    """k, values, intervals and shift of images that are there three times each."""
    pixels, _ = images()
    sets = {}
    for name, seed, far in (("train", 0, False), ("test", 1, False), ("far", 2, True)):
        pixels, labels = images(seed=seed, far=far)
        sets[name] = pixels.mean((2, 3)), labels if name != "far" else None
    results = []
    for copies in 1, 3:
        banks = {
            name: ood_lab.features_from_arrays(
                x.repeat(copies, 1),
                None if y is None else y.repeat(copies),
                head=(torch.eye(3), None),
                groups=[f"{name} {row % N}" for row in range(copies * N)],
            )
            for name, (x, y) in sets.items()
        }
        result = ood_lab.evaluate(
            train=banks["train"],
            val=banks["train"],
            test=banks["test"],
            ood={"far": banks["far"]},
            detectors=["mds", "msp"],
            n_bootstrap=50,
        )
        results.append(result.results)
    one, other = (of[of["metric"].isin(["auroc", "id_accuracy"])] for of in results)
    assert set(one["unit"]) == {"image"}
    assert set(other["unit"]) == {"group"}
    columns = ["metric", "detector", "n_id", "n_ood", "value", "ci_low", "ci_high"]
    pd.testing.assert_frame_equal(one[columns], other[columns], atol=1e-6)
