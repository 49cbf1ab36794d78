"""Titles and captions of figures on the pages of benchmarks, which ``figure_captions.yaml`` has."""

from __future__ import annotations

from collections.abc import Callable
from functools import cache
from importlib.resources import files
from typing import TYPE_CHECKING

import yaml

from ood_lab.report.rendering.blocks import PlannedFigure

if TYPE_CHECKING:
    from matplotlib.figure import Figure


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
    title, caption = (text.format(**words) for text in _captions()[entry or name])
    return PlannedFigure(name, title, caption, draw)


def title_of(name: str) -> str:
    """The title of a figure, without what is filled in."""
    return _captions()[name][0].partition(":")[0].partition("{")[0]


@cache
def _captions() -> dict[str, list[str]]:
    content = files(__package__).joinpath("figure_captions.yaml").read_text(encoding="utf-8")
    return dict(yaml.safe_load(content))
