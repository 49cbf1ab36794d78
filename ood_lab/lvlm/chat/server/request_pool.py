"""Several requests under way at a time: which is sent when, and when to stop."""

from __future__ import annotations

import logging
import math
import threading
import time
from collections.abc import Callable, Iterable, Iterator, Mapping
from concurrent.futures import FIRST_COMPLETED, CancelledError, Future, ThreadPoolExecutor, wait
from dataclasses import dataclass, replace
from typing import NamedTuple

from ood_lab.common.errors import UserError
from ood_lab.common.progress import duration
from ood_lab.lvlm.chat.base import Reply, Requests
from ood_lab.lvlm.chat.server.request_pacing import Attempt, Pacing, pause_before
from ood_lab.lvlm.chat.server.server_connection import OpenAIServer

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
            requests: in any order; see :class:`~ood_lab.lvlm.chat.server.request_pacing.Pacing`.
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
    said, repeated = future.result(), attempt.repeated
    if said.answered:
        pacing.succeeded()
    else:
        pause = pause_before(repeated, said.headers)
        if pacing.failed(attempt, time.monotonic(), pause, said.rejected, said.again and repeats):
            return None
    return replace(said.reply, retries=repeated)
