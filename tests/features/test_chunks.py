"""How many images go through the network at a time: found by their speed, whatever the numbers."""

import json
import logging
import math
import random
import time
from collections import namedtuple

import pytest
import torch
from feature_toys import COUNTED, GradientStep, MapPower, TinyImages, make_trainer

from ood_lab.features import chunk_choice
from ood_lab.features.bank_store import load
from ood_lab.features.cached_extraction import extract
from ood_lab.features.chunk_choice import (
    Chunk,
    ChunkSearch,
    activation_bytes,
    chunk_search,
    is_convolutional,
)
from ood_lab.features.streaming import DatasetParts, pass_through


def settle(search, seconds_per_image):
    """Runs the search to its end on a machine of known speed; returns what it tried."""
    tried = []
    while not search.settled:
        tried.append(search.chunk)
        search.record(search.chunk.size, search.chunk.size * seconds_per_image(search.chunk))
    return tried


def lost_share(search, seconds_per_image, images):
    """Runs a pass; returns which share of its time went to what was slower than the best."""
    done = spent = best = 0.0
    while done < images:
        chunk = search.chunk
        cost = seconds_per_image(chunk)
        search.record(chunk.size, chunk.size * cost)
        done, spent = done + chunk.size, spent + chunk.size * cost
        best += chunk.size * min(cost, seconds_per_image(search.best))
    return (spent - best) / spent


def test_the_fastest_size_and_format_are_found():
    def speed(chunk):
        return (1 + abs(chunk.size - 64)) * (1 if chunk.channels_last else 2)

    search = ChunkSearch(Chunk(16), largest=256)
    tried = settle(search, speed)
    assert search.chunk == Chunk(64, channels_last=True)
    assert max(chunk.size for chunk in tried) == 128
    search = ChunkSearch(Chunk(256), largest=256)
    settle(search, speed)
    assert search.chunk == Chunk(64, channels_last=True)


def test_what_does_not_pay_is_not_taken():
    search = ChunkSearch(Chunk(16), largest=256)
    settle(search, lambda chunk: 1.0 if chunk == Chunk(16) else 0.99)
    assert search.chunk == Chunk(16)


def test_other_work_on_the_machine_does_not_decide():
    """Bursts of other work make three chunks in ten two to five times slower."""

    def cost(chunk):
        slow = abs(math.log2(chunk.size / 32))
        return (1 + 0.4 * slow) * (1 if chunk.channels_last else 2.5)

    good = 0
    for seed in range(200):
        chance, busy = random.Random(seed), False

        def seconds(chunk, chance=chance):
            nonlocal busy
            busy = chance.random() < (0.7 if busy else 0.13)
            return cost(chunk) * (chance.uniform(2, 5) if busy else chance.uniform(1, 1.05))

        search = ChunkSearch(Chunk(8, channels_last=True), largest=128)
        settle(search, seconds)
        good += cost(search.chunk) <= 1.3 * cost(Chunk(32, channels_last=True))
    assert good >= 180


def test_no_chunk_is_larger_than_allowed():
    search = ChunkSearch(Chunk(64), largest=5)
    assert {chunk.size for chunk in settle(search, lambda chunk: 1 / chunk.size)} <= {5, 2, 1}
    assert search.chunk.size == 5


@pytest.mark.parametrize("images", [96, 500, 1000, 5000])
@pytest.mark.parametrize("slower", [1.1, 1.4, 2.0])
def test_the_search_costs_less_than_a_twentieth_of_the_pass(images, slower):
    def speed(chunk):
        return (slower if chunk.channels_last else 1.0) * (1.0 if chunk.size == 16 else 1.25)

    search = ChunkSearch(Chunk(16), largest=256)
    assert lost_share(search, speed, images) < 0.05
    assert search.settled == (images == 5000)


def test_the_rest_of_a_batch_says_nothing_about_speed():
    search = ChunkSearch(Chunk(16), largest=16)
    for _ in range(100):
        search.record(15, 1e-9)
    assert search.chunk == Chunk(16)
    assert not search.settled


