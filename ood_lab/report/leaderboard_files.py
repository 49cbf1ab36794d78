"""The leaderboard as CSV, Markdown, LaTeX, one HTML page, and for the terminal."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import replace
from pathlib import Path

from rich.console import Group
from rich.text import Text

from ood_lab.io import write_text
from ood_lab.report.blocks import FigureFile
from ood_lab.report.columns import Column, beside, break_name, build, numbers, pack
from ood_lab.report.leaderboard import Leaderboard
from ood_lab.report.leaderboard_dating import dating_rows, dating_wide
from ood_lab.report.leaderboard_table import WideTable, wide_table
from ood_lab.report.optional import optional
from ood_lab.report.page import embed, page_template
from ood_lab.report.protocol import definitions_of, fpr95_sentence, star_sentence
from ood_lab.report.shots import shots_rows, write_shots_figure
from ood_lab.report.table import Cell, Head, Table
from ood_lab.words import counted

_TERMINAL_ROWS = 20
#: Columns that the terminal keeps where the sets do not fit.
_SUMMARIES = ("DAD", "ID acc.")
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


def write_leaderboard(
    board: Leaderboard, folder: Path, name: str = "leaderboard", notes: Sequence[str] = ()
) -> list[Path]:
    """Writes ``<name>.csv`` (long), ``.md``, ``.tex`` and ``.html`` into ``folder``.

    Where runs have a dating table, so do the last three, and ``<name>_dating.csv`` has its numbers.
    Where they have several numbers of training images, ``<name>_shots.csv``, ``.png`` and ``.svg``
    show what more of them bring.

    Args:
        board: the table.
        folder: where the files go.
        name: of the files.
        notes: what to know of the choice of runs; first on the page.

    Returns:
        The files.
    """
    wide = wide_table(board)
    accuracies = dating_rows(board.runs)
    dating = dating_wide(accuracies)
    tables = [wide, dating] if dating else [wide]
    texts = {
        f"{name}.csv": board.rows.to_csv(index=False),
        f"{name}.md": "\n".join(map(markdown, tables)),
        f"{name}.tex": "\n".join(map(latex, tables)),
    }
    if dating:
        texts[f"{name}_dating.csv"] = accuracies.to_csv(index=False)
    shots = shots_rows(board)
    if not shots.empty:
        texts[f"{name}_shots.csv"] = shots.to_csv(index=False)
    for file, text in texts.items():
        write_text(text, folder / file)
    figures = []
    if not shots.empty:
        with optional(f"figure {name}_shots"):
            figures.append(write_shots_figure(folder, f"{name}_shots", shots))
    files = list(texts)
    with optional(f"{name}.html"):
        page = html(board, wide, dating, figures, folder, files, notes)
        write_text(page, folder / f"{name}.html")
        files.append(f"{name}.html")
    return [folder / file for file in files]


def _spans(table: Table) -> Iterator[tuple[str, str, int, int]]:
    """Text and note of every group of columns, with its first column and the one behind."""
    start = 0
    for group in table.groups:
        yield group.text, group.note, start, start + group.span
        start += group.span


def markdown(wide: WideTable) -> str:
    """A pipe table; the best are bold."""

    def line(cells: list[str]) -> str:
        return "| " + " | ".join(cell.replace("|", "\\|") for cell in cells) + " |"

    def show(cell: Cell) -> str:
        return f"**{cell.text}**" if cell.best else cell.text

    table = wide.table
    heads = [
        " ".join(filter(None, (text, head.text, f"({note})" if note else "", head.note)))
        for text, note, start, end in _spans(table)
        for head in table.heads[start:end]
    ]
    rule = ["---"] * wide.names + ["---:"] * (len(heads) - wide.names)
    lines = [line(heads), line(rule), *(line([show(c) for c in row]) for row in table.rows)]
    notes = "\n".join(f"- {note}" for note in (*wide.warnings, *wide.notes))
    return f"{table.caption}\n\n" + "\n".join(lines) + f"\n\n{notes}\n"


def _escape(text: str) -> str:
    return "".join(_LATEX.get(letter, letter) for letter in text)


def latex(wide: WideTable) -> str:
    """A booktabs table, as wide as the page; the best are bold."""

    def show(cell: Cell) -> str:
        return rf"\textbf{{{_escape(cell.text)}}}" if cell.best else _escape(cell.text)

    def line(cells: list[str]) -> str:
        return "  " + " & ".join(cells) + r" \\"

    table, tops, rules = wide.table, [], []
    for text, note, start, end in _spans(table):
        title = _escape(f"{text} ({note})" if note else text)
        tops.append(rf"\multicolumn{{{end - start}}}{{c}}{{{title}}}")
        rules += [rf"\cmidrule(lr){{{start + 1}-{end}}}"] if text else []
    heads = [_escape(f"{head.text} {head.note}".strip()) for head in table.heads]
    columns = "l" * wide.names + "r" * (len(heads) - wide.names)
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
            rf"\par\smallskip\footnotesize {_escape(' '.join((*wide.warnings, *wide.notes)))}",
            r"\end{table*}",
            "",
        ]
    )


def html(
    board: Leaderboard,
    wide: WideTable,
    dating: WideTable | None,
    figures: list[FigureFile],
    folder: Path,
    downloads: list[str],
    notes: Sequence[str] = (),
) -> str:
    """The page of a run's report with the leaderboard as its table."""
    rows = board.rows.dropna(subset=["detector"])
    models, detectors, runs = (rows[name].nunique() for name in ("model", "detector", "run"))
    best = wide.table.rows[0]
    named = ", ".join(cell.text for cell in best[1 : wide.names] if cell.text)
    auroc = f"{best[wide.names].text}%"
    facts = [
        ("Models", str(models), f"{runs} configuration{'s' * (runs > 1)}"),
        ("Detectors", str(detectors), counted(len(wide.table.rows), "row")),
        ("OOD sets", str(len(board.sets)), ", ".join(board.sets)),
        ("Best mean AUROC", best[0].text, f"{auroc} · {named}" if named else auroc),
    ]
    folders = [(run.sweep + f"/seed={run.seed}", str(run.path)) for run in board.runs]
    explained = [note.partition(": ")[::2] for note in wide.notes]
    return page_template("template.html.j2").render(
        title="Leaderboard",
        sentence=fpr95_sentence(board.protocol),
        facts=facts,
        warnings=[*notes, *wide.warnings],
        main=wide.table,
        stars=star_sentence(tested=True),
        refused={},
        details=[_settings_table(board)],
        left_out=[],
        figures=[embed(figure, folder) for figure in figures],
        mistakes=[],
        thumbnails=[],
        definitions=[*definitions_of(board.rows), *explained],
        manifest=folders,
        downloads=downloads,
        dating={"tables": [dating.table], "notes": dating.notes, "figure": None} if dating else {},
    )


