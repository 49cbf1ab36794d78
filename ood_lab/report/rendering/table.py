"""A table of cells. Who shows it, on the terminal, on a page or in a paper, knows nothing else."""

from __future__ import annotations

import math
import re
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from itertools import groupby
from typing import Any, ClassVar, Literal, NamedTuple

import pandas as pd

from ood_lab.metrics import metric_of
from ood_lab.report.rendering.metric_definitions import MISSING, percent
from ood_lab.schema.results import Names, Row

#: How far its value may be off the middle of an interval that is shown as ±, in half-widths.
_UNEVEN = 0.1
Direction = Literal["ascending", "descending"]
#: Colours of a terminal.
Tone = Literal["", "good", "bad", "doubtful"]
#: A number → its text.
NumberFormat = Callable[[float], str]


@dataclass(frozen=True)
class Cell:
    """What a cell shows, and what goes with it; all but the text may be empty.

    Attributes:
        text: what it shows.
        sort: what its column is sorted by.
        interval: its 95% interval in words, ``83.9 to 85.7``.
        spread: the same in short, behind the text: ``±0.9``.
        best: it carries the mark of the best of its column.
        quiet: as the first cell, it sets its row off from the others.
        shade: colour of its ground on a page, from 0 (dark) to 1 (light); None = none.
        uneven: the value is not in the middle of the interval, so that ± would be wrong.
        tone: colour of a terminal.
    """

    text: str
    sort: float | str = ""
    interval: str = ""
    spread: str = ""
    best: bool = False
    quiet: bool = False
    shade: float | None = None
    uneven: bool = False
    tone: Tone = ""


@dataclass(frozen=True)
class Group:
    """A title above neighbouring columns; may be empty."""

    text: str = ""
    note: str = ""


@dataclass(frozen=True)
class Head:
    """The head of a column.

    Attributes:
        text: what it says.
        first: direction of the first click that sorts by it.
        note: below it.
        page_only: the terminal has no room for it.
        group: above it, once for neighbours with an equal one.
    """

    text: str
    first: Direction = "descending"
    note: str = ""
    page_only: bool = False
    group: Group = Group()


class Span(NamedTuple):
    """A group and its columns."""

    group: Group
    columns: Sequence[int]


