"""Figures drawn and written: their look, their fonts, and what happens where one fails."""

from __future__ import annotations

import logging
import re
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import replace
from functools import cache, partial
from itertools import chain
from pathlib import Path
from typing import Any

import matplotlib
import numpy as np
from matplotlib.axis import Axis
from matplotlib.backends.backend_agg import FigureCanvasAgg
from matplotlib.backends.backend_svg import FigureCanvasSVG
from matplotlib.figure import Figure
from matplotlib.font_manager import fontManager, weight_dict
from matplotlib.ft2font import FT2Font
from matplotlib.text import Text
from PIL import Image

from ood_lab.common.cpu_cores import on_all_cores
from ood_lab.common.errors import one_line
from ood_lab.report.rendering.blocks import PlannedFigure

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
        reason = f"{type(error).__name__}: {one_line(error)}"
        log.warning("%s is skipped (%s); no number is affected", what, reason)
        log.debug("while making %s", what, exc_info=True)


def write(figure: PlannedFigure, folder: Path) -> str | None:
    """Draws it and writes both files to ``folder``, which exists.

    Returns:
        What to add to the caption; None where it is no figure.
    """
    with matplotlib.rc_context(RC):
        picture = figure.draw()
        if picture is None:
            return None
        missing = missing_characters(picture)
        if fonts := fonts_with(missing):
            RC["font.family"] += filter(_with_bold, fonts)
            return write(figure, folder)
        legend = number_names(picture, missing)
        save(picture, folder / f"{figure.name}.png", folder / f"{figure.name}.svg")
    return legend


def save(figure: Figure, png: Path, svg: Path) -> None:
    """Writes both formats, drawing once each (``savefig`` draws and lays out twice a format)."""
    canvas = FigureCanvasAgg(figure)
    canvas.draw()
    # Without alpha and with the least effort at compression that costs no size: twice as fast.
    pixels = Image.fromarray(np.asarray(canvas.buffer_rgba())).convert("RGB")
    pixels.save(png, "png", dpi=(figure.dpi, figure.dpi), compress_level=3)
    figure.set_layout_engine("none")  # keep the layout of the first
    FigureCanvasSVG(figure).print_svg(svg, metadata={"Date": None})


def write_all(folder: Path, plan: Sequence[PlannedFigure]) -> list[PlannedFigure]:
    """Writes the figures of a plan; one that cannot be drawn is skipped with a warning.

    They are drawn side by side, in as many processes as there are cores.

    Args:
        folder: of the files; made if missing.
        plan: all figures, in reading order.

    Returns:
        Those that were written, with their whole captions.
    """
    folder.mkdir(parents=True, exist_ok=True)
    written = []
    with on_all_cores(partial(write, folder=folder), plan) as attempts:
        for figure, written_now in zip(plan, attempts, strict=True):
            with optional(f"figure {figure.name}"):
                if (legend := written_now()) is not None:
                    written.append(replace(figure, caption=figure.caption + legend))
    return written


#: What separates a name from the text around it.
_BETWEEN = r"\s,;:()'\"=·"
#: Fonts that draw a box for every character.
_BOXES = "Last Resort"
_BOLD = 600
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
_HEAVY = 700


def _with_bold(name: str) -> bool:
    """Whether a font is installed; one without a bold face counts as bold.

    Otherwise matplotlib warns whenever a bold text looks for its letters.
    """
    faces = [face for face in fontManager.ttflist if face.name == name]
    if faces and not any(weight_number(face.weight) >= _HEAVY for face in faces):
        fontManager.ttflist.append(replace(faces[0], weight=_HEAVY))
    return bool(faces)


def weight_number(weight: int | str) -> int:
    """The weight of a font from 100 to 900, which may be given as a word."""
    return weight if isinstance(weight, int) else weight_dict[weight]


#: Settings with which figures are built and saved.
RC: Any = {
    **matplotlib.rc_params_from_file(
        Path(__file__).with_name("figures.mplstyle"), use_default_template=False
    ),
    "font.family": ["DejaVu Sans", *filter(_with_bold, _FALLBACKS)],
}


@cache
def _characters(file: str) -> frozenset[str]:
    """The characters that a font file can draw."""
    try:
        return frozenset(map(chr, FT2Font(file).get_charmap()))
    except (OSError, RuntimeError):
        return frozenset()


@cache
def _of_family(name: str, bold: bool) -> frozenset[str]:
    """The characters of the upright face that matplotlib takes for a family."""
    faces = [f for f in fontManager.ttflist if f.name == name and f.style == "normal"]
    heavy = [f for f in faces if (weight_number(f.weight) >= _BOLD) == bold]
    return frozenset().union(*(_characters(face.fname) for face in (heavy or faces)[:1]))


def missing_characters(figure: Figure) -> set[str]:
    """The characters written in a figure that no font of its families has."""
    written: dict[bool, set[str]] = {False: set(), True: set()}  # in regular, and in bold
    ticks = (label for axis in _axes(figure) for label in axis.get_ticklabels())
    for text in chain(ticks, figure.findobj(Text)):
        written[weight_number(text.get_fontweight()) >= _BOLD].update(text.get_text())
    missing: set[str] = set()
    for bold, characters in written.items():
        if left := {c for c in characters if c.isprintable() and not c.isascii()}:
            missing |= left.difference(*(_of_family(name, bold) for name in RC["font.family"]))
    return missing


def fonts_with(characters: set[str]) -> list[str]:
    """Families of the system that have as many of the characters as there are, best first.

    A family counts for the characters that it has in regular and in bold.
    """

    def gained(name: str) -> int:
        return len(left & _of_family(name, False) & _of_family(name, True))

    fonts = []
    left = set(characters)
    names = sorted({font.name for font in fontManager.ttflist if _BOXES not in font.name})
    while left and gained(best := max(names, key=gained)):
        fonts.append(best)
        left -= _of_family(best, False) & _of_family(best, True)
    return fonts


def number_names(figure: Figure, characters: set[str]) -> str:
    """Puts numbers in the place of names with ``characters``, which no font can draw.

    Returns:
        Their legend, for the caption; nothing without any.
    """
    if not characters:
        return ""
    any_of = "".join(map(re.escape, sorted(characters)))
    pattern = re.compile(f"[^{_BETWEEN}]*[{any_of}][^{_BETWEEN}]*")
    numbers: dict[str, str] = {}

    def numbered(text: str) -> str:
        return pattern.sub(lambda m: numbers.setdefault(m[0], f"#{len(numbers) + 1}"), text)

    for axis in _axes(figure):
        labels = [label.get_text() for label in axis.get_ticklabels()]
        if characters & set("".join(labels)):
            axis.set_ticks(axis.get_ticklocs(), labels=list(map(numbered, labels)))
    for text in figure.findobj(Text):
        text.set_text(numbered(text.get_text()))
    entries = ", ".join(f"{number} = {name}" for name, number in numbers.items())
    return f" No font of this machine has the characters of these names: {entries}."


def _axes(figure: Figure) -> Iterator[Axis]:
    for axes in figure.axes:
        yield from (axes.xaxis, axes.yaxis)
