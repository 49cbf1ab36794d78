"""Is a finished run's number the published one? Protocols first, then the numbers."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pandas as pd
from rich.console import Console, Group, RenderableType
from rich.table import Table
from rich.text import Text

from ood_lab.common.errors import UserError
from ood_lab.common.files import write_csv
from ood_lab.evaluation.published.verification import (
    ABSENT,
    OTHER,
    OUTSIDE,
    WITHIN,
    Verification,
    read_runs,
    verify,
)
from ood_lab.run.job.workspace import Task, Workspace

STYLES = {WITHIN: "green", OUTSIDE: "bold red", OTHER: "yellow", ABSENT: "dim"}


@dataclass(frozen=True, kw_only=True)
class Verify(Task):
    """Compares a finished run with published numbers; writes ``verify.csv``.

    A row counts as outside its tolerance only when no protocol field that bears on it differs.
    Runs of detectors, of labels with levels, of zero-shot accuracies, of ``task=data_check`` and
    ``task=shift_levels``, and of OODBench, ORIC, ODE and AMBER.

    Args:
        run_folder: the run to compare; or the folder of its seeds, ``outputs/<name>/<hash>``: then
            the mean over them is compared.
        row: ``file``, ``file/detector``, ``file/detector/set`` or ``file/detector/set/metric``;
            ``*`` stands for anything.
        references: folder of reference files; None = those that come with the package.

    Raises:
        UserError: unknown row, no finished run, none of the rows in it, or rows of the same
            protocol outside their tolerance.
    """

    run_folder: str
    row: str
    references: str | None

    def run(self, ws: Workspace) -> None:
        """See the class."""
        results, facts = read_runs(Path(self.run_folder))
        found = verify(results, facts, self.row, self.references, self.run_folder)
        write_csv(found.table, ws.folder / "verify.csv")
        Console().print(_page(found))
        if found.outside:
            raise UserError(
                f"{found.outside} of {found.comparable} numbers measured the same way are outside "
                f"their tolerance (task.row={self.row}, {self.run_folder})"
            )


def _page(found: Verification) -> Group:
    """What is printed: sources, fields that differ, numbers, one line of summary."""
    rows, table, differences = found.rows, found.table, found.differences
    parts: list[RenderableType] = []
    for reference in {row.reference.name: row.reference for row in rows}.values():
        known = [f"{key}: {value}" for key, value in reference.about.items() if value is not None]
        parts.append(Text("; ".join(known)))
    if len(differences):
        parts.append(_grid("Protocol fields that differ", differences, ["rows"]))
    else:
        parts.append(Text("every protocol field that is stated agrees", style="green"))
    shown = table.drop(columns=["spread", "ci_low", "ci_high", "differs"])  # named above
    ends = [
        "" if math.isnan(low) else f"{low:.2f} to {high:.2f}"
        for low, high in zip(table["ci_low"], table["ci_high"], strict=True)
    ]
    shown.insert(3, "95% interval", ends)
    if table["spread"].notna().any():
        shown.insert(2, "±", table["spread"])
    if len({row.reference.name for row in rows}) == 1:  # it is named above
        shown["row"] = shown["row"].str.partition("/")[2]
    numbers = ["paper", "±", "run", "95% interval", "difference", "tolerance"]
    parts.append(_grid("Numbers", shown, numbers))
    counts = table["verdict"].value_counts()
    parts.append(Text(", ".join(f"{counts[v]} {v}" for v in STYLES if v in counts)))
    return Group(*parts)


def _grid(title: str, table: pd.DataFrame, numbers: Sequence[str]) -> Table:
    grid = Table(title=title, title_justify="left", box=None, pad_edge=False, padding=(0, 1))
    for column in table.columns:
        right = column in numbers
        grid.add_column(column, justify="right" if right else "left", overflow="fold")
    for record in table.to_dict("records"):
        cells = [_cell(str(column), value) for column, value in record.items()]
        grid.add_row(*cells, style=STYLES.get(record.get("verdict", "")))
    return grid


def _cell(column: str, value: Any) -> str:
    if not isinstance(value, float):
        return str(value)
    if math.isnan(value):
        return "–"
    return format(value, {"difference": "+.2f", "tolerance": ".6g"}.get(column, ".2f"))