@dataclass(frozen=True)
class Table:
    """Rows × columns of cells.

    Attributes:
        caption: above it.
        heads: of the columns.
        rows: as many cells each as there are heads.
        names: how many columns, from the left, say what a row is.
        notes: below it, a sentence each.
        sections: parts of the rows in the terminal, by their title; empty = there are none.
        spreads: the terminal shows the spread behind every text.
        grid: rows and columns have an order of their own, in which they stay on a page.
    """

    kind: ClassVar[str] = "table"
    caption: str
    heads: Sequence[Head]
    rows: Sequence[Sequence[Cell]]
    names: int = 1
    notes: Sequence[str] = ()
    sections: Mapping[str, Sequence[int]] = field(default_factory=dict)
    spreads: bool = False
    grid: bool = False

    @property
    def groups(self) -> list[Span]:
        """What is above the heads; empty where no head has a group."""
        if not any(head.group.text for head in self.heads):
            return []
        spans = groupby(range(len(self.heads)), lambda k: (k < self.names, self.heads[k].group))
        return [Span(group, [*columns]) for (_, group), columns in spans]

    @property
    def has_hidden_intervals(self) -> bool:
        """True when there is something for the page's toggle to show."""
        return not self.spreads and any(cell.interval for row in self.rows for cell in row)

    def texts(self, k: int) -> list[str]:
        """The texts of a column, where the table has them with their intervals in short.

        ``84.3±1.2``, or ``84.3 [83.0, 85.7]`` in all of a column with an interval of which ± is
        wrong.
        """
        cells = [row[k] for row in self.rows]
        ends = any(cell.uneven for cell in cells)

        def spread(cell: Cell) -> str:
            interval = f" [{cell.interval.replace(' to ', ', ')}]"
            return interval if ends and cell.spread else cell.spread

        return [cell.text + spread(cell) * self.spreads for cell in cells]

    def part(self, columns: Sequence[int], names: int) -> Table:
        """Some of its columns, of which the first ``names`` say what a row is."""
        heads = [self.heads[k] for k in columns]
        return replace(
            self, heads=heads, rows=[[row[k] for k in columns] for row in self.rows], names=names
        )

    @property
    def widths(self) -> list[int]:
        """Letters that each column takes in a line, with the two blanks before it."""
        return [
            2
            + max(map(len, (head.text, head.note, *self.texts(k))))
            + any(row[k].best for row in self.rows)
            for k, head in enumerate(self.heads)
        ]

    def parts(self, room: int) -> list[Table]:
        """The table, or several with as many whole groups as a line of so many letters holds."""
        widths = self.widths
        room -= sum(widths[: self.names])
        parts: list[list[int]] = []
        left = 0
        for group, of in self.groups or [Span(Group(), range(len(self.heads)))]:
            columns = [k for k in of if k >= self.names]
            together = group.text and sum(widths[k] for k in columns) <= room
            for piece in [columns] if together else [[k] for k in columns]:
                wide = sum(widths[k] for k in piece)
                wide = max([wide, *(2 + len(line) for line in title_lines(group, wide))])
                if not parts or wide > left:
                    parts.append([])
                    left = room
                parts[-1] += piece
                left -= wide
        if len(parts) < 2:
            return [self]
        return [self.part([*range(self.names), *columns], self.names) for columns in parts]


class Column(NamedTuple):
    """A column."""

    head: Head
    cells: Sequence[Cell]


def table_of(caption: str, columns: Sequence[Column], **options: Any) -> Table:
    """A table of columns; ``options`` are other fields of it."""
    rows = list(zip(*(column.cells for column in columns), strict=True))
    return Table(caption, [column.head for column in columns], rows, **options)


def names_column(head: str, names: Iterable[object], ordered: bool = False) -> Column:
    """What rows are called; ``ordered``: sorted by their place, not by their name."""
    cells = [name_cell(name, place if ordered else None) for place, name in enumerate(names)]
    return Column(Head(head, "ascending"), cells)


def pivoted(
    caption: str,
    names: Sequence[Column],
    keys: Iterable[Any],
    cells: Mapping[tuple[Any, Head], Cell],
    missing: str = MISSING,
    **options: Any,
) -> Table:
    """A table of cells by key of their row and head of their column, whole groups side by side.

    Args:
        caption: above it.
        names: columns that say what a row is.
        keys: of the rows, in order.
        cells: by row and column; the columns are in their order.
        missing: where there is none.
        options: other fields of the table.
    """
    heads = list(dict.fromkeys(head for _, head in cells))
    groups = list(dict.fromkeys(head.group for head in heads))
    heads.sort(key=lambda head: groups.index(head.group))
    rows = list(keys)
    columns = [Column(h, [cells.get((key, h), Cell(missing)) for key in rows]) for h in heads]
    return table_of(caption, [*names, *columns], names=len(names), **options)


def title_lines(group: Group, width: int) -> list[str]:
    """The title of a group above columns of a width, broken where it is longer."""
    return break_name(group.text, max(width - 2, 9)) if group.text else []


def break_name(name: str, width: int) -> list[str]:
    """Breaks ``some_long-name`` after ``_ - + .`` or a blank into lines of about ``width``.

    A single longer word stays whole, so a line can be longer than ``width``.
    """
    lines = [""]
    for piece in re.findall(r"[^_\-+. ]*[_\-+. ]?", name):
        if lines[-1] and len(lines[-1]) + len(piece) > width:
            lines.append("")
        lines[-1] += piece
    return [line.strip() for line in lines]


