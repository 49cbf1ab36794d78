"""A table for a paper or a repository: LaTeX and Markdown."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace

from ood_lab.common.files import packaged_table
from ood_lab.report.rendering.table import Group, Span, Table, spans_of, spread_texts

#: Letters of one line: as many as a page of a paper holds in the size of its footnotes.
_WIDTH = 140

_LATEX: dict[str, str] = packaged_table(__package__, "latex_letters.yaml")


def markdown(table: Table, warnings: Sequence[str] = ()) -> str:
    """Pipe tables as wide as a page; the best are bold. The warnings precede the notes."""

    def line(cells: list[str]) -> str:
        return "| " + " | ".join(cell.replace("|", "\\|") for cell in cells) + " |"

    def pipes(part: Table) -> str:
        heads = [
            " ".join(filter(None, (text, head.text, f"({note})" if note else "", head.note)))
            for text, note, start, end in spans_of(part)
            for head in part.heads[start:end]
        ]
        rule = ["---"] * part.names + ["---:"] * (len(heads) - part.names)
        return "\n".join(line(cells) for cells in (heads, rule, *_rows(part, "**{}**".format)))

    parts = "\n\n".join(pipes(part) for part in _parts(table))
    notes = "\n".join(f"- {note}" for note in _notes(table, warnings))
    return f"{table.caption}\n\n{parts}\n\n{notes}\n"


def _rows(
    table: Table, bold: Callable[[str], str], escape: Callable[[str], str] = str
) -> list[list[str]]:
    """The texts of the rows; those of the best are bold."""
    columns = [map(escape, spread_texts(table, k)) for k in range(len(table.heads))]
    texts = zip(*columns, strict=True)
    return [
        [bold(text) if cell.best else text for text, cell in zip(of_row, row, strict=True)]
        for of_row, row in zip(texts, table.rows, strict=True)
    ]


def _notes(table: Table, warnings: Sequence[str]) -> list[str]:
    """Notes below the table. The best are bold here, where other places have a star."""
    return [note.replace("* =", "Bold:") for note in (*warnings, *table.notes)]


def _parts(table: Table) -> Iterator[Table]:
    """The table, or several with as many whole groups of columns as a line holds."""

    def width(columns: Sequence[int]) -> int:
        texts = [spread_texts(table, k) for k in columns]
        heads = [table.heads[k].text for k in columns]
        pairs = zip(heads, texts, strict=True)
        return sum(2 + max(map(len, (head, *column))) for head, column in pairs)

    spans = [span for span in spans_of(table) if span.start >= table.names]
    parts: list[list[Span]] = []
    room = 0
    for span in spans:
        needed = width(range(span.start, span.end))
        if not parts or needed > room:
            parts.append([])
            room = _WIDTH - width(range(table.names))
        parts[-1].append(span)
        room -= needed
    if len(parts) < 2:
        yield table
        return
    for part in parts:
        columns = [*range(table.names), *(k for span in part for k in range(span.start, span.end))]
        groups = [Group(span.text, span.note, span.end - span.start) for span in part]
        yield replace(
            table,
            heads=[table.heads[k] for k in columns],
            rows=[[row[k] for k in columns] for row in table.rows],
            groups=[Group(span=table.names), *groups],
        )


def _escape(text: str) -> str:
    return "".join(_LATEX.get(letter, letter) for letter in text)


def latex(table: Table, warnings: Sequence[str] = ()) -> str:
    """Booktabs tables as wide as a page; the best are bold. The warnings precede the notes."""
    return "\n".join(
        [
            r"% needs \usepackage{booktabs,graphicx}",
            r"\begin{table*}",
            r"\centering",
            rf"\caption{{{_escape(table.caption)}}}",
            *(line for part in _parts(table) for line in _tabular(part)),
            rf"\par\smallskip\footnotesize {_escape(' '.join(_notes(table, warnings)))}",
            r"\end{table*}",
            "",
        ]
    )


def _tabular(table: Table) -> list[str]:
    def line(cells: list[str]) -> str:
        return "  " + " & ".join(cells) + r" \\"

    tops, rules = [], []
    for text, note, start, end in spans_of(table):
        title = _escape(f"{text} ({note})" if note else text)
        tops.append(rf"\multicolumn{{{end - start}}}{{c}}{{{title}}}")
        rules += [rf"\cmidrule(lr){{{start + 1}-{end}}}"] if text else []
    heads = [_escape(f"{head.text} {head.note}".strip()) for head in table.heads]
    columns = "l" * table.names + "r" * (len(heads) - table.names)
    return [
        r"\resizebox{\ifdim\width>\textwidth\textwidth\else\width\fi}{!}{%",
        rf"\begin{{tabular}}{{{columns}}}",
        r"  \toprule",
        *([line(tops), "  " + " ".join(rules)] if rules else []),
        line(heads),
        r"  \midrule",
        *map(line, _rows(table, r"\textbf{{{}}}".format, _escape)),
        r"  \bottomrule",
        r"\end{tabular}}",
    ]
