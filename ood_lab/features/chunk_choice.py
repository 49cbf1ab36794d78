"""How many images go through a network at a time, and how they are in memory."""

from __future__ import annotations

import math
from collections.abc import Generator, Hashable
from itertools import chain
from pathlib import Path
from weakref import WeakKeyDictionary

import psutil
import torch
from torch import Tensor, nn

from ood_lab.features.bank_identity import architecture_sha256
from ood_lab.features.chunk_files import Chunk, ChunkFile, machine
from ood_lab.models.backbone import Backbone
from ood_lab.models.forward_hooks import hooked

#: A batch of fewer pixels is not timed: there is little to gain, and timing cannot then move the
#: last digit of a feature from run to run.
UNTIMED_PIXELS = {"cpu": 2**20, "cuda": 2**23}
#: Share of the free memory that the activations of a chunk may take on a CPU.
MEMORY_SHARE = 0.25
#: A size is only taken for another if it saves more than this share, and so is a memory format: the
#: one to begin with goes by the kind of network, and is rarely the slower one.
GAIN_SIZE, GAIN_FORMAT = 0.03, 0.15
#: Each is run once to warm up and then timed so often, by turns with the best so far; of either the
#: fastest counts, so that other work on the machine has to hit all of one and none of the other.
TIMED = 5
#: Share of the time of a pass that may be lost to what turns out to be slower.
SEARCH_SHARE = 0.05
#: What earlier runs have found so often is tried against others no more rarely than that.
CONFIRMED = 4
#: How much slower than the best so far another size or the other format is feared to be.
FEARED_SIZE, FEARED_FORMAT = 1.3, 2.0


