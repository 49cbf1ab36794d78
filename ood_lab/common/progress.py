"""Progress of long work in lines, and messages that are broken between words only.

tqdm and rich draw bars; neither writes a line for a log, with the time left in words.
"""

from __future__ import annotations

import io
import logging
import re
import sys
import time
from dataclasses import dataclass

from rich.cells import cell_len
from rich.console import Console
from rich.text import Text

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


@dataclass
class Pace:
    """The speed of some work.

    Args:
        total: how much there is to do; None where that is unknown.
        done: how much of it was done before.
        interval: seconds without a line after which one is :attr:`due`.
    """

    total: int | None
    done: int = 0
    interval: float = 60.0

    def __post_init__(self) -> None:
        self._start = self._said = time.monotonic()

    @property
    def elapsed(self) -> float:
        """Seconds since the start."""
        return time.monotonic() - self._start

    def each(self, done: int) -> float:
        """Seconds for one unit of the work, on average."""
        return self.elapsed / max(1, done - self.done)

    def left(self, done: int) -> str:
        """The time that the rest takes, as ``3 min 20 s left``; empty where it is unknown."""
        if self.total is None or not self.done < done < self.total:
            return ""
        return f"{duration(self.each(done) * (self.total - done))} left"

    @property
    def due(self) -> bool:
        """True without a line for ``interval`` seconds."""
        return time.monotonic() - self._said >= self.interval

    def line(self, text: str) -> None:
        """Logs a line about the progress."""
        self._said = time.monotonic()
        log.info(text)


def print_anywhere() -> None:
    """Characters that the terminal does not have are replaced: no result is lost for one."""
    for stream in (sys.stdout, sys.stderr):
        if isinstance(stream, io.TextIOWrapper):
            stream.reconfigure(errors="replace")


def print_line(line: Text | str, console: Console) -> None:
    """Prints a message: broken between words on a terminal, and not at all in a file or a pipe.

    No word is broken, so that a path can be copied and searched for.
    """
    text = Text(line) if isinstance(line, str) else line
    for part in _lines(text, console.width) if console.is_terminal else [text]:
        console.print(part, soft_wrap=True)


def _lines(text: Text, width: int) -> list[Text]:
    """The text broken before words that would go beyond ``width``; rich breaks long words, too."""
    breaks, column = [], 0
    for word in re.finditer(r"\S+\s*", text.plain):
        if column and column + cell_len(word[0].rstrip()) > width:
            breaks.append(word.start())
            column = 0
        column += cell_len(word[0])
    lines = list(text.divide(breaks))
    for line in lines:
        line.rstrip()
    return lines
