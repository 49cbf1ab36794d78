"""Remarks made while images are read."""

from __future__ import annotations

import logging
from typing import Protocol

log = logging.getLogger(__name__)


class Tell(Protocol):
    """Receives remarks."""

    def __call__(self, text: str, doubtful: bool = True) -> None:
        """One sentence; it is ``doubtful`` where something may be missing that was meant."""


def to_log(text: str, doubtful: bool = True) -> None:
    """Writes a remark to the log, as a warning where something may be missing."""
    log.log(logging.WARNING if doubtful else logging.INFO, text)
