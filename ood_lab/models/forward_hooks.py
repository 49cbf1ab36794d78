"""Hooks of modules that end with what they are for."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from functools import partial
from typing import Any

import torch
from torch import nn
from torch.utils.hooks import RemovableHandle


@contextmanager
def hooked(handles: Iterable[RemovableHandle]) -> Iterator[None]:
    """Removes hooks at the end."""
    try:
        yield
    finally:
        for handle in handles:
            handle.remove()


@contextmanager
def watched(
    net: nn.Module,
    names: Iterable[str] | None = None,
    before: Callable[[str, Any], object] | None = None,
    after: Callable[[str, Any], object] | None = None,
) -> Iterator[None]:
    """Shows what goes through sub-modules as they run.

    Args:
        net: the network.
        names: of sub-modules; None = all that take hooks.
        before: gets the name of one and its first argument.
        after: gets the name of one and its output.
    """
    if names is None:
        parts = net.named_modules()
        names = [n for n, part in parts if n and not isinstance(part, torch.jit.ScriptModule)]

    def enter(name: str, module: nn.Module, args: tuple[Any, ...], kwargs: dict[str, Any]) -> None:
        if before is not None:
            before(name, args[0] if args else next(iter(kwargs.values()), None))

    def leave(name: str, module: nn.Module, args: Any, output: Any) -> None:
        if after is not None:
            after(name, output)

    handles = []
    for name in names:
        part = net.get_submodule(name)
        handles.append(part.register_forward_pre_hook(partial(enter, name), with_kwargs=True))
        handles.append(part.register_forward_hook(partial(leave, name)))
    with hooked(handles):
        yield
