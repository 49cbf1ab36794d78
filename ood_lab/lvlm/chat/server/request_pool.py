"""Several requests under way at a time: which is sent when, and when to stop."""

from __future__ import annotations

import logging
import math
import signal
import threading
import time
from collections import deque
from collections.abc import Callable, Iterable, Iterator, Mapping
from concurrent.futures import FIRST_COMPLETED, CancelledError, Future, ThreadPoolExecutor, wait
from contextlib import contextmanager
from dataclasses import dataclass, replace
from heapq import heappop, heappush
from itertools import count
from typing import NamedTuple

from ood_lab.common.errors import UserError
from ood_lab.common.progress import duration
from ood_lab.lvlm.chat.base import Reply, Request, Requests
from ood_lab.lvlm.chat.server.server_connection import OpenAIServer, pause_before

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


log = logging.getLogger(__name__)

#: Seconds between looks at an interruption, and without a reply until that is said.
_LOOK_S, _SILENT_S = 0.5, 15.0


class Outcome(NamedTuple):
    """What comes of one attempt.

    Attributes:
        reply: the answer, or why there is none.
        answered: whether the server gave one.
        again: whether a repetition may help.
        rejected: whether the server has too many requests.
        headers: of an error.
    """

    reply: Reply
    answered: bool = False
    again: bool = False
    rejected: bool = False
    headers: Mapping[str, str] | None = None


@dataclass
class RequestPool:
    """Sends requests over a pool of threads.

    At an error or an interruption nothing more is sent, and what is under way is kept for up to
    ``timeout_s`` seconds.

    Args:
        server: its ``concurrency``, ``retries`` and ``timeout_s`` count.
        send: makes one attempt; a UserError of it ends all.
        give_up_after: so many failures in a row end the asking.

    Attributes:
        reason: once set, it ends the asking.
    """

    server: OpenAIServer
    send: Callable[[Attempt, Pacing], Outcome]
    give_up_after: int
    reason: UserError | None = None
    _deadline: float = math.inf

    def replies(self, requests: Requests, interrupted: threading.Event) -> Iterator[Reply]:
        """Replies as they come.

        Args:
            requests: in any order; see :class:`~ood_lab.lvlm.chat.server.request_pool.Pacing`.
            interrupted: is set when the user interrupts.

        Raises:
            UserError: of ``send``, ``give_up_after`` requests in a row failed, or ``reason``.
        """
        pacing = Pacing(requests, self.server.concurrency, self.server.retries)
        pool = ThreadPoolExecutor(self.server.concurrency, thread_name_prefix="ask")
        running: dict[Future[Outcome], Attempt] = {}
        ended: list[Reply] = []
        stop: BaseException | None = None
        heard, in_a_row = time.monotonic(), 0
        try:
            while True:
                reason = KeyboardInterrupt() if interrupted.is_set() else self.reason
                if stop is None and reason is not None:
                    stop = self._stop(reason, running)
                now = time.monotonic()
                while stop is None and (attempt := pacing.next(now)):
                    running[pool.submit(self.send, attempt, pacing)] = attempt
                yield from ended  # while others are under way
                ended.clear()
                pause = pacing.pause(time.monotonic())
                if stop and (not running or time.monotonic() > self._deadline):
                    raise stop
                if not running:
                    if pause == math.inf:
                        return
                    interrupted.wait(min(pause, _LOOK_S))
                    continue
                done, _ = wait(running, min(pause, _LOOK_S), return_when=FIRST_COMPLETED)
                heard = self._say_if_silent(heard, done, len(running))
                for future in done:
                    try:
                        reply = _end(future, running.pop(future), pacing, stop is None)
                    except CancelledError:
                        continue
                    except UserError as error:
                        stop = stop or self._stop(error, running)
                        continue
                    if reply is None:
                        continue
                    ended.append(reply)
                    in_a_row = in_a_row + 1 if reply.error else 0
                    if in_a_row >= self.give_up_after:
                        stop = stop or self._stop(self._given_up(in_a_row, reply), running)
        finally:
            pool.shutdown(wait=False, cancel_futures=True)

    def _stop(self, reason: BaseException, running: Iterable[Future[Outcome]]) -> BaseException:
        """Says what is waited for before nothing more is sent."""
        self._deadline = time.monotonic() + self.server.timeout_s
        under_way = sum(not future.cancel() for future in running)
        if under_way:
            log.warning(
                "stopping: %d requests are under way, and their replies are kept for up to %s%s",
                under_way,
                duration(self.server.timeout_s),
                "; Ctrl-C again ends at once" if isinstance(reason, KeyboardInterrupt) else "",
            )
        return reason

    @staticmethod
    def _given_up(in_a_row: int, reply: Reply) -> UserError:
        return UserError(
            f"{in_a_row} requests in a row failed, the last with: {reply.error}. Answers "
            "that came before are kept; repeat the command once the server responds again"
        )

    def _say_if_silent(self, heard: float, done: object, under_way: int) -> float:
        """When the server was last heard of, or last said to be silent."""
        now = time.monotonic()
        if done:
            return now
        if heard > 0 and now - heard > _SILENT_S:
            log.warning(
                "no reply from %s for %s, %d requests are under way: each ends after "
                "lvlm.timeout_s=%g seconds",
                self.server.base_url,
                duration(now - heard),
                under_way,
                self.server.timeout_s,
            )
            return 0.0  # said once, until it is heard again
        return heard


def _end(future: Future[Outcome], attempt: Attempt, pacing: Pacing, repeats: bool) -> Reply | None:
    """The reply of an attempt that ended, with its retries; None where it is repeated."""
    reply, repeated = future.result(), attempt.repeated
    if reply.answered:
        pacing.succeeded()
    else:
        pause = pause_before(repeated, reply.headers)
        if pacing.failed(attempt, time.monotonic(), pause, reply.rejected, reply.again and repeats):
            return None
    return replace(reply.reply, retries=repeated)
