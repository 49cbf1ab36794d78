"""How many requests are under way at once, and when none is sent, shared by all threads."""

from __future__ import annotations

import signal
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

#: Pauses before a request is repeated, in seconds: the first, which doubles, and the longest.
_FIRST_S, _LONGEST_S = 0.5, 8.0


class Pacing:
    """One pause for all after a rate-limit error, and fewer at once until it holds.

    Each pause halves how many requests may be under way; as many answers in a row as there are
    allowed add one again.

    Args:
        most: requests under way at a time.

    Attributes:
        answered: how many requests have been answered.
    """

    def __init__(self, most: int) -> None:
        self._most = self._allowed = most
        self._running, self._in_a_row, self._until = 0, 0, 0.0
        self._changed = threading.Condition()
        self.answered = 0

    @contextmanager
    def turn(self) -> Iterator[None]:
        """Waits until a request may be sent."""
        with self._changed:
            while self._running >= self._allowed or time.monotonic() < self._until:
                pause = self._until - time.monotonic()
                self._changed.wait(pause if pause > 0 else None)
            self._running += 1
        try:
            yield
        finally:
            with self._changed:
                self._running -= 1
                self._changed.notify_all()

    def refused(self, pause: float) -> None:
        """A request was one too many: nothing is sent for ``pause`` seconds."""
        with self._changed:
            now = time.monotonic()
            if now >= self._until:  # of refusals at the same time the first halves
                self._allowed = max(1, self._allowed // 2)
            self._until = max(self._until, now + pause)
            self._in_a_row = 0
            self._changed.notify_all()

    def succeeded(self) -> None:
        """A request was answered."""
        with self._changed:
            self.answered += 1
            self._in_a_row += 1
            if self._in_a_row >= self._allowed < self._most:
                self._allowed, self._in_a_row = self._allowed + 1, 0
                self._changed.notify_all()


def pause_before(repetition: int, headers: Any = None) -> float:
    """Seconds before a request is repeated: what the server asks for, else one that doubles.

    Args:
        repetition: 0 for the first.
        headers: of the error.
    """
    for name, unit in (("retry-after-ms", 1e-3), ("retry-after", 1.0)):
        try:
            return max(0.0, float((headers or {})[name]) * unit)
        except (KeyError, ValueError):  # missing, or a date
            continue
    return min(_FIRST_S * 2.0**repetition, _LONGEST_S)


@contextmanager
def interruption() -> Iterator[threading.Event]:
    """An event that the first Ctrl-C sets; a second one ends at once, as it does elsewhere."""
    event = threading.Event()
    if threading.current_thread() is not threading.main_thread():
        yield event
        return
    before = signal.getsignal(signal.SIGINT)

    def first(*_: object) -> None:
        event.set()
        signal.signal(signal.SIGINT, before)

    signal.signal(signal.SIGINT, first)
    try:
        yield event
    finally:
        signal.signal(signal.SIGINT, before)
