"""How many images go through the network at a time: a rule, whatever the numbers."""

import logging
from collections import namedtuple

import pytest
import torch
from bank_extraction import extract
from feature_toys import GradientStep, MapPower, TinyImages, make_trainer

from ood_lab.features import lightning_extractor
from ood_lab.features.bank_store import load
from ood_lab.features.lightning_extractor import (
    MEMORY_SHARE,
    activation_bytes,
    chunk_size,
    is_convolutional,
    most_images,
)


@pytest.fixture(autouse=True)
def no_chunks_of_other_tests(monkeypatch):
    monkeypatch.setattr(lightning_extractor, "_CHUNKS", type(lightning_extractor._CHUNKS)())


def test_a_network_of_convolutions_is_in_channels_last(trainer, backbone, images, tmp_path):
    linear = torch.nn.ModuleList([torch.nn.Linear(2, 2) for _ in range(3)])
    assert is_convolutional(backbone) is False  # one of each
    assert extract(trainer, backbone, images, tmp_path).record.memory_format == "contiguous_format"
    backbone.second = torch.nn.Conv2d(6, 6, 1)
    assert is_convolutional(backbone)
    assert extract(trainer, backbone, images, tmp_path).record.memory_format == "channels_last"
    assert all(weight.is_contiguous() for weight in backbone.parameters())
    backbone.mlp = linear
    assert not is_convolutional(backbone)


@pytest.mark.parametrize(("side", "images"), [(32, 64), (64, 32), (224, 8), (336, 4), (4096, 1)])
def test_fewer_of_larger_images_are_a_chunk(side, images):
    assert most_images("cpu", side, side) == images
    assert most_images("cpu", side // 2, 2 * side) == images


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
    needed = activation_bytes(backbone, image, graph=True) / MEMORY_SHARE

    def size(available, processes):
        free = namedtuple("Memory", "available")(int(available))
        monkeypatch.setattr(lightning_extractor.psutil, "virtual_memory", lambda: free)
        return chunk_size(backbone, image, True, processes)

    assert size(5 * needed, 1) == 5
    assert size(6 * needed, 2) == 3
    assert size(0, 1) == 1
    assert size(2**40, 1) == most_images("cpu", 8, 8)


def test_the_probe_leaves_chance_as_it_was(backbone):
    backbone.drop = torch.nn.Dropout()
    before = torch.get_rng_state()
    backbone.register_forward_pre_hook(lambda *_: torch.rand(1) and None)
    activation_bytes(backbone, torch.zeros(1, 3, 8, 8), graph=False)
    assert torch.equal(torch.get_rng_state(), before)


def test_numbers_do_not_depend_on_the_chunk(trainer, backbone, tmp_path, monkeypatch, caplog):
    caplog.set_level(logging.INFO, "ood_lab")
    columns = [MapPower(), GradientStep(), GradientStep(0.5)]
    banks = []
    for size in (200, 7, 7):
        monkeypatch.setattr(lightning_extractor, "_CHUNKS", type(lightning_extractor._CHUNKS)())
        monkeypatch.setattr(lightning_extractor, "most_images", lambda *_, size=size: size)
        folder = tmp_path / str(len(banks))
        bank = extract(trainer, backbone, TinyImages(40), folder, columns)
        assert f"{size} at a time, contiguous_format" in caplog.text
        assert bank.record.chunk == size
        banks.append(load(folder / bank.record.key, [column.key for column in columns]))
    first, *others = banks
    for other in others:
        torch.testing.assert_close(first.features, other.features, rtol=1e-6, atol=1e-6)
        torch.testing.assert_close(first.logits, other.logits, rtol=1e-6, atol=1e-6)
        for key, values in first.columns.items():
            torch.testing.assert_close(values, other.columns[key], rtol=1e-5, atol=1e-6)
    assert torch.equal(others[0].features, others[1].features)  # nothing is timed


def test_a_chunk_beyond_the_memory_is_halved(trainer, backbone, images, tmp_path):
    real, sizes = backbone.conv.forward, []

    def small_memory(image):
        sizes.append(len(image))
        if len(image) > 6:
            raise torch.OutOfMemoryError("CUDA out of memory")
        return real(image)

    whole = extract(trainer, backbone, images, tmp_path / "whole", [GradientStep()])
    backbone.conv.forward = small_memory
    halved = extract(trainer, backbone, images, tmp_path / "halved", [GradientStep()])
    assert max(sizes) > 6
    assert halved.record.chunk <= 6
    torch.testing.assert_close(halved.features, whole.features)
    sizes.clear()
    extract(trainer, backbone, TinyImages(identity="b"), tmp_path / "next", [GradientStep()])
    assert max(sizes) <= 6  # the next set begins with what fits

    backbone.conv.forward = lambda image: small_memory(image.repeat(7, 1, 1, 1))
    with pytest.raises(torch.OutOfMemoryError):
        extract(make_trainer(), backbone, TinyImages(5, identity="c"), tmp_path / "none")


def test_channels_last_weights_are_left_alone(trainer, backbone, images, tmp_path):
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