class ChunkSearch:
    """Finds the fastest chunk while the work is done: what is timed is kept, not repeated.

    The work begins with ``start``. Then twice, four times, ... as many images are tried as long as
    that pays, else half, a quarter, ... as many, and then the other memory format, by turns with
    the best so far. Each is tried only once the time already spent is so long that the trial, were
    it as slow as feared, would not have cost more than ``SEARCH_SHARE`` of it: a short pass is made
    as it began.

    What an earlier run has found is where the next one starts. It is tried against others again, so
    that a choice made under noise does not stay, but the rarer the more runs have ended there:
    ``SEARCH_SHARE`` is divided by one more than their number.

    Args:
        start: the first chunks.
        largest: no chunk has more images.
        confirmed: runs that have begun and ended with ``start``.
        file: where the choice is kept; None = nowhere.

    Attributes:
        chunk: the next chunk.
        best: the fastest so far.
        settled: nothing else will be tried.
    """

    def __init__(
        self,
        start: Chunk,
        largest: int,
        confirmed: int = 0,
        file: ChunkFile | None = None,
    ) -> None:
        self._spent = self._lost = 0.0
        self._share = SEARCH_SHARE / (1 + min(confirmed, CONFIRMED))
        self.best = self._start = start._replace(size=min(start.size, largest))
        self._confirmed, self._file = confirmed, file
        self._course = self._trials(largest)
        self.chunk = next(self._course)
        self.settled = False

    def record(self, images: int, seconds: float) -> None:
        """Takes note of how long ``images`` took; fewer than a whole chunk say nothing of it."""
        self._spent += seconds
        if self.settled or images < self.chunk.size:
            return
        try:
            self.chunk = self._course.send(seconds / images)
        except StopIteration:
            self._settle(self.best)

    def keep(self) -> None:
        """Writes down what was found, for the next run; nothing where nothing was tried."""
        if self._file and (self.settled or self.best != self._start):
            confirmed = self._confirmed + 1 if self.best == self._start else 0
            self._file.write(self.best, confirmed)

    def halve(self) -> bool:
        """Settles on half the chunk, which did not fit into memory; False where it is one image."""
        fits = self.chunk.size > 1
        self._settle(self.chunk._replace(size=max(1, self.chunk.size // 2)))
        return fits

    @classmethod
    def settled_on(cls, chunk: Chunk) -> ChunkSearch:
        """Nothing is tried."""
        search = cls(chunk, chunk.size)
        search._settle(chunk)
        return search

    def _settle(self, chunk: Chunk) -> None:
        self.chunk = self.best = chunk
        self.settled = True

    def _trials(self, largest: int) -> Generator[Chunk, float, None]:
        """Yields chunks to be run, receives seconds per image, leaves the best in ``best``."""
        yield self.best  # the first run of a shape prepares kernels and memory
        start, cost = self.best, (yield self.best)
        for factor in (2.0, 0.5):
            while 1 <= (size := int(self.best.size * factor)) <= largest:
                other = self.best._replace(size=size)
                cost = yield from self._tried(other, cost, FEARED_SIZE, GAIN_SIZE)
                if self.best.size != size:
                    break
            if self.best != start:
                break
        other = self.best._replace(channels_last=not self.best.channels_last)
        yield from self._tried(other, cost, FEARED_FORMAT, GAIN_FORMAT)

    def _tried(
        self, other: Chunk, cost: float, feared: float, gain: float
    ) -> Generator[Chunk, float, float]:
        """Tries a chunk once it can be afforded; returns the seconds per image of the best."""
        images = (1 + TIMED) * other.size
        while self._lost + images * (feared - 1) * cost > self._share * self._spent:
            cost = min(cost, (yield self.best))
        theirs, ours = [(yield other)], []
        for _ in range(TIMED):
            theirs.append((yield other))
            ours.append((yield self.best))
        self._lost += max(0.0, sum(theirs) * other.size - images * min(ours))
        if min(theirs[1:]) >= (1 - gain) * min(ours):
            return min(ours)
        self.best = other
        return min(theirs[1:])


_SEARCHES: WeakKeyDictionary[Backbone, dict[Hashable, ChunkSearch]] = WeakKeyDictionary()


def chunk_search(
    backbone: Backbone,
    image: Tensor,
    largest: int,
    graph: bool,
    work: Hashable,
    processes: int = 1,
    choices: Path | None = None,
) -> ChunkSearch:
    """The search of one kind of work on a backbone, which resumes from data set to data set.

    Args:
        backbone: the network.
        image: some images, ``[B, 3, H, W]``, on their device.
        largest: no chunk is larger, and on a CPU none whose activations take more than
            ``MEMORY_SHARE`` of the free memory.
        graph: the work keeps activations for a backward pass.
        work: what tells kinds of work apart.
        processes: that share the memory of this machine.
        choices: folder of what earlier runs have found, one file for a network (its layers, not
            its weights), size of images, batch size, kind of work and machine; None = none.
    """
    autocast = torch.is_autocast_enabled(image.device.type)
    key = (work, graph, largest, image.shape[1:], image.device, autocast)
    known = _SEARCHES.setdefault(backbone, {})
    if key not in known:
        of = {
            "network": architecture_sha256(backbone),
            "image": list(image.shape[1:]),
            "batch": largest,
            "work": str(work),
            "gradients": graph,
            "autocast": autocast,
            "processes": processes,
            **machine(image.device),
        }
        file = ChunkFile(choices, of) if choices else None
        known[key] = _new_search(backbone, image, largest, graph, processes, file)
    return known[key]


def _new_search(
    backbone: Backbone,
    image: Tensor,
    largest: int,
    graph: bool,
    processes: int,
    file: ChunkFile | None,
) -> ChunkSearch:
    device, (height, width) = image.device.type, image.shape[2:]
    start = Chunk(first_size(device, height, width), is_convolutional(backbone))
    if largest * height * width <= UNTIMED_PIXELS.get(device, UNTIMED_PIXELS["cuda"]):
        as_it_is = memory_format_of(backbone) == torch.channels_last
        if device != "cpu":
            return ChunkSearch.settled_on(Chunk(largest, as_it_is))
        return ChunkSearch.settled_on(
            Chunk(min(start.size, largest), as_it_is or start.channels_last)
        )
    if device == "cpu":
        free = MEMORY_SHARE * psutil.virtual_memory().available / processes
        fitting = int(free) // max(1, activation_bytes(backbone, image[:1], graph))
        largest = max(1, min(largest, fitting))
    start, confirmed = (file and file.read()) or (start, 0)
    return ChunkSearch(start, largest, confirmed, file)


def first_size(device: str, height: int, width: int) -> int:
    """Images of the chunk that a pass begins with, a power of two.

    On a CPU 2¹¹ over the side of an image (64 images of 32 x 32 pixels, 8 of 224 x 224): layers of
    that many stay in its caches, and those of small images have enough to do. On a GPU about 2²³
    pixels.
    """
    pixels = height * width
    images = 2**11 / math.sqrt(pixels) if device == "cpu" else 2**23 / pixels
    return 2 ** int(math.log2(max(1, images)))


def is_convolutional(backbone: Backbone) -> bool:
    """Whether most layers are convolutions: such a network is fastest in ``channels_last``.

    ConvNeXt, Swin and ViT, whose layers are mostly linear, gain nothing by it or lose.
    """
    convolutions = sum(isinstance(module, nn.Conv2d) for module in backbone.modules())
    return convolutions > sum(isinstance(module, nn.Linear) for module in backbone.modules())


def memory_format_of(backbone: Backbone) -> torch.memory_format:
    """How the weights of convolutions lie."""
    plain = all(weight.is_contiguous() for weight in backbone.parameters() if weight.ndim == 4)
    return torch.contiguous_format if plain else torch.channels_last


def activation_bytes(backbone: Backbone, image: Tensor, graph: bool) -> int:
    """Bytes of activations of ``image [1, 3, H, W]``.

    With a graph all that autograd keeps for the backward pass, each storage once (a layer and the
    activation that works in its place share one), and the largest once more; without a graph three
    times the largest, as inputs and outputs of a layer and a shortcut live at the same time.
    """
    kept: dict[int, int] = {}
    largest = 0
    weights = {
        w.untyped_storage().data_ptr() for w in chain(backbone.parameters(), backbone.buffers())
    }

    def keep(value: Tensor) -> Tensor:
        storage = value.untyped_storage()
        if storage.data_ptr() not in weights:
            kept[storage.data_ptr()] = storage.nbytes()
        return value

    def note(module: nn.Module, inputs: object, output: object) -> None:
        nonlocal largest
        if isinstance(output, Tensor):
            largest = max(largest, output.nbytes)

    leaves = [module for module in backbone.modules() if not list(module.children())]
    handles = [leaf.register_forward_hook(note) for leaf in leaves]
    with (
        hooked(handles),
        torch.set_grad_enabled(graph),
        torch.autograd.graph.saved_tensors_hooks(keep, lambda value: value),
    ):
        # The graph lives until all is counted: no address is then given out twice.
        output = backbone(image.detach().clone().requires_grad_(graph))
    del output
    return sum(kept.values()) + largest if graph else 3 * largest