def cut(text: str, width: int) -> str:
    """A text of at most ``width`` letters."""
    return text if len(text) <= width else f"{text[: width - 1].rstrip()}…"


def name_cell(
    text: object,
    place: float | None = None,
    quiet: bool = False,
    tone: Tone = "",
) -> Cell:
    """What a row is called, sorted by its name or by a place of its own."""
    return Cell(str(text), str(text) if place is None else place, quiet=quiet, tone=tone)


def metric_head(metric: str, group: Group = Group()) -> Head:
    """The head of a column of a metric; the first click sorts the best first."""
    record = metric_of(metric)
    first: Direction = "ascending" if record.better == "lower" else "descending"
    return Head(record.title, first, group=group)


def count_cell(value: float) -> Cell:
    """A whole number."""
    return Cell(MISSING) if math.isnan(value) else Cell(f"{int(value):,}", int(value))


def number_cell(
    value: float,
    low: float = math.nan,
    high: float = math.nan,
    show: NumberFormat = percent,
    best: bool = False,
) -> Cell:
    """A value with its interval, where there is one.

    Args:
        value: NaN where it is missing.
        low: lower end, NaN without an interval.
        high: upper end.
        show: value → text; a share as percent.
        best: carries the mark.
    """
    if math.isnan(value):
        return Cell(MISSING)
    if math.isnan(low) or math.isnan(high):
        return Cell(show(value), value, best=best)
    half = (high - low) / 2
    uneven = abs((low + high) / 2 - value) > _UNEVEN * half
    interval = f"{show(low)} to {show(high)}"
    return Cell(show(value), value, interval, f"±{show(half)}", best, uneven=uneven)


def estimate_cell(row: Row, show: NumberFormat = percent) -> Cell:
    """:func:`number_cell` of ``value, ci_low, ci_high``, and ``best`` if it has one, of a row."""
    value, low, high = (float(row[k]) for k in ("value", "ci_low", "ci_high"))
    return number_cell(value, low, high, show, bool(row.get("best")))


def mean_cell(
    row: Row,
    show: NumberFormat = percent,
    note: str = "",
    count: bool = False,
) -> Cell:
    """A mean over seeds: ``mean ± standard deviation``, with the ± of its interval.

    Args:
        row: ``value, seed_std, sampling_half_width``, and ``best`` if it has one; empty where there
            is no number.
        show: value → text.
        note: behind the number.
        count: of one seed it is a whole number.
    """
    value, std, half = (row.get(key) for key in ("value", "seed_std", "sampling_half_width"))
    if pd.isna(value):
        return Cell(MISSING)
    spread = "" if pd.isna(std) else f" ± {show(std)}"
    interval = "" if pd.isna(half) else f"±{show(half)}"
    text = f"{value:.0f}" if count and not spread else show(value)
    return Cell(f"{text}{spread}{note}", value, interval, best=bool(row.get("best")))


def plain_table(caption: str, rows: Sequence[Row], words: Names | None = None) -> Table:
    """A table without changes: numbers with three digits, texts, and N/A where nothing is known."""
    keys = list(rows[0]) if rows else []
    heads = [Head((words or {}).get(str(key), str(key).replace("_", " "))) for key in keys]
    return Table(caption, heads, [[plain_cell(row[key]) for key in keys] for row in rows])


def plain_cell(value: Any) -> Cell:
    """The cell of any value."""
    if isinstance(value, float):
        return Cell(MISSING) if math.isnan(value) else Cell(f"{value:.3g}", value)
    return Cell(f"{value:,}", value) if isinstance(value, int) else name_cell(value)


def text_table(caption: str, rows: Sequence[Mapping[str, str]]) -> Table:
    """A table of texts by heading; all but the first column are lined up as numbers."""
    return Table(caption, list(map(Head, rows[0])), [list(map(Cell, row.values())) for row in rows])