def _settings_table(board: Leaderboard) -> Table:
    """Where every row comes from and with which hyperparameters."""
    keys = ["detector", "model", "training", "run", "seeds", "settings"]
    rows = board.rows.dropna(subset=["detector"]).drop_duplicates(["run", "detector"])
    cells = [[Cell(str(row[k]), str(row[k])) for k in keys] for row in rows.to_dict("records")]
    return Table("Runs and settings", [Head(k, "ascending") for k in keys], cells)


def terminal(wide: WideTable, title: str, width: int) -> Group:
    """The top of the leaderboard for ``rich``: as many summaries and sets as fit one table."""
    table = replace(wide.table, rows=wide.table.rows[:_TERMINAL_ROWS])
    names = [" · ".join(c.text for c in row[: wide.names] if c.text) for row in table.rows]
    title_of_names = " · ".join(head.text for head in table.heads[: wide.names])
    summary, *others = (
        (text or table.heads[start].text, _column(table, text, note, start, end))
        for text, note, start, end in list(_spans(table))[1:]
    )
    room = max(24, width - summary[1].width - 2)  # the mean is always there to be seen
    first = Column((_cut(title_of_names, room),), [Text(_cut(name, room)) for name in names])
    some = [column for name, column in others if name in _SUMMARIES]
    for shown in ([column for _, column in others], some, []):
        parts = pack([first, summary[1], *shown], width)
        if len(parts) == 1:
            break
    notes = [table.caption, star_sentence(tested=True), *wide.warnings]
    if left := len(wide.table.rows) - len(table.rows):
        notes.append(f"{left} more rows in the files.")
    return Group(*(build(part, title) for part in parts), Text("\n".join(notes), "dim"))


def _cut(text: str, width: int) -> str:
    return text if len(text) <= width else text[: width - 1] + "…"


def _column(table: Table, text: str, note: str, start: int, end: int) -> Column:
    """A group of one or two columns as one column of the terminal."""
    parts = [_numbers([row[k] for row in table.rows]) for k in range(start, end)]
    heads = [head.text for head in table.heads[start:end]]
    below = [note, "  ".join(heads)] if text else [heads[0], table.heads[start].note]
    below = [line for line in below if line]
    together = parts[0] if len(parts) == 1 else beside(*parts)
    return Column((*break_name(text, 14), *below), together)


def _numbers(cells: list[Cell]) -> list[Text]:
    return numbers([c.text for c in cells], {i for i, c in enumerate(cells) if c.best})
