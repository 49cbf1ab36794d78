"""Columns of a terminal table, packed into as few tables as the width allows."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass

from rich import box
from rich.console import Group
from rich.table import Table
from rich.text import Text

_GAP = 2  # blanks between two columns


@dataclass(frozen=True)
class Column:
    """A header of one or more lines and one cell per row; numbers are lined up at the right."""

    header: tuple[str, ...]
    cells: list[Text]
    left: bool = False

    @property
    def width(self) -> int:
        """Width of the widest line."""
        return max(*(len(line) for line in self.header), *(cell.cell_len for cell in self.cells))


def numbers(values: Sequence[str], marked: Collection[int] = ()) -> list[Text]:
    """Cells of equal width, right-aligned; ``marked`` rows are bold and carry a star."""
    width = max(len(value) for value in values)
    cells = []
    for row, value in enumerate(values):
        padded = value.rjust(width)
        if row in marked:
            cells.append(Text.assemble((padded, "bold green"), ("*", "green")))
        else:
            cells.append(Text(padded + (" " if marked else "")))
    return cells


def beside(columns: Sequence[Sequence[Text]], widths: Sequence[int]) -> list[Text]:
    """Columns of cells as one, each right-aligned in its width."""
    rows = zip(*columns, strict=True)
    padded = [
        [(" " * (w - c.cell_len), c) for c, w in zip(row, widths, strict=True)] for row in rows
    ]
    return [Text("  ").join(Text.assemble(*parts) for parts in row) for row in padded]


def width_of(columns: Sequence[Column]) -> int:
    """Width of a table of these columns."""
    return sum(column.width + _GAP for column in columns) - _GAP


def pack(columns: Sequence[Column], width: int) -> list[list[Column]]:
    """Splits into tables no wider than ``width``, each starting with the first column."""
    first, *rest = columns
    tables = [[first]]
    for column in rest:
        if len(tables[-1]) > 1 and width_of([*tables[-1], column]) > width:
            tables.append([first])
        tables[-1].append(column)
    return tables


def build(
    columns: Sequence[Column], title: str, sections: Mapping[int, str] | None = None
) -> Group:
    """A titled table; the first column is left-aligned, the others right-aligned.

    Args:
        columns: with equally many cells.
        title: above it.
        sections: titles of sections, by the row that they begin with.
    """
    # The box itself puts one blank between columns, the padding the other.
    table = Table(box=box.SIMPLE_HEAD, padding=(0, _GAP - 1, 0, 0), pad_edge=False, show_edge=False)
    height = max(len(column.header) for column in columns)
    for position, column in enumerate(columns):
        # Headers stand on the rule: shorter ones are filled from above.
        lines = [""] * (height - len(column.header)) + list(column.header)
        right = position and not column.left
        header = "\n".join(line.rjust(column.width) if right else line for line in lines)
        table.add_column(Text(header), no_wrap=True, min_width=column.width)
    first, *rest = columns
    for row, name in enumerate(first.cells):
        if sections and row in sections:
            table.add_row(Text(sections[row], "dim italic"))
        # Padded here: aligning to the right would drop the blank that stands for a star.
        table.add_row(name, *(_padded(column, row) for column in rest))
    return Group(Text(title, "bold"), table) if title else Group(table)


def _padded(column: Column, row: int) -> Text:
    cell = column.cells[row]
    return cell if column.left else Text.assemble(" " * (column.width - cell.cell_len), cell)


def break_name(name: str, width: int) -> tuple[str, ...]:
    """Breaks ``some_long-name`` after ``_ - + .`` or a blank into lines of about ``width``.

    A single longer word stays whole, so a line can be longer than ``width``.
    """
    pieces = [""]
    for letter in name:
        pieces[-1] += letter
        if letter in "_-+. ":
            pieces.append("")
    lines = [""]
    for piece in pieces:
        if lines[-1] and len(lines[-1]) + len(piece) > width:
            lines.append("")
        lines[-1] += piece
    return tuple(line.strip() for line in lines)
