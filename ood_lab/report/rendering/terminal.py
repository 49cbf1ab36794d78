"""Blocks for the terminal, laid out for the width that it has."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace

from rich import box
from rich.align import AlignMethod
from rich.console import Console, ConsoleOptions, Group, RenderableType
from rich.table import Table as RichTable
from rich.text import Text as RichText

from ood_lab.common.english import counted, listed
from ood_lab.common.progress import print_line
from ood_lab.report.rendering.blocks import Block, Text, printed
from ood_lab.report.rendering.table import Cell, Head, Span, Table, cut, name_cell, title_lines

_UNBOUNDED = 10_000
_STYLE = {
    "answer": "bold",
    "note": "dim",
    "warning": "yellow",
    "finding": "yellow",
    "title": "bold",
}
_TONES = {"": "", "good": "green", "bad": "red", "doubtful": "yellow"}
#: Styles of paragraphs that are shown in any case.
_ALWAYS = ("title", "answer", "warning", "next", "command")


@dataclass(frozen=True)
class Printed:
    """A rich renderable, see :func:`print_blocks`."""

    blocks: Sequence[Block]
    lines: int | None = None

    def __rich_console__(
        self, console: Console, options: ConsoleOptions
    ) -> Iterator[RenderableType]:
        """The blocks, a blank line before every table."""
        blocks = list(printed(self.blocks))

        def height(part: RenderableType) -> int:
            return len(console.render_lines(part, options))

        room = math.inf
        if self.lines is not None:
            always = [b for b in blocks if isinstance(b, Text) and b.style in _ALWAYS]
            room = self.lines - 1 - sum(height(_paragraph(block)) for block in always)
        left = Counter[str]()
        for block in blocks:
            if left and isinstance(block, Text) and block.style == "next":
                yield _rest(left)
                left.clear()
            if isinstance(block, Text):
                if block.style in _ALWAYS:
                    yield _paragraph(block)
                    continue
                parts: list[RenderableType] = [_paragraph(block)]
                notes = []
            else:
                tables = printed_table(block, options.max_width)
                parts = [Group(RichText(), table) for table in tables]
                notes = [RichText(note, "dim") for note in block.notes]
            least = sum(map(height, notes[:1]))  # what a number is must be said
            shown = 0
            for part in parts:
                if left[block.kind] or height(part) + least > room:
                    left[block.kind] += 1
                    break  # what is behind it makes no sense without it
                yield part
                shown += 1
                room -= height(part)
            for note in notes if shown else ():
                if height(note) <= room:
                    yield note
                    room -= height(note)
        if left:
            yield _rest(left)


def _rest(left: Mapping[str, int]) -> RichText:
    """What there is no room for."""
    words = {Table.kind: "table", Text.kind: "sentence"}
    more = listed([counted(left[kind], words[kind]) for kind in words if left[kind]])
    return RichText(f"The page has the rest: {more}.", "dim")


def _paragraph(block: Text) -> RichText:
    text = RichText(block.text, _STYLE.get(block.style, ""))
    if block.style == "command":  # in several lines it could not be copied
        text.no_wrap, text.overflow = True, "ignore"
    return text


def print_blocks(
    blocks: Sequence[Block], console: Console | None = None, lines: int | None = None
) -> None:
    """Prints blocks, commands whole however long they are.

    Args:
        blocks: in order.
        console: None = the terminal.
        lines: about so many at most: titles, answers, warnings and commands, then of the others
            what there is room for, the first first. None = all.
    """
    (console or Console()).print(Printed(blocks, lines), crop=False)


def print_whole(blocks: Sequence[Block]) -> None:
    """Prints blocks without breaking a table, wider than the terminal if need be."""
    for block in printed(blocks):
        if isinstance(block, Text):
            print_line(_paragraph(block), Console())
        else:
            Console(width=_UNBOUNDED).print(Printed([block]))


def printed_table(table: Table, width: int) -> Iterator[Group]:
    """One table, or as many as the width demands, with whole groups side by side.

    Columns are two blanks apart, or one where that makes it one table. Where it is several, one
    column says what a row is.
    """
    columns = [k for k in range(len(table.heads)) if not table.heads[k].page_only]
    shown = table.part(columns, sum(k < table.names for k in columns))
    gap, parts = 2, shown.parts(width + 2)
    if len(parts) > 1 and len(close := shown.parts(width + len(columns))) == 1:
        gap, parts = 1, close
    if len(parts) > 1 and shown.names > 1:
        parts = _joined(shown, max(24, width - 16)).parts(width + 2)
    for part in parts:
        yield _built(part, gap)


def _joined(table: Table, room: int) -> Table:
    """What says what a row is as one column, cut where it leaves no room for a number."""
    n = table.names

    def joined(cells: Sequence[Head] | Sequence[Cell]) -> str:
        return cut(" · ".join(cell.text for cell in cells[:n] if cell.text), room)

    heads = [Head(joined(table.heads)), *table.heads[n:]]
    rows = [[name_cell(joined(row)), *row[n:]] for row in table.rows]
    return replace(table, heads=heads, rows=rows, names=1)


def _built(table: Table, gap: int) -> Group:
    """A table of rich, with the rows of a section together below its title."""
    padding = (0, gap - 1, 0, 0)  # the box itself puts one blank between columns
    shown = RichTable(box=box.SIMPLE_HEAD, padding=padding, pad_edge=False, show_edge=False)
    spans = table.groups or [Span(head.group, [k]) for k, head in enumerate(table.heads)]
    columns = [_column(table, span, gap) for span in spans]
    for header, _ in columns:
        shown.add_column(RichText("\n").join(header), no_wrap=True)
    for title, rows in (table.sections or {"": range(len(table.rows))}).items():
        if title:
            shown.add_row(RichText(title, "dim italic"))
        for row in rows:
            shown.add_row(*(cells[row] for _, cells in columns))
    return Group(RichText(table.caption, "bold"), shown) if table.caption else Group(shown)


def _column(table: Table, span: Span, gap: int) -> tuple[list[RichText], list[RichText]]:
    """The header of a group, and a text for every row; numbers are lined up at the right."""
    left = span.columns[0] < table.names or all(
        row[k].sort == row[k].text for row in table.rows for k in span.columns
    )
    side: AlignMethod = "left" if left else "right"
    columns = []
    for k in span.columns:
        head = table.heads[k]
        texts = [RichText(head.text), RichText(head.note), *_texts(table, k, left)]
        width = max(text.cell_len for text in texts)
        for text in texts:
            text.align(side, width)
        columns.append(texts)
    heads, notes, *cells = map(RichText(" " * gap).join, zip(*columns, strict=True))
    above = [*title_lines(span.group, heads.cell_len + 2), *filter(None, [span.group.note])]
    header = [*map(RichText, above), heads, *([notes] if notes.plain.strip() else [])]
    width = max(text.cell_len for text in (*header, *cells))
    for text in (*header, *cells):  # here: rich would drop the blank that stands for a star
        text.align(side, width)
    return header, cells


def _texts(table: Table, k: int, left: bool) -> Iterator[RichText]:
    """The cells of a column; those of the best are bold and have a star."""
    starred = not left and any(row[k].best for row in table.rows)
    for row, text in zip(table.rows, table.texts(k), strict=True):
        cell = row[k]
        style = _TONES[cell.tone] if left else "bold green" * cell.best
        if k == 0:
            style += " italic" if cell.quiet else " bold"
        star = ("*" if cell.best else " ") if starred else ""
        yield RichText.assemble((text, style), (star, "green"))
