"""The blocks that pages are lists of."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, ClassVar, Literal, NamedTuple

from ood_lab.report.rendering.table import Table

if TYPE_CHECKING:
    from matplotlib.figure import Figure


@dataclass(frozen=True)
class Text:
    """A paragraph."""

    kind: ClassVar[str] = "text"
    text: str
    style: Literal["", "answer", "command", "title", "note", "warning", "finding"] = ""


class FigureFile(NamedTuple):
    """One figure on disk, with the words that go with it."""

    png: Path
    svg: Path
    title: str
    caption: str


@dataclass(frozen=True)
class PlannedFigure:
    """A figure that can be drawn.

    Attributes:
        name: of its files.
        title: above it on the page.
        caption: below it on the page.
        draw: returns the figure, or None where its inputs show nothing.
    """

    kind: ClassVar[str] = "figure"
    name: str
    title: str
    caption: str
    draw: Callable[[], Figure | None]

    def file(self, folder: Path) -> FigureFile:
        """Its path after it is written."""
        png, svg = (folder / f"{self.name}.{kind}" for kind in ("png", "svg"))
        return FigureFile(png, svg, self.title, self.caption)


@dataclass(frozen=True)
class Picture:
    """One image with a text; ``thumbnail`` is the number of its picture, None without one."""

    text: str
    thumbnail: int | None


@dataclass(frozen=True)
class Pictures:
    """Images side by side, each with its text; ``few`` leave room for more."""

    kind: ClassVar[str] = "pictures"
    items: Sequence[Picture]
    heading: str = ""
    few: bool = False


@dataclass(frozen=True)
class Folded:
    """Blocks that show when their title is clicked; ``page_only``: a terminal leaves them out."""

    kind: ClassVar[str] = "folded"
    title: str
    blocks: Sequence[Block]
    open: bool = False
    page_only: bool = False


@dataclass(frozen=True)
class Menu:
    """Blocks of which a page shows those of one title, at first the first, and paper the chosen."""

    kind: ClassVar[str] = "menu"
    title: str
    options: Sequence[Folded]


@dataclass(frozen=True)
class Words:
    """What words mean."""

    kind: ClassVar[str] = "words"
    pairs: Sequence[tuple[str, str]]
    style: str = ""


@dataclass(frozen=True)
class Links:
    """Other pages."""

    kind: ClassVar[str] = "links"
    pairs: Sequence[tuple[str, str]]


Block = Table | Text | PlannedFigure | FigureFile | Pictures | Folded | Menu | Words | Links
