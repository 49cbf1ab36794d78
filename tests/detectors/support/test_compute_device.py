"""Blocks travel to the device and sums come back; no GPU is needed to see that."""

import sys

import pytest
import torch
from test_contract import CACHED, fitted
from torch import Tensor

from ood_lab.common.errors import UserError
from ood_lab.detectors import MSP
from ood_lab.detectors.base import checked_score
from ood_lab.detectors.support import chunked_arithmetic, neighbour_search
from ood_lab.detectors.support.compute_device import compute_device, computing_on
from ood_lab.neighbours import NeighbourSearch, Rows, exact_search, row_blocks
from ood_lab.run.building.trainers import check_detector_device

#: Searches through :class:`NeighbourSearch`, which has a device of its own: see tests/gpu.
SEARCHED = {"knn"}


class Remote(Tensor):
    """A tensor of a second device, as strict as CUDA: it only meets the CPU's in copies."""

    device = property(lambda self: torch.device("cuda"))

    @classmethod
    def __torch_function__(cls, func, types, args=(), kwargs=None):
        kwargs = kwargs or {}
        if func is Tensor.cpu:
            return args[0].as_subclass(Tensor)
        if func is Tensor.numpy:
            raise TypeError("can't convert a cuda tensor to numpy")
        if func is Tensor.__setitem__ and not isinstance(args[0], Remote):
            args[0][args[1]] = args[2].as_subclass(Tensor)
            return None
        if func is Tensor.to and isinstance(args[1], Remote):  # a block that travels
            return args[0].to(args[1].dtype).as_subclass(Remote)
        indexed = func is Tensor.__getitem__ and isinstance(args[0], Remote)
        if not indexed and any(_of_the_cpu(value) for value in (*args, *kwargs.values())):
            raise RuntimeError(f"{func.__name__}: tensors on two devices")
        return super().__torch_function__(func, types, args, kwargs)


def _of_the_cpu(value):
    if isinstance(value, (list, tuple)):
        return any(_of_the_cpu(part) for part in value)
    return type(value) is Tensor and value.ndim > 0


@pytest.fixture
def sent(monkeypatch):
    """Numbers in everything that has travelled to the second device, piece by piece."""
    sizes = []

    def on_device(values):
        sizes.append(values.numel())
        return values.as_subclass(Remote)

    for name, module in sys.modules.items():
        if name.startswith("ood_lab.detectors") and hasattr(module, "on_device"):
            monkeypatch.setattr(module, "on_device", on_device)
    return sizes


@pytest.mark.slow
@pytest.mark.parametrize("name", sorted(set(CACHED) - SEARCHED))
def test_a_second_device_gets_blocks_and_gives_the_same_scores(name, blobs, sent, monkeypatch):
    monkeypatch.setattr(chunked_arithmetic, "CHUNK_BYTES", 8 * 32 * 7)
    monkeypatch.setattr(neighbour_search, "QUERIES", 7)
    monkeypatch.setitem(row_blocks._BLOCKS, "cpu", row_blocks.Blocks(7, 7))
    detector = fitted(name, blobs)
    scores = checked_score(detector, blobs.test)
    assert type(scores) is Tensor
    assert {type(value) for value in detector.fitted.values()} <= {Tensor}
    assert sent
    # Blocks of seven rows, sums of squares, and what the detector has learned.
    learned = {value.numel() for value in detector.fitted.values()}
    assert max(set(sent) - {32 * 32, 33 * 33} - learned, default=0) <= 7 * 32
    monkeypatch.undo()
    torch.testing.assert_close(scores, fitted(name, blobs).score(blobs.test), rtol=1e-6, atol=1e-6)


def test_the_device_holds_inside_alone():
    with computing_on("meta"):
        assert compute_device().type == "meta"
    assert compute_device().type == "cpu"


def test_an_exhausted_gpu_is_one_line(blobs, monkeypatch):
    def score(self, bank):
        raise torch.OutOfMemoryError("CUDA out of memory")

    monkeypatch.setattr(MSP, "score", score)
    with pytest.raises(UserError, match="msp does not fit into the memory of"):
        checked_score(MSP(), blobs.test)


@pytest.mark.parametrize(
    ("device", "message"),
    [("gpu", "detector_device=gpu: choose auto, cpu, cuda"), ("cuda", "use detector_device=cpu")],
)
def test_a_device_that_is_not_there_is_one_line(device, message, monkeypatch):
    monkeypatch.setattr(torch.cuda, "is_available", lambda: False)
    with pytest.raises(UserError, match=message) as error:
        check_detector_device(device)
    assert "\n" not in str(error.value)
    check_detector_device("auto")


def test_a_bank_larger_than_the_gpu_is_searched_in_blocks(monkeypatch):
    generator = torch.Generator().manual_seed(0)
    bank, queries = (torch.randn(n, 16, generator=generator) for n in (40_000, 50))
    sent = []
    move = Rows.to
    monkeypatch.setattr(exact_search, "_fits", lambda *_: False)
    monkeypatch.setattr(Rows, "to", lambda self, d: (sent.append(len(self)), move(self, d))[1])
    found = NeighbourSearch(bank, 30, device="cpu")
    expected = (queries @ bank.T).topk(30, dim=1).values[:, -1]
    torch.testing.assert_close(found.product(queries), expected)
    assert max(sent) <= 4096 < sum(sent) == len(bank)
