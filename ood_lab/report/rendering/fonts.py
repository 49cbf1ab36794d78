"""The look of all figures, and names in any script: a font with their characters, or numbers."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field, replace
from functools import cache
from itertools import chain
from pathlib import Path
from typing import Any

import matplotlib
from matplotlib.axis import Axis
from matplotlib.figure import Figure
from matplotlib.font_manager import fontManager, weight_dict
from matplotlib.ft2font import FT2Font
from matplotlib.text import Text

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
