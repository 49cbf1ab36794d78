"""Remarks made while images are read."""

from __future__ import annotations

import logging
from collections.abc import Callable
from dataclasses import dataclass

log = logging.getLogger(__name__)


@dataclass(frozen=True)
class ReadingWarning:
    """A remark, in one sentence.

    Attributes:
        text: the sentence.
        doubtful: something may be missing that was meant to be there.
    """

    text: str
    doubtful: bool = True


Tell = Callable[[ReadingWarning], None]


def to_log(remark: ReadingWarning) -> None:
    """Writes the remark to the log, as a warning where something may be missing."""
    log.log(logging.WARNING if remark.doubtful else logging.INFO, remark.text)
