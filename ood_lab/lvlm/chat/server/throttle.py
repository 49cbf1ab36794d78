"""The pace of one server: requests under way, pauses and retries."""

from __future__ import annotations

import math
import threading
import time
from collections.abc import Callable, Iterator, Mapping
from concurrent.futures import CancelledError
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from email.utils import parsedate_to_datetime
from typing import TypeVar

from tenacity import (
    RetryCallState,
    Retrying,
    retry_if_exception,
    sleep_using_event,
    wait_exponential,
)

#: Rejections in a row, without an answer in between, that show an overloaded server.
_OVERLOADED = 3
#: Pauses before a request is repeated: 0.5 s, which doubles, up to 8 s.
_BACKOFF = wait_exponential(multiplier=0.5, max=8.0)
_Answer = TypeVar("_Answer")


@dataclass(eq=False)
class FailedAttempt(Exception):
    """Why a request that was sent has no answer.

    Args:
        message: in one line, without the key.
        again: whether a repetition may help.
        rejected: whether the server has too many requests.
        late: whether its time ran out: the server may charge for it.
        headers: of the response.
        body: of the response.
        retries: how often the request was repeated before.
        timeouts: how often its time ran out.
    """

    message: str
    again: bool = True
    rejected: bool = False
    late: bool = False
    headers: Mapping[str, str] = field(default_factory=dict)
    body: str = ""
    retries: int = 0
    timeouts: int = 0


class Throttle:
    """Additive increase, multiplicative decrease of the requests under way; threads share it.

    - A failed request is repeated after its pause, during which others are sent.
    - A rejection (429) among answers concerns its own request. Three without an answer in between
      show an overloaded server: nothing is sent during the pause, then half as many at once.
    - As many answers as there may be requests under way allow one more.

    The ``openai`` client repeats each request by itself: it has no common pause, repeats what
    timed out as often as all else, and takes an error with status 200 for an answer.

    Args:
        most: requests under way at a time.
        retries: repetitions of a request, of which what timed out has one. A rejection counts only
            where no other request was answered meanwhile.

    Attributes:
        answered: how many requests have been answered.
        running: how many are under way.
    """

    def __init__(self, most: int, retries: int) -> None:
        self._most = self._allowed = most
        self._retries = retries
        self._since_increase = self._rejections = 0
        self._until = -math.inf
        self._change, self._stopped = threading.Condition(), threading.Event()
        self.answered = self.running = 0

    def stop(self) -> None:
        """Sends nothing more; what waits ends with a CancelledError."""
        self._stopped.set()
        with self._change:
            self._change.notify_all()

    def answer(self, attempt: Callable[[], _Answer]) -> tuple[_Answer, int]:
        """What an attempt returns, and how often it was repeated before.

        Raises:
            FailedAttempt: the last one; ``retries`` says how often it was repeated.
            CancelledError: see :meth:`stop`.
        """
        counted = timeouts = before = 0

        def send() -> _Answer:
            nonlocal before
            with self._slot():
                before = self.answered
                result = attempt()
                self._succeeded()
                return result

        def is_last(state: RetryCallState) -> bool:
            nonlocal counted, timeouts
            error = _error_of(state)
            if error.rejected:
                self._rejected(state.upcoming_sleep)
            timeouts += error.late
            error.retries, error.timeouts = state.attempt_number - 1, timeouts
            counted += not (error.rejected and self.answered > before)
            return counted > self._retries or timeouts > 1 or self._stopped.is_set()

        retrying = Retrying(
            retry=retry_if_exception(
                lambda error: isinstance(error, FailedAttempt) and error.again
            ),
            wait=lambda state: retry_after(_error_of(state).headers, _BACKOFF(state)),
            stop=is_last,
            sleep=sleep_using_event(self._stopped),
            reraise=True,
        )
        result = retrying(send)
        return result, retrying.statistics["attempt_number"] - 1

    @contextmanager
    def _slot(self) -> Iterator[None]:
        """Waits until one more request may be under way."""
        with self._change:
            while not self._stopped.is_set() and (
                self.running >= self._allowed or time.monotonic() < self._until
            ):
                pause = self._until - time.monotonic()
                self._change.wait(pause if pause > 0 else None)
            if self._stopped.is_set():
                raise CancelledError
            self.running += 1
        try:
            yield
        finally:
            with self._change:
                self.running -= 1
                self._change.notify()

    def _succeeded(self) -> None:
        with self._change:
            self.answered += 1
            self._rejections = 0
            self._since_increase += 1
            if self._since_increase >= self._allowed < self._most:
                self._allowed, self._since_increase = self._allowed + 1, 0
                self._change.notify()

    def _rejected(self, pause: float) -> None:
        now = time.monotonic()
        with self._change:
            self._rejections += 1
            if self._rejections < _OVERLOADED:
                return
            if now >= self._until:  # of rejections at the same time the first halves
                self._allowed, self._since_increase = max(1, self._allowed // 2), 0
            self._until = max(self._until, now + pause)


def _error_of(state: RetryCallState) -> FailedAttempt:
    assert state.outcome is not None
    error = state.outcome.exception()
    assert isinstance(error, FailedAttempt)
    return error


def retry_after(headers: Mapping[str, str], otherwise: float) -> float:
    """Seconds that a server asks for before a request is repeated: a number or a date."""
    values = {name.lower(): value for name, value in headers.items()}
    for name, unit in (("retry-after-ms", 1e-3), ("retry-after", 1.0)):
        with suppress(KeyError, ValueError):
            return max(0.0, float(values[name]) * unit)
    with suppress(KeyError, ValueError):
        return max(0.0, parsedate_to_datetime(values["retry-after"]).timestamp() - time.time())
    return otherwise
