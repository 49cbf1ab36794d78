"""One look for all figures: sizes, colours, markers."""

from __future__ import annotations

from typing import Any, NamedTuple

from matplotlib.colors import to_rgb

#: Full text width of a two-column paper, inches.
WIDTH = 7.2
#: Okabe and Ito's palette without yellow, which is too light for a line on white.
COLOURS = ("#0072B2", "#D55E00", "#009E73", "#CC79A7", "#E69F00", "#56B4E9", "#000000")
LINES = ("-", "--", "-.", ":")
MARKERS = ("o", "s", "^", "D", "v", "P", "X", "<", ">")
GREY = "#B8B8B8"
SOFT = "#666666"
INK = "#222222"
ID_COLOUR = "#9A9A9A"


class Style(NamedTuple):
    """How one series is drawn; distinct without colour, too."""

    color: str
    line: str
    marker: str


def style(position: int) -> Style:
    """Style of series ``position``; 28 differ in colour and line, 63 in colour and marker."""
    return Style(
        COLOURS[position % len(COLOURS)],
        LINES[position // len(COLOURS) % len(LINES)],
        MARKERS[position % len(MARKERS)],
    )


def text_on(colour: Any) -> str:
    """Black or white, whichever reads better on ``colour``."""
    red, green, blue = to_rgb(colour)
    return "black" if 0.299 * red + 0.587 * green + 0.114 * blue > 0.5 else "white"
