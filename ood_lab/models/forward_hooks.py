"""Hooks of modules that end with what they are for."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from contextlib import contextmanager

from torch.utils.hooks import RemovableHandle


@contextmanager
def hooked(handles: Iterable[RemovableHandle]) -> Iterator[None]:
    """Removes hooks at the end."""
    try:
        yield
    finally:
        for handle in handles:
            handle.remove()
