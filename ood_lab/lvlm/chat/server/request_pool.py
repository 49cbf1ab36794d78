"""Requests of a benchmark over a pool of threads: which goes first, and when to stop."""

from __future__ import annotations

import logging
import math
import signal
import threading
import time
from collections.abc import Callable, Iterator
from concurrent.futures import CancelledError, Future, ThreadPoolExecutor
from contextlib import contextmanager
from queue import Empty, SimpleQueue

from ood_lab.common.errors import UserError
from ood_lab.common.progress import duration
from ood_lab.lvlm.chat.base import Reply, Request, Requests
from ood_lab.lvlm.chat.server.server_connection import OpenAIServer
from ood_lab.lvlm.chat.server.throttle import Throttle

log = logging.getLogger(__name__)

#: Seconds between looks at an interruption, and without a reply until that is said.
_LOOK_S, _SILENT_S = 0.5, 15.0
#: Threads for each request under way: others wait to be repeated meanwhile.
_THREADS = 4


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


class RequestPool:
    """Sends requests over a pool of threads.

    The first request goes first: what is wrong with all of them is then rejected once. At an error
    or an interruption nothing more is sent, and what is under way is kept for up to ``timeout_s``
    seconds.

    Args:
        server: its ``concurrency``, ``retries`` and ``timeout_s`` count.
        send: the reply to a request, or why there is none; a UserError of it ends all.
        give_up_after: so many failures in a row end the asking.

    Attributes:
        reason: once set, it ends the asking.
    """

    def __init__(
        self, server: OpenAIServer, send: Callable[[Request], Reply], give_up_after: int
    ) -> None:
        self._server, self._send, self._give_up_after = server, send, give_up_after
        server.throttle = Throttle(server.concurrency, server.retries)
        self._results: SimpleQueue[Reply | BaseException] = SimpleQueue()
        self._futures: list[Future[None]] = []
        self._failures = 0
        self.reason: BaseException | None = None

    def replies(self, requests: Requests, interrupted: threading.Event) -> Iterator[Reply]:
        """Replies as they come.

        Args:
            requests: in any order.
            interrupted: is set when the user interrupts.

        Raises:
            UserError: of ``send``, ``give_up_after`` requests in a row failed, or ``reason``.
        """
        pool = ThreadPoolExecutor(_THREADS * self._server.concurrency, thread_name_prefix="ask")
        left, deadline, heard = 0, math.inf, time.monotonic()
        parts = iter([requests[:1], requests[1:]])
        try:
            while True:
                if self.reason is None and interrupted.is_set():
                    self.reason = KeyboardInterrupt()
                if self.reason is not None and deadline == math.inf:
                    deadline = time.monotonic() + self._server.timeout_s
                    left -= self._stop(self.reason)
                if self.reason is not None and (not left or time.monotonic() > deadline):
                    raise self.reason
                if not left:
                    if not (part := next(parts, ())):
                        return
                    self._futures = [pool.submit(self._one, request) for request in part]
                    left = len(part)
                try:
                    result = self._results.get(timeout=_LOOK_S)
                except Empty:
                    heard = self._say_if_silent(heard)
                    continue
                left, heard = left - 1, time.monotonic()
                if isinstance(result, Reply):
                    yield result
                elif not isinstance(result, CancelledError):
                    self.reason = self.reason or result
        finally:
            self._server.throttle.stop()
            pool.shutdown(wait=False, cancel_futures=True)

    def _one(self, request: Request) -> None:
        try:
            reply = self._send(request)
        except BaseException as error:
            self._server.throttle.stop()
            self._results.put(error)
            return
        # Counted where they come: who reads replies is slower, and more would be sent meanwhile.
        self._failures = self._failures + 1 if reply.error else 0
        if self._failures >= self._give_up_after:
            self._server.throttle.stop()
            self.reason = self.reason or UserError(
                f"{self._failures} requests in a row failed, the last with: {reply.error}. Answers "
                "that came before are kept; repeat the command once the server responds again"
            )
        self._results.put(reply)

    def _stop(self, reason: BaseException) -> int:
        """Sends nothing more, and says what is waited for; returns how many will have no result."""
        self._server.throttle.stop()
        unsent = sum(future.cancel() for future in self._futures)
        if under_way := self._server.throttle.running:
            log.warning(
                "stopping: %d requests are under way, and their replies are kept for up to %s%s",
                under_way,
                duration(self._server.timeout_s),
                "; Ctrl-C again ends at once" if isinstance(reason, KeyboardInterrupt) else "",
            )
        return unsent

    def _say_if_silent(self, heard: float) -> float:
        """When the server was last heard of; infinite once it is reported as silent."""
        silent = time.monotonic() - heard
        if silent < _SILENT_S:
            return heard
        log.warning(
            "no reply from %s for %s, %d requests are under way: each ends after "
            "lvlm.timeout_s=%g seconds",
            self._server.base_url,
            duration(silent),
            self._server.throttle.running,
            self._server.timeout_s,
        )
        return math.inf
