"""A table for a paper or a repository: LaTeX and Markdown."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from ood_lab.common.files import packaged_table
from ood_lab.report.rendering.table import Table

#: Letters of one line: as many as a page of a paper holds in the size of its footnotes.
_WIDTH = 140

_LATEX = str.maketrans(packaged_table(__package__, "latex_letters.yaml"))


def markdown(table: Table, warnings: Sequence[str] = ()) -> str:
    """Pipe tables as wide as a page; the best are bold. The warnings precede the notes."""

    def line(cells: list[str]) -> str:
        return "| " + " | ".join(cell.replace("|", "\\|") for cell in cells) + " |"

    def pipes(part: Table) -> str:
        heads = []
        for head in part.heads:
            note = f"({head.group.note})" if head.group.note else ""
            heads.append(" ".join(filter(None, (head.group.text, head.text, note, head.note))))
        rule = ["---"] * part.names + ["---:"] * (len(heads) - part.names)
        return "\n".join(map(line, (heads, rule, *_rows(part, "**{}**".format))))

    parts = "\n\n".join(map(pipes, table.parts(_WIDTH)))
    notes = "\n".join(f"- {note}" for note in _notes(table, warnings))
    return f"{table.caption}\n\n{parts}\n\n{notes}\n"


def _rows(
    table: Table, bold: Callable[[str], str], escape: Callable[[str], str] = str
) -> list[list[str]]:
    """The texts of the rows; those of the best are bold."""
    columns = [map(escape, table.texts(k)) for k in range(len(table.heads))]
    texts = zip(*columns, strict=True)
    return [
        [bold(text) if cell.best else text for text, cell in zip(of_row, row, strict=True)]
        for of_row, row in zip(texts, table.rows, strict=True)
    ]


def _notes(table: Table, warnings: Sequence[str]) -> list[str]:
    """Notes below the table. The best are bold here, where other places have a star."""
    return [note.replace("* =", "Bold:") for note in (*warnings, *table.notes)]


def _escape(text: str) -> str:
    return text.translate(_LATEX)


def latex(table: Table, warnings: Sequence[str] = ()) -> str:
    """Booktabs tables as wide as a page; the best are bold. The warnings precede the notes."""
    return "\n".join(
        [
            r"% needs \usepackage{booktabs,graphicx}",
            r"\begin{table*}",
            r"\centering",
            rf"\caption{{{_escape(table.caption)}}}",
            *(line for part in table.parts(_WIDTH) for line in _tabular(part)),
            rf"\par\smallskip\footnotesize {_escape(' '.join(_notes(table, warnings)))}",
            r"\end{table*}",
            "",
        ]
    )


def _tabular(table: Table) -> list[str]:
    def line(cells: list[str]) -> str:
        return "  " + " & ".join(cells) + r" \\"

    tops, rules = [], []
    for group, columns in table.groups:
        title = _escape(f"{group.text} ({group.note})" if group.note else group.text)
        tops.append(rf"\multicolumn{{{len(columns)}}}{{c}}{{{title}}}")
        rules += [rf"\cmidrule(lr){{{columns[0] + 1}-{columns[-1] + 1}}}"] if group.text else []
    heads = [_escape(f"{head.text} {head.note}".strip()) for head in table.heads]
    letters = "l" * table.names + "r" * (len(heads) - table.names)
    return [
        r"\resizebox{\ifdim\width>\textwidth\textwidth\else\width\fi}{!}{%",
        rf"\begin{{tabular}}{{{letters}}}",
        r"  \toprule",
        *([line(tops), "  " + " ".join(rules)] if rules else []),
        line(heads),
        r"  \midrule",
        *map(line, _rows(table, r"\textbf{{{}}}".format, _escape)),
        r"  \bottomrule",
        r"\end{tabular}}",
    ]
