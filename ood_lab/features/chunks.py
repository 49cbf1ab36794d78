"""How many images go through a network at a time: found by timing the first of them."""

from __future__ import annotations

import math
from collections.abc import Generator, Hashable
from typing import NamedTuple
from weakref import WeakKeyDictionary

import torch
from torch import Tensor, nn

from ood_lab.models.backbone import Backbone

#: Pixels of the first chunk that is tried: on a CPU about what its caches hold. A batch of fewer
#: goes through the network whole and as it is: there is little to gain, and timing cannot then
#: move the last digit of a feature from run to run.
FIRST_PIXELS = {"cpu": 2**20, "cuda": 2**23}
#: Bytes of activations that a chunk may take on a CPU.
MOST_BYTES = 2**30
#: A chunk or a memory format is only taken for another if it saves more than this share.
GAIN = 0.03
#: Each is run once to warm up and then timed so often; the best counts.
TIMED = 2


class Chunk(NamedTuple):
    """Images that go through the network together, and how they lie in memory."""

    size: int
    channels_last: bool = False

    @property
    def memory_format(self) -> torch.memory_format:
        """PyTorch's own word."""
        return torch.channels_last if self.channels_last else torch.contiguous_format

    def describe(self) -> dict[str, int | str]:
        """For manifests."""
        return {"chunk": self.size, "memory_format": str(self.memory_format).split(".")[-1]}


class ChunkSearch:
    """Finds the fastest chunk while the work is done: what is timed is kept, not repeated.

    First the memory format at the size ``start``, then twice, four times, ... as many images as
    long as that pays, else half, a quarter, ... as many.

    Args:
        start: images of the first chunks.
        largest: no chunk is larger.

    Attributes:
        chunk: the next chunk.
        settled: nothing else will be tried.
    """

    def __init__(self, start: int, largest: int) -> None:
        self._trials = _trials(min(start, largest), largest)
        self.chunk = next(self._trials)
        self.settled = False

    def record(self, images: int, seconds: float) -> None:
        """Takes note of how long ``images`` took; fewer than a whole chunk say nothing."""
        if self.settled or images < self.chunk.size:
            return
        try:
            self.chunk = self._trials.send(seconds / images)
        except StopIteration as end:
            self._settle(end.value)

    def halve(self) -> bool:
        """Settles on half the chunk, which did not fit into memory; False where it is one image."""
        fits = self.chunk.size > 1
        self._settle(self.chunk._replace(size=max(1, self.chunk.size // 2)))
        return fits

    @classmethod
    def settled_on(cls, chunk: Chunk) -> ChunkSearch:
        """Nothing is tried."""
        search = cls(chunk.size, chunk.size)
        search._settle(chunk)
        return search

    def _settle(self, chunk: Chunk) -> None:
        self.chunk, self.settled = chunk, True


def _trials(start: int, largest: int) -> Generator[Chunk, float, Chunk]:
    """Yields chunks to be run, receives seconds per image, returns the best chunk."""
    best, cost = Chunk(start), math.inf
    for chunk in (Chunk(start), Chunk(start, channels_last=True)):
        seconds = yield from _timed(chunk)
        if seconds < (1 - GAIN) * cost:
            best, cost = chunk, seconds
    for factor in (2.0, 0.5):
        while 1 <= (size := int(best.size * factor)) <= largest:
            seconds = yield from _timed(best._replace(size=size))
            if seconds >= (1 - GAIN) * cost:
                break
            best, cost = best._replace(size=size), seconds
        if best.size > start:
            break
    return best


def _timed(chunk: Chunk) -> Generator[Chunk, float, float]:
    yield chunk  # the first run of a shape prepares kernels and memory
    seconds = math.inf
    for _ in range(TIMED):
        seconds = min(seconds, (yield chunk))
    return seconds


_SEARCHES: WeakKeyDictionary[Backbone, dict[Hashable, ChunkSearch]] = WeakKeyDictionary()


def chunk_search(
    backbone: Backbone, image: Tensor, largest: int, graph: bool, work: Hashable
) -> ChunkSearch:
    """The search of one kind of work on a backbone, which goes on from data set to data set.

    Args:
        backbone: the network.
        image: some images, ``[B, 3, H, W]``, on their device.
        largest: no chunk is larger, and on a CPU none that takes more than ``MOST_BYTES``.
        graph: the work keeps all activations for a backward pass.
        work: what tells kinds of work apart.
    """
    device = image.device.type
    key = (
        *(work, graph, largest, image.shape[1:], image.device),
        torch.is_autocast_enabled(device),
    )
    known = _SEARCHES.setdefault(backbone, {})
    if key not in known:
        known[key] = _new_search(backbone, image, largest, graph)
    return known[key]


def _new_search(backbone: Backbone, image: Tensor, largest: int, graph: bool) -> ChunkSearch:
    device, (height, width) = image.device.type, image.shape[2:]
    pixels = FIRST_PIXELS.get(device, FIRST_PIXELS["cuda"])
    if largest * height * width <= pixels:
        as_it_is = memory_format_of(backbone) == torch.channels_last
        return ChunkSearch.settled_on(Chunk(largest, as_it_is))
    if device == "cpu":
        fitting = MOST_BYTES // max(1, activation_bytes(backbone, image[:1], graph))
        largest = max(1, min(largest, fitting))
    return ChunkSearch(2 ** int(math.log2(max(1, pixels / (height * width)))), largest)


def memory_format_of(backbone: Backbone) -> torch.memory_format:
    """How the weights of convolutions lie."""
    plain = all(weight.is_contiguous() for weight in backbone.parameters() if weight.ndim == 4)
    return torch.contiguous_format if plain else torch.channels_last


@torch.no_grad()
def activation_bytes(backbone: Backbone, image: Tensor, graph: bool) -> int:
    """Bytes of activations of ``image [1, 3, H, W]``.

    With a graph the outputs of all layers; without one three times the largest, as inputs and
    outputs of a layer and a shortcut live at the same time.
    """
    sizes: list[int] = [0]

    def note(module: nn.Module, inputs: object, output: object) -> None:
        if isinstance(output, Tensor):
            sizes.append(output.nbytes)

    leaves = [module for module in backbone.modules() if not list(module.children())]
    handles = [leaf.register_forward_hook(note) for leaf in leaves]
    try:
        backbone(image)
    finally:
        for handle in handles:
            handle.remove()
    return sum(sizes) if graph else 3 * max(sizes)
