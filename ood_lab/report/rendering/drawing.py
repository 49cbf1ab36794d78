"""Figures drawn and written: their look, their fonts, and what happens where one fails."""

from __future__ import annotations

import logging
import re
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
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
from ood_lab.report.rendering.blocks import FigureFile, PlannedFigure

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


def write(figure: PlannedFigure, folder: Path) -> str | None:
    """Draws it and writes both files to ``folder``, which exists.

    Returns:
        What to add to the caption; None where it is no figure.
    """
    with rc():
        picture = figure.draw()
    if picture is None:
        return None
    if (missing := _missing(picture)) and (fonts := fonts_with(missing)):
        add_fonts(fonts)
        with rc():
            picture = figure.draw()
        if picture is None:
            return None
        missing = _missing(picture)
    for text in picture.findobj(Text):  # of a figure that was drawn with other settings
        text.set_fontfamily(RC["font.family"])
    with rc():
        legend = _number_names(picture, missing)
        file = figure.file(folder)
        save(picture, file.png, file.svg)
    return legend


def _missing(figure: Figure) -> set[str]:
    return missing_characters(figure, RC["font.family"])


def _number_names(figure: Figure, missing: set[str]) -> str:
    """Puts numbers in the place of names that cannot be drawn; returns their legend."""
    if not missing:
        return ""
    names = NumberedNames(missing)
    names.put(figure)
    return names.legend


def save(figure: Figure, png: Path, svg: Path) -> None:
    """Writes both formats, drawing once each (``savefig`` draws and lays out twice a format)."""
    canvas = FigureCanvasAgg(figure)
    canvas.draw()
    # Without alpha and with the least effort at compression that costs no size: twice as fast.
    pixels = Image.fromarray(np.asarray(canvas.buffer_rgba())).convert("RGB")
    pixels.save(png, "png", dpi=(figure.dpi, figure.dpi), compress_level=3)
    figure.set_layout_engine("none")  # keep the layout of the first
    FigureCanvasSVG(figure).print_svg(svg, metadata={"Date": None})


def write_all(folder: Path, plan: Sequence[PlannedFigure]) -> list[FigureFile]:
    """Writes the figures of a plan; one that cannot be drawn is skipped with a warning.

    They are drawn side by side, in as many processes as there are cores.

    Args:
        folder: of the files; made if missing.
        plan: all figures, in reading order.
    """
    folder.mkdir(parents=True, exist_ok=True)
    written = []
    with on_all_cores(partial(write, folder=folder), plan) as attempts:
        for figure, written_now in zip(plan, attempts, strict=True):
            with optional(f"figure {figure.name}"):
                if (legend := written_now()) is not None:
                    captioned = replace(figure, caption=figure.caption + legend)
                    written.append(captioned.file(folder))
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


def rc() -> Any:
    """Context in which figures are built and saved."""
    return matplotlib.rc_context(RC)


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


def missing_characters(figure: Figure, families: Iterable[str]) -> set[str]:
    """The characters written in a figure that no font of these families has."""
    missing, written = set(), list(_written(figure))
    for bold in (False, True):
        words = "".join(text for text, heavy in written if heavy == bold)
        if not words.isascii():
            left = {c for c in words if c.isprintable() and not c.isascii()}
            missing |= left.difference(*(_of_family(name, bold) for name in families))
    return missing


def fonts_with(characters: set[str]) -> list[str]:
    """Families of the system that have as many of the characters as there are, best first.

    A family counts for the characters that it has in regular and in bold.
    """

    def gained(name: str) -> int:
        return len(left & _of_family(name, False) & _of_family(name, True))

    fonts: list[str] = []
    left = set(characters)
    names = sorted({font.name for font in fontManager.ttflist if _BOXES not in font.name})
    while left and gained(best := max(names, key=gained)):
        fonts.append(best)
        left -= _of_family(best, False) & _of_family(best, True)
    return fonts


def _written(figure: Figure) -> Iterator[tuple[str, bool]]:
    """Everything that is written in a figure, labels of ticks included, and whether it is bold."""
    ticks = (label for axis in _axes(figure) for label in axis.get_ticklabels())
    for text in chain(ticks, figure.findobj(Text)):
        yield text.get_text(), weight_number(text.get_fontweight()) >= _BOLD


@dataclass
class NumberedNames:
    """Numbers in the place of names that no font can draw.

    Attributes:
        characters: those that no font has.
        names: name by number, from 1.
    """

    characters: set[str]
    names: list[str] = field(default_factory=list)

    def put(self, figure: Figure) -> None:
        """Replaces the names in a figure."""
        for axis in _axes(figure):
            labels = [label.get_text() for label in axis.get_ticklabels()]
            if self.characters & set("".join(labels)):
                axis.set_ticks(axis.get_ticklocs(), labels=list(map(self.numbered, labels)))
        for text in figure.findobj(Text):
            if isinstance(text, Text) and self.characters & set(text.get_text()):
                text.set_text(self.numbered(text.get_text()))

    def numbered(self, text: str) -> str:
        """A text with numbers for names."""
        any_of = "".join(map(re.escape, sorted(self.characters)))
        return re.sub(f"[^{_BETWEEN}]*[{any_of}][^{_BETWEEN}]*", self._number, text)

    def _number(self, match: re.Match[str]) -> str:
        if match[0] not in self.names:
            self.names.append(match[0])
        return f"#{self.names.index(match[0]) + 1}"

    @property
    def legend(self) -> str:
        """The names by number, for the caption; nothing without any."""
        if not self.names:
            return ""
        entries = ", ".join(f"#{number} = {name}" for number, name in enumerate(self.names, 1))
        return f" No font of this machine has the characters of these names: {entries}."


def _axes(figure: Figure) -> Iterator[Axis]:
    for axes in figure.axes:
        yield from (axes.xaxis, axes.yaxis)
