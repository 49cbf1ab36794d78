"""Lines about long work: its progress, and the time that it still takes.

tqdm and rich draw bars; neither writes a line for a log, with the time left in words.
"""

from __future__ import annotations

import logging
import time

#: For lines that a progress bar makes superfluous: they go to a file or a pipe, not to a terminal.
log = logging.getLogger("ood_lab.common.progress")


def duration(seconds: float) -> str:
    """A time in words, to two units: ``45 s``, ``3 min 20 s``, ``2 h 5 min``, ``3 d 4 h``."""
    rest = max(0, round(seconds))
    units = ((86400, "d"), (3600, "h"), (60, "min"), (1, "s"))
    parts: list[str] = []
    for size, name in units:
        count, rest = divmod(rest, size)
        if count or parts or name == "s":
            parts.append(f"{count} {name}")
    return " ".join(part for part in parts[:2] if part[0] != "0" or len(parts) == 1)


class Pace:
    """The speed of some work.

    Args:
        total: how much there is to do; None where that is unknown.
        done: how much of it was done before.
        every: seconds without a line after which one is :attr:`due`.
    """

    def __init__(self, total: int | None, done: int = 0, interval: float = 60.0) -> None:
        self.total = total
        self.every = interval
        self._done = done
        self._start = self._said = time.monotonic()

    @property
    def elapsed(self) -> float:
        """Seconds since the start."""
        return time.monotonic() - self._start

    def each(self, done: int) -> float:
        """Seconds for one unit of the work, on average."""
        return self.elapsed / max(1, done - self._done)

    def left(self, done: int) -> str:
        """The time that the rest takes, as ``3 min 20 s left``; empty where it is unknown."""
        if self.total is None or not self._done < done < self.total:
            return ""
        return f"{duration(self.each(done) * (self.total - done))} left"

    @property
    def due(self) -> bool:
        """True without a line for ``every`` seconds."""
        return time.monotonic() - self._said >= self.every

    def line(self, text: str) -> None:
        """Logs a line about the progress."""
        self._said = time.monotonic()
        log.info(text)
