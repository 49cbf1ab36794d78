"""Titles and captions of figures on the pages of benchmarks, which ``figure_captions.yaml`` has."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING

from ood_lab.common.files import packaged_table
from ood_lab.report.rendering.blocks import PlannedFigure

if TYPE_CHECKING:
    from matplotlib.figure import Figure


_CAPTIONS: dict[str, list[str]] = packaged_table(__package__, "figure_captions.yaml")


def captioned(
    name: str, draw: Callable[[], Figure | None], entry: str = "", **words: str
) -> PlannedFigure:
    """A figure with its title and caption.

    Args:
        name: of its files.
        draw: returns the figure, or None where its inputs show nothing.
        entry: of the captions; empty = that of the name.
        words: fill the names in braces.
    """
    title, caption = (text.format(**words) for text in _CAPTIONS[entry or name])
    return PlannedFigure(name, title, caption, draw)


def title_of(name: str) -> str:
    """The title of a figure, without what is filled in."""
    return _CAPTIONS[name][0].partition(":")[0].partition("{")[0]


_DEFINITIONS: dict[str, dict[str, str]] = packaged_table(__package__, "definitions.yaml")


def defined(*names: str) -> list[tuple[str, str]]:
    """Terms and their meanings, of these kinds of questions and benchmarks, in this order."""
    return [pair for name in names for pair in _DEFINITIONS[name].items()]
