"""The blocks that pages are lists of."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, ClassVar, Literal

from ood_lab.report.rendering.table import Table

if TYPE_CHECKING:
    from matplotlib.figure import Figure


TextStyle = Literal["", "answer", "next", "command", "title", "note", "warning", "finding"]


@dataclass(frozen=True)
class Text:
    """A paragraph."""

    kind: ClassVar[str] = "text"
    text: str
    style: TextStyle = ""


def texts(sentences: Iterable[str], style: TextStyle) -> list[Text]:
    """A paragraph each."""
    return [Text(sentence, style) for sentence in sentences]


@dataclass(frozen=True)
class PlannedFigure:
    """A figure that can be drawn.

    Attributes:
        name: of its files.
        title: above it on the page.
        caption: below it on the page.
        draw: returns the figure, or None where its inputs show nothing.
        linked: the page links to its files and does not show it.
    """

    kind: ClassVar[str] = "figure"
    name: str
    title: str
    caption: str
    draw: Callable[[], Figure | None]
    linked: bool = False


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
    """Other pages, and files: what they are called, and where they are."""

    kind: ClassVar[str] = "links"
    pairs: Sequence[tuple[str, str]]


@dataclass(frozen=True)
class Section:
    """A heading, which the navigation leads to, and the blocks below it, in one column or two."""

    kind: ClassVar[str] = "section"
    title: str
    blocks: Sequence[Block]
    beside: Sequence[Block] = ()


Block = Table | Text | PlannedFigure | Pictures | Folded | Menu | Words | Links | Section


def leaves(blocks: Sequence[Any], page_only: bool = True) -> Iterator[Any]:
    """Blocks and, in the place of a section, a folded one or a menu, what is in it."""
    for block in blocks:
        if isinstance(block, Section):
            yield from leaves([*block.blocks, *block.beside], page_only)
        elif isinstance(block, Menu):
            yield from leaves(block.options, page_only)
        elif not isinstance(block, Folded):
            yield block
        elif page_only or not block.page_only:
            yield from leaves(block.blocks, page_only)


def printed(blocks: Sequence[Block]) -> Iterator[Table | Text]:
    """What of these blocks a terminal can show."""
    return (b for b in leaves(blocks, page_only=False) if isinstance(b, Table | Text))
