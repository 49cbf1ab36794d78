"""How long the stages of a run took, and which of them had been done before."""

from __future__ import annotations

import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field


@dataclass
class TimedStage:
    """One look at a stage.

    Attributes:
        reused: all that it makes was there already.
    """

    reused: bool = False


@dataclass
class Stages:
    """Seconds of every stage, in the order in which they began.

    A stage inside of another does not count for the outer one, so the seconds add up.

    Attributes:
        seconds: by the name of the stage.
        worked: names of the stages that had anything to do.
    """

    seconds: dict[str, float] = field(default_factory=dict)
    worked: set[str] = field(default_factory=set)
    _open: list[str] = field(default_factory=list)
    _since: float = 0.0

    @contextmanager
    def __call__(self, name: str) -> Iterator[TimedStage]:
        """Times what is done inside; say ``reused`` where there was nothing to do."""
        self.seconds.setdefault(name, 0.0)
        self._turn()
        self._open.append(name)
        stage = TimedStage()
        try:
            yield stage
        finally:
            self._turn()
            self._open.pop()
        if not stage.reused:
            self.worked.add(name)

    def _turn(self) -> None:
        now = time.perf_counter()
        if self._open:
            self.seconds[self._open[-1]] += now - self._since
        self._since = now

    @property
    def skipped(self) -> list[str]:
        """Stages that had nothing to do."""
        return [name for name in self.seconds if name not in self.worked]

    def __str__(self) -> str:
        """``train 31 s, measure 2.1 s; done before: extract``."""
        stages = [
            f"{name} {_shown(s)} s" for name, s in self.seconds.items() if name in self.worked
        ]
        before = f"done before: {', '.join(self.skipped)}" if self.skipped else ""
        return "; ".join(filter(None, [", ".join(stages), before]))


def _shown(seconds: float) -> str:
    return f"{seconds:.0f}" if seconds >= 9.95 else f"{seconds:.1f}"
