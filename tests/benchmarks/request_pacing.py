"""Throughput of the pacing of requests on servers that fail, on virtual time.

    python -m tests.benchmarks.request_pacing [--concurrency 8] [--requests 3576]

Three rules on four servers whose replies take 0.1 s:

- ``all pause`` (until November 2026): one rejection halves the requests under way and pauses all of
  them; as many answers in a row allow one more; a request that waits takes the place of another.
- ``textbook``: one rejection halves the requests under way; only its own request pauses.
- ``now``: :class:`ood_lab.lvlm.chat.server.request_pool.Pacing`.

A row has the throughput as a share of that of an undisturbed server, and the requests per answer.
"""

from __future__ import annotations

import argparse
import math
from collections.abc import Callable
from heapq import heappop, heappush

import numpy as np

from ood_lab.lvlm.chat.base import Request
from ood_lab.lvlm.chat.server.request_pool import Attempt, Pacing
from ood_lab.lvlm.chat.server.server_connection import pause_before
from ood_lab.lvlm.questions.question_files import Question

#: Seconds of a reply.
LATENCY_S = 0.1
#: What a server does: the status of an answer or an error, 0 = a closed connection, and headers.
Server = Callable[[Attempt, float], tuple[int, dict[str, str]]]


class AllPause(Pacing):
    """The rule of before: every rejection pauses all requests."""

    def next(self, now: float) -> Attempt | None:
        held = self._running + len([due for due, *_ in self._waiting if due > now])
        return None if held >= self._most else super().next(now)

    def failed(self, attempt, now, pause, rejected, again):
        self._since_increase = 0 if rejected else self._since_increase
        if rejected:
            self._slow_down(now, pause)
        return super().failed(attempt, now, pause, False, again)

    def _takes_new(self) -> bool:
        return bool(self._ended) or not (self._running or self._waiting)


class Textbook(Pacing):
    """Additive increase and multiplicative decrease at every rejection."""

    def failed(self, attempt, now, pause, rejected, again):
        if rejected:
            self._slow_down(now, 0.0)
        return super().failed(attempt, now, pause, False, again)


def undisturbed(_attempt: Attempt, _now: float) -> tuple[int, dict[str, str]]:
    """Answers every request."""
    return 200, {}


def flaky(headers: dict[str, str] | None = None, seed: int = 0) -> Server:
    """A third of first requests fail: with 429 (and these headers), 500 or a closed connection."""
    draw = np.random.default_rng(seed)

    def reply(attempt: Attempt, _now: float) -> tuple[int, dict[str, str]]:
        if attempt.repeated or draw.random() >= 1 / 3:
            return 200, {}
        status = int(draw.choice([429, 500, 0]))
        return status, dict(headers or {}) if status == 429 else {}

    return reply


def limited(most: int = 10, window_s: float = 0.5, headers: dict[str, str] | None = None) -> Server:
    """Rejects all but the first ``most`` requests of every window."""
    seen: dict[int, int] = {}

    def reply(_attempt: Attempt, now: float) -> tuple[int, dict[str, str]]:
        window = int(now / window_s)
        seen[window] = seen.get(window, 0) + 1
        return (200, {}) if seen[window] <= most else (429, dict(headers or {}))

    return reply


def simulate(pacing: Pacing, server: Server) -> tuple[float, list[tuple[float, Attempt, int]]]:
    """Seconds until all requests have ended, and each sending with its time and status."""
    now, order, sent = 0.0, 0, []
    under_way: list[tuple[float, int, Attempt, int, dict[str, str]]] = []
    while True:
        while (attempt := pacing.next(now)) is not None:
            status, headers = server(attempt, now)
            sent.append((now, Attempt(attempt.request, attempt.repeated), status))
            heappush(under_way, (now + LATENCY_S, order, attempt, status, headers))
            order += 1
        ends = under_way[0][0] if under_way else math.inf
        following = min(ends, now + pacing.pause(now))
        if following == math.inf:
            return now, sent
        now = following
        while under_way and under_way[0][0] <= now:
            _, _, attempt, status, headers = heappop(under_way)
            if status == 200:
                pacing.succeeded()
            else:
                pause = pause_before(attempt.repeated, headers)
                pacing.failed(attempt, now, pause, status == 429, again=True)


def requests(count: int) -> list[Request]:
    """Requests that nobody reads."""
    return [Request(str(number), [], Question("", "", None, "", "")) for number in range(count)]


def main() -> None:
    """Prints the table."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--concurrency", type=int, default=8)
    parser.add_argument("--requests", type=int, default=3576)
    given = parser.parse_args()
    servers: dict[str, Callable[[], Server]] = {
        "a third fails first": flaky,
        "the same, Retry-After: 1": lambda: flaky({"retry-after": "1"}),
        "10 in 0.5 s": limited,
        "10 in 0.5 s, Retry-After: 0.2": lambda: limited(headers={"retry-after": "0.2"}),
    }
    best, _ = simulate(Pacing(requests(given.requests), given.concurrency, 5), undisturbed)
    print(f"undisturbed: {best:.1f} s")
    for name, server in servers.items():
        for rule, words in ((AllPause, "all pause"), (Textbook, "textbook"), (Pacing, "now")):
            pacing = rule(requests(given.requests), given.concurrency, 5)
            seconds, sent = simulate(pacing, server())
            print(
                f"{name:32}{words:12}{seconds:8.1f} s  throughput {best / seconds:6.1%}  "
                f"requests per answer {len(sent) / max(1, pacing.answered):.2f}  "
                f"unanswered {given.requests - pacing.answered}"
            )


if __name__ == "__main__":
    main()