def test_a_network_of_convolutions_begins_in_channels_last(backbone):
    linear = torch.nn.ModuleList([torch.nn.Linear(2, 2) for _ in range(3)])
    assert is_convolutional(backbone) is False  # one of each
    backbone.second = torch.nn.Conv2d(6, 6, 1)
    assert is_convolutional(backbone)
    backbone.mlp = linear
    assert not is_convolutional(backbone)


def test_small_batches_are_not_timed(trainer, backbone, tmp_path, monkeypatch):
    backbone.second = torch.nn.Conv2d(6, 6, 1)  # most layers are convolutions
    monkeypatch.setattr(chunk_choice, "first_size", lambda *_: 4)
    monkeypatch.setattr(chunk_choice, "UNTIMED_PIXELS", {"cpu": 16 * 64, "cuda": 0})
    bank = extract(
        trainer, backbone, TinyImages(40), tmp_path, [GradientStep()], batch_size=16, **COUNTED
    )
    assert bank.record.chunk == 4
    assert bank.record.memory_format == "channels_last"
    assert backbone.forwards == 2 * 10
    assert not list(tmp_path.rglob(".chunks"))  # no choice that the next run could begin with


@pytest.mark.parametrize(("side", "images"), [(32, 64), (64, 32), (224, 8), (336, 4), (4096, 1)])
def test_a_pass_begins_with_fewer_of_larger_images(side, images):
    assert chunk_choice.first_size("cpu", side, side) == images
    assert chunk_choice.first_size("cpu", side // 2, 2 * side) == images


def begin_with(images, monkeypatch):
    """Chunks of so many images of 8 x 8 pixels are the first ones."""
    monkeypatch.setitem(chunk_choice.UNTIMED_PIXELS, "cpu", images * 64)
    monkeypatch.setattr(chunk_choice, "first_size", lambda *_: images)


def test_large_images_are_timed(trainer, backbone, tmp_path, monkeypatch):
    begin_with(4, monkeypatch)
    tried = []
    monkeypatch.setattr(
        ChunkSearch, "record", lambda self, images, seconds: tried.append((images, seconds))
    )
    bank = extract(trainer, backbone, TinyImages(40), tmp_path, batch_size=16)
    assert [images for images, _ in tried] == [4] * 10
    assert all(seconds > 0 for _, seconds in tried)
    assert bank.record.chunk == 4  # nothing else was tried


@pytest.mark.slow
def test_waiting_for_other_programs_is_not_timed(trainer, backbone, tmp_path, monkeypatch):
    begin_with(4, monkeypatch)
    real, timed = backbone.conv.forward, []

    def waiting(image):
        time.sleep(0.3)
        return real(image)

    backbone.conv.forward = waiting
    monkeypatch.setattr(ChunkSearch, "record", lambda self, _, seconds: timed.append(seconds))
    extract(trainer, backbone, TinyImages(8), tmp_path, batch_size=16)
    assert 0 < min(timed) < 0.2


def new_process():
    """Forgets what was found in this one."""
    chunk_choice._SEARCHES.clear()


def begun_with(trainer, backbone, folder, identity):
    """The chunk that the pass of another data set begins with, in a new process."""
    new_process()
    bank = extract(trainer, backbone, TinyImages(40, identity=identity), folder, batch_size=16)
    return Chunk(bank.record.chunk, bank.record.memory_format == "channels_last")


def test_the_next_run_begins_with_what_was_found(trainer, backbone, tmp_path, monkeypatch, caplog):
    begin_with(4, monkeypatch)
    found = Chunk(8, channels_last=True)
    with monkeypatch.context() as patch:
        patch.setattr(ChunkSearch, "record", lambda self, *_: self._settle(found))
        assert begun_with(trainer, backbone, tmp_path, "first") == found
    (file,) = (tmp_path / ".chunks").iterdir()
    assert begun_with(trainer, backbone, tmp_path, "second") == found
    assert json.loads(file.read_text())["confirmed"] == 0  # 40 images do not pay for a trial
    with monkeypatch.context() as patch:
        patch.setattr(ChunkSearch, "record", lambda self, *_: self._settle(self.best))
        begun_with(trainer, backbone, tmp_path, "third")
    assert json.loads(file.read_text())["confirmed"] == 1
    with monkeypatch.context() as patch:
        patch.setattr("torch.get_num_threads", lambda: 77)
        assert begun_with(trainer, backbone, tmp_path, "more threads") == Chunk(4)
    file.write_text("{")
    assert begun_with(trainer, backbone, tmp_path, "damaged") == Chunk(4)
    assert "is damaged: the search for a fast chunk begins again" in caplog.text


class NoSink:
    """Keeps nothing."""

    def __init__(self, trainer):
        pass

    def take(self, block):
        pass

    def close(self, part, errors):
        pass


def test_images_that_pass_begin_with_what_was_found(trainer, backbone, tmp_path, monkeypatch):
    begin_with(4, monkeypatch)
    sizes = []

    def passed(folder):
        new_process()
        sizes.clear()
        parts = DatasetParts(40, 16, 16)
        pass_through(*(trainer, backbone, TinyImages(40), (), parts, parts.numbers, NoSink, folder))

    record = ChunkSearch.record

    def noted(search, images, seconds):
        sizes.append(search.chunk)
        record(search, images, seconds)

    monkeypatch.setattr(ChunkSearch, "record", noted)
    passed(tmp_path / "none")
    assert set(sizes) == {Chunk(4)}
    assert not (tmp_path / "none/.chunks").exists()  # nothing was tried
    found = Chunk(8, channels_last=True)
    with monkeypatch.context() as patch:
        patch.setattr(ChunkSearch, "record", lambda self, *_: self._settle(found))
        passed(tmp_path / "found")
    passed(tmp_path / "found")
    assert set(sizes) == {found}
    assert begun_with(trainer, backbone, tmp_path / "found", "extracted") == found
    with monkeypatch.context() as patch:
        patch.setattr(ChunkSearch, "record", lambda self, *_: self._settle(found))
        begun_with(trainer, backbone, tmp_path / "other", "extracted")
    passed(tmp_path / "other")
    assert set(sizes) == {found}


@pytest.mark.parametrize("confirmed", [0, 3, 99])
def test_a_choice_made_under_noise_heals(confirmed):
    def speed(chunk):
        return (1 + abs(math.log2(chunk.size / 32))) * (1 if chunk.channels_last else 2)

    search = ChunkSearch(Chunk(2), 128, confirmed)
    settle(search, speed)
    assert search.best == Chunk(32, channels_last=True)
    search = ChunkSearch(Chunk(32, channels_last=True), 128, confirmed)
    share = lost_share(search, speed, 400_000)
    assert search.best == Chunk(32, channels_last=True)
    assert search.settled
    assert share < 0.05 / min(1 + confirmed, 5)


def test_activations_are_counted(backbone):
    maps = 6 * 6 * 6 * 4  # convolution and norm
    image = torch.zeros(1, 3, 8, 8)
    assert activation_bytes(backbone, image, graph=False) == 3 * maps
    # Kept are the input and the output of the convolution, the output of ReLU, some vectors.
    kept = activation_bytes(backbone, image, graph=True) - maps
    assert 0 <= kept - (image.nbytes + 2 * maps) < 100
    assert backbone.conv.weight.grad is None


def test_a_layer_and_the_activation_in_its_place_are_counted_once():
    class Net(torch.nn.Module):
        def __init__(self, inplace):
            super().__init__()
            self.norm, self.act = torch.nn.BatchNorm2d(3), torch.nn.ReLU(inplace)
            self.conv = torch.nn.Conv2d(3, 3, 1)

        def forward(self, x):
            return self.conv(self.act(self.norm(x)))

    image = torch.zeros(1, 3, 8, 8)
    maps = 3 * 8 * 8 * 4
    for inplace in (False, True):
        net = Net(inplace).eval().requires_grad_(False)
        assert activation_bytes(net, image, graph=True) == 2 * maps + maps


def test_a_chunk_takes_its_share_of_the_free_memory(backbone, monkeypatch):
    image = torch.zeros(1, 3, 8, 8)
    each = activation_bytes(backbone, image, graph=True)
    begin_with(64, monkeypatch)

    def largest(available, processes):
        free = namedtuple("Memory", "available")(available)
        monkeypatch.setattr(chunk_choice.psutil, "virtual_memory", lambda: free)
        monkeypatch.setattr(chunk_choice, "_SEARCHES", type(chunk_choice._SEARCHES)())
        many = image.expand(200, -1, -1, -1)
        return chunk_search(backbone, many, 200, True, "work", processes).chunk.size

    assert largest(4 * 5 * each, 1) == 5
    assert largest(4 * 6 * each, 2) == 3
    assert largest(2**40, 1) == 64


def test_numbers_do_not_depend_on_the_chunk(trainer, backbone, tmp_path, monkeypatch, caplog):
    caplog.set_level(logging.INFO, "ood_lab")
    columns = [MapPower(), GradientStep(), GradientStep(0.5)]
    begin_with(1, monkeypatch)
    monkeypatch.setattr(ChunkSearch, "record", lambda self, *_: self._settle(self.chunk))
    banks = []
    for chunk in (Chunk(200), Chunk(7), Chunk(7, channels_last=True)):
        monkeypatch.setattr(ChunkSearch, "_trials", lambda *arguments, now=chunk: iter([now]))
        monkeypatch.setattr(chunk_choice, "_SEARCHES", type(chunk_choice._SEARCHES)())
        folder = tmp_path / f"{chunk.size}{chunk.channels_last}"
        bank = extract(trainer, backbone, TinyImages(40), folder, columns)
        assert f"{chunk.size} at a time, {chunk.describe()['memory_format']}" in caplog.text
        assert bank.record.chunk == chunk.size
        assert bank.record.memory_format == chunk.describe()["memory_format"]
        assert all(weight.is_contiguous() for weight in backbone.parameters())
        banks.append(load(folder / bank.record.key))
    for other in banks[1:]:
        torch.testing.assert_close(banks[0].features, other.features, rtol=1e-6, atol=1e-6)
        torch.testing.assert_close(banks[0].logits, other.logits, rtol=1e-6, atol=1e-6)
        for key, values in banks[0].columns.items():
            torch.testing.assert_close(values, other.columns[key], rtol=1e-5, atol=1e-6)


def test_a_chunk_beyond_the_memory_is_halved(trainer, backbone, images, tmp_path):
    real, sizes = backbone.conv.forward, []

    def small_memory(image):
        sizes.append(len(image))
        if len(image) > 6:
            raise torch.OutOfMemoryError("CUDA out of memory")
        return real(image)

    whole = extract(trainer, backbone, images, tmp_path / "whole", [GradientStep()])
    chunk_choice._SEARCHES.clear()
    backbone.conv.forward = small_memory
    halved = extract(trainer, backbone, images, tmp_path / "halved", [GradientStep()])
    assert max(sizes) > 6
    assert halved.record.chunk <= 6
    torch.testing.assert_close(halved.features, whole.features)

    backbone.conv.forward = lambda image: small_memory(image.repeat(7, 1, 1, 1))
    with pytest.raises(torch.OutOfMemoryError):
        extract(make_trainer(), backbone, TinyImages(5, identity="b"), tmp_path / "none")


def test_small_batches_leave_channels_last_weights_alone(trainer, backbone, images, tmp_path):
    backbone.to(memory_format=torch.channels_last)
    bank = extract(trainer, backbone, images, tmp_path)
    assert bank.record.memory_format == "channels_last"
    assert not backbone.conv.weight.is_contiguous()


def test_weights_that_lie_as_wanted_are_left_alone(trainer, backbone, images, tmp_path):
    """PyTorch takes another kernel for the same weights where strides of size 1 differ."""
    with torch.no_grad():
        backbone.conv = torch.nn.Conv2d(3, 6, 1)
        backbone.conv.weight.data = torch.randn(6, 1, 1, 3).permute(0, 3, 1, 2)
    before = backbone.conv.weight.stride()
    assert backbone.conv.weight.is_contiguous()
    extract(trainer, backbone, images, tmp_path)
    assert backbone.conv.weight.stride() == before
