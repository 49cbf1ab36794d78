"""Copies between the host and a device, for which no computation waits."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from typing import Any, Protocol

import torch
from torch import Tensor

Batch = dict[str, Any]
#: Waits until rows are on the host, and gives them.
Arrival = Callable[[], Batch]


class Copies(Protocol):
    """Both ways: images to the device, rows to the host.

    Attributes:
        lag: batches that are computed before the rows of one are read.
    """

    lag: int

    def ahead(self, batches: Iterable[Batch]) -> Iterator[Batch]:
        """The batches with their ``image`` on the device, the next one on its way."""

    def to_host(self, rows: Batch) -> Arrival:
        """Begins the copy of rows."""


class BlockingCopies:
    """Of a CPU, which has nothing to copy, and of devices without streams."""

    lag = 0

    def __init__(self, device: torch.device) -> None:
        self._device = device

    def ahead(self, batches: Iterable[Batch]) -> Iterator[Batch]:
        """See :class:`Copies`; no batch is read before it is needed."""
        return (moved(batch, lambda x: x.to(self._device)) for batch in batches)

    def to_host(self, rows: Batch) -> Arrival:
        """See :class:`Copies`."""
        return lambda: on_each(rows, Tensor.cpu)


class StreamedCopies:
    """Of a CUDA device: on two streams of their own, from and to pinned memory.

    Two batches are on the device at most. The rows of one are read while the next is computed.
    """

    lag = 1

    def __init__(self, device: torch.device) -> None:
        self._device = device
        self._up, self._down = torch.cuda.Stream(device), torch.cuda.Stream(device)

    def ahead(self, batches: Iterable[Batch]) -> Iterator[Batch]:
        """See :class:`Copies`."""
        waiting: tuple[Batch, torch.cuda.Event] | None = None
        for batch in batches:
            with torch.cuda.stream(self._up):
                later = moved(batch, lambda x: x.to(self._device, non_blocking=True))
                event = self._up.record_event()
            if waiting is not None:
                yield self._ordered(waiting[0], waiting[1])
            waiting = later, event
        if waiting is not None:
            yield self._ordered(waiting[0], waiting[1])

    def _ordered(self, batch: Batch, copied: torch.cuda.Event) -> Batch:
        """Later work on the device waits for the copy; the host does not."""
        stream = torch.cuda.current_stream(self._device)
        stream.wait_event(copied)
        moved(batch, lambda x: x.record_stream(stream))
        return batch

    def to_host(self, rows: Batch) -> Arrival:
        """See :class:`Copies`."""
        self._down.wait_event(torch.cuda.current_stream(self._device).record_event())

        def copy(values: Tensor) -> Tensor:
            if values.device.type == "cpu":
                return values
            values.record_stream(self._down)
            pinned = torch.empty(values.shape, dtype=values.dtype, pin_memory=True)
            return pinned.copy_(values, non_blocking=True)

        with torch.cuda.stream(self._down):
            host, event = on_each(rows, copy), self._down.record_event()

        def wait() -> Batch:
            event.synchronize()
            return host

        return wait


def moved(batch: Batch, move: Callable[[Tensor], Any]) -> Batch:
    """A batch with its images moved, if any could be read."""
    return batch | {"image": move(batch["image"])} if "image" in batch else batch


def on_each(rows: Batch, change: Callable[[Tensor], Tensor]) -> Batch:
    """Rows, and those in a dictionary among them, each changed."""
    return {
        key: on_each(values, change) if isinstance(values, dict) else change(values)
        for key, values in rows.items()
    }


def copies_for(device: torch.device) -> Copies:
    """The copies that suit a device."""
    return StreamedCopies(device) if device.type == "cuda" else BlockingCopies(device)
