"""A table for a paper or a repository: LaTeX and Markdown."""

from __future__ import annotations

from collections.abc import Sequence

from ood_lab.report.rendering.table import Cell, Table, spans_of

_LATEX = {
    "\\": r"\textbackslash{}",
    **{c: f"\\{c}" for c in "&%$#_{}"},
    "~": r"\textasciitilde{}",
    "^": r"\textasciicircum{}",
    "<": "$<$",
    ">": "$>$",
    "±": r"$\pm$",
    "†": r"$^\dagger$",
    "²": "$^2$",
    "×": r"$\times$",
}


def markdown(table: Table, warnings: Sequence[str] = ()) -> str:
    """A pipe table; the best are bold. The warnings precede its notes."""

    def line(cells: list[str]) -> str:
        return "| " + " | ".join(cell.replace("|", "\\|") for cell in cells) + " |"

    def show(cell: Cell) -> str:
        return f"**{cell.text}**" if cell.best else cell.text

    heads = [
        " ".join(filter(None, (text, head.text, f"({note})" if note else "", head.note)))
        for text, note, start, end in spans_of(table)
        for head in table.heads[start:end]
    ]
    rule = ["---"] * table.names + ["---:"] * (len(heads) - table.names)
    lines = [line(heads), line(rule), *(line([show(c) for c in row]) for row in table.rows)]
    notes = "\n".join(f"- {note}" for note in (*warnings, *table.notes))
    return f"{table.caption}\n\n" + "\n".join(lines) + f"\n\n{notes}\n"


def _escape(text: str) -> str:
    return "".join(_LATEX.get(letter, letter) for letter in text)


def latex(table: Table, warnings: Sequence[str] = ()) -> str:
    """A booktabs table, as wide as the page; the best are bold. Warnings precede notes."""

    def show(cell: Cell) -> str:
        return rf"\textbf{{{_escape(cell.text)}}}" if cell.best else _escape(cell.text)

    def line(cells: list[str]) -> str:
        return "  " + " & ".join(cells) + r" \\"

    tops, rules = [], []
    for text, note, start, end in spans_of(table):
        title = _escape(f"{text} ({note})" if note else text)
        tops.append(rf"\multicolumn{{{end - start}}}{{c}}{{{title}}}")
        rules += [rf"\cmidrule(lr){{{start + 1}-{end}}}"] if text else []
    heads = [_escape(f"{head.text} {head.note}".strip()) for head in table.heads]
    columns = "l" * table.names + "r" * (len(heads) - table.names)
    return "\n".join(
        [
            r"% needs \usepackage{booktabs,graphicx}",
            r"\begin{table*}",
            r"\centering",
            rf"\caption{{{_escape(table.caption)}}}",
            r"\resizebox{\textwidth}{!}{%",
            rf"\begin{{tabular}}{{{columns}}}",
            r"  \toprule",
            line(tops),
            "  " + " ".join(rules),
            line(heads),
            r"  \midrule",
            *(line([show(cell) for cell in row]) for row in table.rows),
            r"  \bottomrule",
            r"\end{tabular}}",
            rf"\par\smallskip\footnotesize {_escape(' '.join((*warnings, *table.notes)))}",
            r"\end{table*}",
            "",
        ]
    )
