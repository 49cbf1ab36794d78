"""How long the stages of a run took."""

from __future__ import annotations

import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field


@dataclass
class Stages:
    """Seconds of every stage, in the order in which they began.

    A stage inside of another does not count for the outer one, so the seconds add up.

    Attributes:
        seconds: by the name of the stage.
    """

    seconds: dict[str, float] = field(default_factory=dict)
    _open: list[str] = field(default_factory=list)
    _since: float = 0.0

    @contextmanager
    def __call__(self, name: str) -> Iterator[None]:
        """Times what is done inside."""
        self.seconds.setdefault(name, 0.0)
        self._turn()
        self._open.append(name)
        try:
            yield
        finally:
            self._turn()
            self._open.pop()

    def _turn(self) -> None:
        now = time.perf_counter()
        if self._open:
            self.seconds[self._open[-1]] += now - self._since
        self._since = now

    def __str__(self) -> str:
        """``train 31 s, measure 2.1 s``."""
        return ", ".join(f"{name} {_shown(s)} s" for name, s in self.seconds.items())


def _shown(seconds: float) -> str:
    return f"{seconds:.0f}" if seconds >= 9.95 else f"{seconds:.1f}"
