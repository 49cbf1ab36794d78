"""Which requests are sent, and when; and what the first Ctrl-C does."""

from __future__ import annotations

import math
import signal
import threading
import time
from collections import deque
from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from email.utils import parsedate_to_datetime
from heapq import heappop, heappush
from itertools import count

from ood_lab.lvlm.chat.base import Request

#: Pauses before a request is repeated, in seconds: the first, which doubles, and the longest.
_FIRST_S, _LONGEST_S = 0.5, 8.0
#: Rejections in a row, without an answer in between, that show an overloaded server.
_OVERLOADED = 3


@dataclass
class Attempt:
    """One sending of a request.

    Attributes:
        request: that is sent.
        repeated: how often it was sent before.
        retries: how many of these count as retries.
        answered: how many other requests had an answer when it was sent.
        timeouts: how often its time ran out.
    """

    request: Request
    repeated: int = 0
    retries: int = 0
    answered: int = 0
    timeouts: int = 0


class Pacing:
    """The order and the time of requests: additive increase, multiplicative decrease.

    - A failed request is repeated after its own pause, during which others are sent.
    - A rejection (429) among answers concerns its own request. Three without an answer in between
      show an overloaded server: nothing is sent during the pause, then half as many at once.
    - As many answers as there may be requests under way allow one more.
    - The first request goes first: what is wrong with all of them is then rejected once.
    - A server that is down gets no new requests before it answers one of those that failed.

    Times are seconds of any clock, which the caller reads; one thread calls. The ``openai`` client
    and tenacity repeat each request by itself: their pauses block its thread, and they have no
    common limit of requests under way.

    Args:
        requests: to be sent.
        most: requests under way at a time.
        retries: repetitions of a request. A rejection counts only where no other request was
            answered meanwhile.

    Attributes:
        answered: how many requests have been answered.
    """

    def __init__(self, requests: Iterable[Request], most: int, retries: int) -> None:
        self._todo = deque(requests)
        self._most = self._allowed = most
        self._retries = retries
        self._running = self._ended = self._since_increase = 0
        self._failures_in_a_row = self._rejections_in_a_row = 0
        self._until = -math.inf
        self._waiting: list[tuple[float, int, Attempt]] = []
        self._order = count()
        self.answered = 0

    def next(self, now: float) -> Attempt | None:
        """What is sent now; None = nothing yet, see :meth:`pause`."""
        if self._running >= self._allowed or now < self._until:
            return None
        if self._waiting and self._waiting[0][0] <= now:
            attempt = heappop(self._waiting)[-1]
        elif self._todo and self._takes_new():
            attempt = Attempt(self._todo.popleft())
        else:
            return None
        attempt.answered = self.answered
        self._running += 1
        return attempt

    def pause(self, now: float) -> float:
        """Seconds until something may be sent; infinite where an attempt has to end before."""
        if self._running >= self._allowed or not (self._waiting or self._todo):
            return math.inf
        if now < self._until:
            return self._until - now
        return max(0.0, self._waiting[0][0] - now) if self._waiting else math.inf

    def succeeded(self) -> None:
        """An attempt was answered."""
        self._running -= 1
        self._ended += 1
        self.answered += 1
        self._failures_in_a_row = self._rejections_in_a_row = 0
        self._since_increase += 1
        if self._since_increase >= self._allowed < self._most:
            self._allowed, self._since_increase = self._allowed + 1, 0

    def failed(
        self, attempt: Attempt, now: float, pause: float, rejected: bool, again: bool
    ) -> bool:
        """An attempt was not answered.

        Args:
            attempt: that failed.
            now: its end.
            pause: seconds before it may be repeated.
            rejected: for too many requests.
            again: whether a repetition may help.

        Returns:
            Whether it is repeated.
        """
        self._running -= 1
        self._failures_in_a_row += 1
        if rejected:
            self._rejections_in_a_row += 1
            if self._rejections_in_a_row >= _OVERLOADED:
                self._slow_down(now, pause)
            attempt.retries -= self.answered > attempt.answered
        if again and attempt.retries < self._retries:
            attempt.repeated, attempt.retries = attempt.repeated + 1, attempt.retries + 1
            heappush(self._waiting, (now + pause, next(self._order), attempt))
            return True
        self._ended += 1
        return False

    def _takes_new(self) -> bool:
        if not self._ended:
            return not (self._running or self._waiting)
        down = self._failures_in_a_row >= max(self._most, _OVERLOADED)
        return not (self._waiting and down)

    def _slow_down(self, now: float, pause: float) -> None:
        if now >= self._until:  # of rejections at the same time the first halves
            self._allowed, self._since_increase = max(1, self._allowed // 2), 0
        self._until = max(self._until, now + pause)


def pause_before(repetition: int, headers: Mapping[str, str] | None = None) -> float:
    """Seconds before a request is repeated: what the server asks for, else one that doubles.

    Args:
        repetition: 0 for the first.
        headers: of the error; ``retry-after`` is a number of seconds or a date.
    """
    asked = {name.lower(): value for name, value in (headers or {}).items()}
    for name, unit in (("retry-after-ms", 1e-3), ("retry-after", 1.0)):
        with suppress(KeyError, ValueError):
            return max(0.0, float(asked[name]) * unit)
    with suppress(KeyError, ValueError):
        return max(0.0, parsedate_to_datetime(asked["retry-after"]).timestamp() - time.time())
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
