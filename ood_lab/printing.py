"""Printing what must not be broken at the edge of the terminal: tables with paths in them."""

from __future__ import annotations

from rich.console import Console, RenderableType
from rich.measure import Measurement
from rich.text import Text


def print_whole(shown: RenderableType, title: str = "") -> None:
    """Prints a table without breaking its cells, wider than the terminal if need be."""
    console = Console()
    if title:
        console.print(Text(title, "italic"), soft_wrap=True)
    unbounded = console.options.update(max_width=10_000)
    console.width = max(console.width, Measurement.get(console, unbounded, shown).maximum)
    console.print(shown)
