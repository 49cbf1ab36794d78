"""Hugging Face's hub, asked once whether it is there."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

from huggingface_hub import constants
from huggingface_hub.utils import get_session

#: Seconds to wait for an answer.
TIMEOUT = 10


@contextmanager
def one_attempt() -> Iterator[None]:
    """Inside, the hub's files come from its cache alone if the hub cannot be reached now.

    Its own client tries a host that is not there for a minute and more, file by file, cached or
    not.
    """
    given = constants.HF_HUB_OFFLINE
    constants.HF_HUB_OFFLINE = given or not _reachable()
    try:
        yield
    finally:
        constants.HF_HUB_OFFLINE = given


def _reachable() -> bool:
    try:
        get_session().head(constants.ENDPOINT, timeout=TIMEOUT)
    except Exception:  # requests' in older versions of the hub's client, httpx's in newer ones
        return False
    return True
