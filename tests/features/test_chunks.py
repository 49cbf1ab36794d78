"""How many images go through the network at a time: found by their speed, whatever the numbers."""

import logging

import pytest
import torch
from feature_toys import GradientStep, MapPower, TinyImages, make_trainer

from ood_lab.features import chunks
from ood_lab.features.chunks import Chunk, ChunkSearch, activation_bytes
from ood_lab.features.extract import extract
from ood_lab.features.store import load


def settle(search, seconds_per_image):
    """Runs the search to its end on a machine of known speed; returns what it tried."""
    tried = []
    while not search.settled:
        tried.append(search.chunk)
        search.record(search.chunk.size, search.chunk.size * seconds_per_image(search.chunk))
    return tried


def test_the_fastest_size_and_format_are_found():
    def speed(chunk):
        return (1 + abs(chunk.size - 64)) * (1 if chunk.channels_last else 2)

    search = ChunkSearch(start=16, largest=256)
    tried = settle(search, speed)
    assert search.chunk == Chunk(64, channels_last=True)
    assert max(chunk.size for chunk in tried) == 128
    search = ChunkSearch(start=256, largest=256)
    settle(search, speed)
    assert search.chunk == Chunk(64, channels_last=True)


def test_what_does_not_pay_is_not_taken():
    search = ChunkSearch(start=16, largest=256)
    settle(search, lambda chunk: 1.0 if chunk == Chunk(16) else 0.99)
    assert search.chunk == Chunk(16)


def test_no_chunk_is_larger_than_allowed():
    search = ChunkSearch(start=64, largest=5)
    assert {chunk.size for chunk in settle(search, lambda chunk: 1 / chunk.size)} <= {5, 2, 1}
    assert search.chunk.size == 5


def test_the_rest_of_a_batch_says_nothing_about_speed():
    search = ChunkSearch(start=16, largest=16)
    for _ in range(100):
        search.record(15, 1e-9)
    assert search.chunk == Chunk(16)
    assert not search.settled


def test_small_batches_go_through_whole_and_untimed(trainer, backbone, tmp_path):
    bank = extract(trainer, backbone, TinyImages(40), tmp_path, [GradientStep()], batch_size=16)
    assert bank.manifest["chunk"] == 16
    assert bank.manifest["memory_format"] == "contiguous_format"
    assert backbone.forwards == 2 * 3


def test_large_images_are_timed(trainer, backbone, tmp_path, monkeypatch):
    monkeypatch.setitem(chunks.FIRST_PIXELS, "cpu", 4 * 64)
    tried = []
    monkeypatch.setattr(
        ChunkSearch, "record", lambda self, images, seconds: tried.append((images, seconds))
    )
    bank = extract(trainer, backbone, TinyImages(40), tmp_path, batch_size=16)
    assert [images for images, _ in tried] == [4] * 10
    assert all(seconds > 0 for _, seconds in tried)
    assert "chunk" not in bank.manifest  # nothing was settled


def test_activations_are_counted(backbone):
    maps = 6 * 6 * 6 * 4  # convolution and norm
    image = torch.zeros(1, 3, 8, 8)
    assert activation_bytes(backbone, image, graph=True) == 2 * maps + 4 * 4
    assert activation_bytes(backbone, image, graph=False) == 3 * maps


def test_numbers_do_not_depend_on_the_chunk(trainer, backbone, tmp_path, monkeypatch, caplog):
    caplog.set_level(logging.INFO, "ood_lab")
    columns = [MapPower(), GradientStep(), GradientStep(0.5)]
    monkeypatch.setitem(chunks.FIRST_PIXELS, "cpu", 1)
    monkeypatch.setattr(ChunkSearch, "record", lambda self, *_: self._settle(self.chunk))
    banks = []
    for chunk in (Chunk(200), Chunk(7), Chunk(7, channels_last=True)):
        monkeypatch.setattr(chunks, "_trials", lambda *arguments, now=chunk: iter([now]))
        monkeypatch.setattr(chunks, "_SEARCHES", type(chunks._SEARCHES)())
        folder = tmp_path / f"{chunk.size}{chunk.channels_last}"
        bank = extract(trainer, backbone, TinyImages(40), folder, columns)
        assert f"{chunk.size} at a time, {chunk.describe()['memory_format']}" in caplog.text
        assert bank.manifest["chunk"] == chunk.size
        assert bank.manifest["memory_format"] == chunk.describe()["memory_format"]
        assert all(weight.is_contiguous() for weight in backbone.parameters())
        banks.append(load(folder / bank.manifest["key"]))
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
    chunks._SEARCHES.clear()
    backbone.conv.forward = small_memory
    halved = extract(trainer, backbone, images, tmp_path / "halved", [GradientStep()])
    assert max(sizes) > 6
    assert halved.manifest["chunk"] <= 6
    torch.testing.assert_close(halved.features, whole.features)

    backbone.conv.forward = lambda image: small_memory(image.repeat(7, 1, 1, 1))
    with pytest.raises(torch.OutOfMemoryError):
        extract(make_trainer(), backbone, TinyImages(5, identity="b"), tmp_path / "none")


def test_small_batches_leave_channels_last_weights_alone(trainer, backbone, images, tmp_path):
    backbone.to(memory_format=torch.channels_last)
    bank = extract(trainer, backbone, images, tmp_path)
    assert bank.manifest["memory_format"] == "channels_last"
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
