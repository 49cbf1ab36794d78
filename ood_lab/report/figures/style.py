"""One look for all figures: sizes, colours, markers."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import replace
from pathlib import Path
from typing import Any, NamedTuple

import matplotlib
from matplotlib.colors import to_rgb
from matplotlib.font_manager import fontManager, weight_dict

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

#: Fonts for the letters that DejaVu Sans lacks (Chinese, Japanese, Korean), where installed.
_FALLBACKS = (
    "Noto Sans CJK SC",
    "Noto Sans CJK JP",
    "Noto Sans SC",
    "WenQuanYi Zen Hei",
    "WenQuanYi Micro Hei",
    "Droid Sans Fallback",
    "PingFang SC",
    "Microsoft YaHei",
)
_BOLD = 700


def _with_bold(name: str) -> bool:
    """Whether a font is installed; one without a bold face counts as bold.

    Otherwise matplotlib warns whenever a bold text looks for its letters.
    """
    faces = [face for face in fontManager.ttflist if face.name == name]
    if faces and not any(weight_number(face.weight) >= _BOLD for face in faces):
        fontManager.ttflist.append(replace(faces[0], weight=_BOLD))
    return bool(faces)


def add_fonts(names: Iterable[str]) -> None:
    """Lets later figures look for letters in these fonts, too."""
    RC["font.family"] += [name for name in names if _with_bold(name)]


def weight_number(weight: int | str) -> int:
    """The weight of a font from 100 to 900, which may be given as a word."""
    return weight if isinstance(weight, int) else weight_dict[weight]


RC: Any = {
    **matplotlib.rc_params_from_file(
        Path(__file__).with_name("figures.mplstyle"), use_default_template=False
    ),
    "font.family": ["DejaVu Sans", *filter(_with_bold, _FALLBACKS)],
}


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


def rc() -> Any:
    """Context in which figures are built and saved."""
    return matplotlib.rc_context(RC)
