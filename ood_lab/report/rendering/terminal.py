"""Blocks for the terminal, laid out for the width that it has."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace

from rich.console import Console, ConsoleOptions, Group, RenderableType
from rich.text import Text as RichText

from ood_lab.common.console import print_line
from ood_lab.common.english import counted, listed
from ood_lab.report.rendering.blocks import Block, Text, printed
from ood_lab.report.rendering.table import Span, Table, spans_of, spread_texts
from ood_lab.report.rendering.terminal_columns import (
    Column,
    beside,
    break_name,
    build,
    numbers,
    pack,
    width_of,
)

_MAX_HEADER_LINES = 6
_UNBOUNDED = 10_000
_SHORT = 6  # letters of a name that need no number instead
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
        always = [b for b in blocks if isinstance(b, Text) and b.style in _ALWAYS]

        def height(part: RenderableType) -> int:
            return len(console.render_lines(part, options))

        if self.lines is None:
            room = math.inf
        else:
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


def printed_table(table: Table, width: int) -> Iterator[RenderableType]:
    """One table, or as many as the width demands.

    Groups of columns are side by side where there is room. Else, where several groups have the
    same heads, there is a table for every head, with the groups as its columns; their names are
    broken into shorter lines, and become numbers where only that makes it fit.
    """
    table, starts = _in_sections(table)
    shown = [k for k in range(table.names) if not table.heads[k].page_only]
    names = [_column(table, k) for k in shown]
    if not table.groups:
        columns = [_column(table, k) for k in range(table.names, len(table.heads))]
        if len(names) > 1 and not _fits([*names, *columns], width):
            names = [_joined(table, shown, width)]  # every part says what its rows are
        yield from _built([*names[1:], *columns], names[0], width, table.caption, starts)
        return
    spans = [span for span in spans_of(table) if span.start >= table.names]
    for words in (14, 12, 9):
        columns = [_together(table, span, words) for span in spans]
        if _fits([*names, *columns], width):
            yield build([*names, *columns], table.caption, starts)
            return
    if len(names) > 1:
        names = [_joined(table, shown, width)]
    if table.split == "groups":
        yield from _built(columns, names[0], width, table.caption, starts)
        return
    stacks = _stacks(table, spans)

    def laid_out(words: int) -> list[tuple[str, list[Column]]]:
        return [
            (title, [*names, *(_single(table, k, group, words, number) for k, group, number in of)])
            for title, of in stacks
        ]

    for words in (16, 12, 9, 0):
        laid = laid_out(words)
        if all(_fits(columns, width) for _, columns in laid):
            break
    else:  # a table of several parts has room for names
        words, laid = 16, laid_out(16)
    if not words:
        named = ((n, group[0]) for _, of in stacks for _, group, n in of)
        titles = dict.fromkeys((n, text) for n, text in named if n and len(text) >= _SHORT)
        yield RichText(", ".join(f"S{number}={title}" for number, title in titles))
    for title, columns in laid:
        yield from _built(columns[1:], columns[0], width, title, starts)


def _joined(table: Table, shown: Sequence[int], width: int) -> Column:
    """All that says what a row is as one column, cut where it leaves no room for a number."""
    head = " · ".join(table.heads[k].text for k in shown)
    texts = [" · ".join(row[k].text for k in shown if row[k].text) for row in table.rows]
    room = max(24, width - 16)
    cut = [text if len(text) <= room else f"{text[: room - 1]}…" for text in (head, *texts)]
    return Column((cut[0],), [RichText(text) for text in cut[1:]])


def _stacks(
    table: Table, spans: Sequence[Span]
) -> list[tuple[str, list[tuple[int, tuple[str, str], int]]]]:
    """For every head that groups share, its columns with their group and its number.

    A single one joins the last of them.
    """
    many = [span for span in spans if span[3] - span[2] > 1]
    heads = list(dict.fromkeys(table.heads[k].text for s in many for k in range(s[2], s[3])))
    stacks = []
    for head in heads:
        columns = [
            (k, (text, note), number)
            for number, (text, note, start, end) in enumerate(spans, 1)
            for k in range(start, end)
            if table.heads[k].text == head and end - start > 1
        ]
        stacks.append((table.each.format(head), columns))
    alone = [(s[2], (s[0], s[1]), 0) for s in spans if s[3] - s[2] == 1]
    if not stacks:
        return [(table.caption, alone)]
    stacks[-1][1].extend(alone)
    return stacks


def _built(
    columns: Sequence[Column], name: Column, width: int, title: str, starts: Mapping[int, str]
) -> Iterator[Group]:
    for part in pack([name, *columns], width):
        yield build(part, title, starts)


def _in_sections(table: Table) -> tuple[Table, dict[int, str]]:
    """The table with the rows of a section together, and the title of each by its first row."""
    if not table.sections:
        return table, {}
    order = [row for rows in table.sections.values() for row in rows]
    first, starts = 0, {}
    for title, rows in table.sections.items():
        starts[first] = title
        first += len(rows)
    return replace(table, rows=[table.rows[row] for row in order]), starts


def _fits(columns: Sequence[Column], width: int) -> bool:
    tallest = max(len(column.header) for column in columns)
    return width_of(columns) <= width and tallest <= _MAX_HEADER_LINES


def _column(table: Table, k: int) -> Column:
    """A column under its own head; the names are not lined up at the right."""
    head, cells = table.heads[k], [row[k] for row in table.rows]
    header = (head.text, *([head.note] if head.note else []))
    if k == 0:
        plain = "italic", "bold"
        styles = [f"{_TONES[c.tone]} {plain[not c.quiet]}" for c in cells]
        return Column(header, [RichText(c.text, s) for c, s in zip(cells, styles, strict=True)])
    if k < table.names or all(cell.is_word for cell in cells):
        return Column(header, [RichText(c.text, _TONES[c.tone]) for c in cells], left=True)
    return Column(header, _numbers(table, k))


def _together(table: Table, span: Span, words: int) -> Column:
    """The columns of a group as one."""
    text, note, start, end = span
    heads, parts = table.heads[start:end], [_numbers(table, k) for k in range(start, end)]
    widths = [
        max(len(head.text), *(cell.cell_len for cell in part))
        for head, part in zip(heads, parts, strict=True)
    ]
    cells = beside(parts, widths)
    texts = "  ".join(h.text.rjust(width) for h, width in zip(heads, widths, strict=True))
    below = [note, texts, *(head.note for head in heads)]
    title = break_name(text, words) if text else ()
    return Column((*title, *(line for line in below if line)), cells)


def _single(table: Table, k: int, group: tuple[str, str], words: int, number: int) -> Column:
    """One column of a table for a single head; its group is the header."""
    cells = _numbers(table, k)
    (text, note), head = group, table.heads[k]
    if not number:
        return Column(tuple(line for line in (text, note, head.text, head.note) if line), cells)
    title = break_name(text, words) if words or len(text) < _SHORT else (f"S{number}",)
    return Column((*title, *([note] if note else [])), cells)


def _numbers(table: Table, k: int) -> list[RichText]:
    best = {place for place, row in enumerate(table.rows) if row[k].best}
    return numbers(spread_texts(table, k), best)
