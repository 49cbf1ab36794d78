"""Figures and pages show numbers that are on disk already, so their failure costs none."""

from __future__ import annotations

import logging
from collections.abc import Iterator
from contextlib import contextmanager

log = logging.getLogger(__name__)


@contextmanager
def optional(what: str) -> Iterator[None]:
    """Turns anything that is raised while ``what`` is drawn or written into one warning.

    Args:
        what: is drawn or written, for the warning.
    """
    try:
        yield
    except Exception as error:  # of a drawing library, a moved picture, a full disk, anything
        reason = f"{type(error).__name__}: {' '.join(str(error).split())}"
        log.warning("%s is skipped (%s); no number is affected", what, reason)
        log.debug("while making %s", what, exc_info=True)
