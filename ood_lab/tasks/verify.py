"""Is a finished run's number the published one? Protocols first, then the numbers."""

from __future__ import annotations

import math
from collections.abc import Hashable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

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
from ood_lab.report.rendering.blocks import Block, Text
from ood_lab.report.rendering.table import Cell, Head, Table, Tone, plain_table
from ood_lab.report.rendering.terminal import print_whole
from ood_lab.run.job.workspace import Task, Workspace

_TONES: Mapping[str, Tone] = {WITHIN: "good", OUTSIDE: "bad", OTHER: "doubtful", ABSENT: ""}


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
        verification = verify(results, facts, self.row, self.references, self.run_folder)
        write_csv(verification.table, ws.folder / "verify.csv")
        print_whole(list(_blocks(verification)))
        outside, comparable = verification.outside, verification.comparable
        if outside:
            raise UserError(
                f"{outside} of {comparable} numbers measured the same way are outside "
                f"their tolerance (task.row={self.row}, {self.run_folder})"
            )


def _blocks(verification: Verification) -> Iterator[Block]:
    """What is printed: sources, fields that differ, numbers, one line of summary."""
    table, differences = verification.table, verification.differences
    references = {row.reference.name: row.reference for row in verification.rows}
    for reference in references.values():
        facts = [f"{key}: {value}" for key, value in reference.about.items() if value is not None]
        yield Text("; ".join(facts))
    if len(differences):
        yield plain_table("Protocol fields that differ", differences.to_dict("records"))
    else:
        yield Text("every protocol field that is stated agrees")
    shown = table.drop(columns=["spread", "ci_low", "ci_high", "differs"])  # named above
    ends = [
        "" if math.isnan(low) else f"{low:.2f} to {high:.2f}"
        for low, high in zip(table["ci_low"], table["ci_high"], strict=True)
    ]
    shown.insert(3, "95% interval", ends)
    if table["spread"].notna().any():
        shown.insert(2, "±", table["spread"])
    if len(references) == 1:  # it is named above
        shown["row"] = shown["row"].str.partition("/")[2]
    rows = [
        [_cell(column, value, _TONES[record["verdict"]]) for column, value in record.items()]
        for record in shown.to_dict("records")
    ]
    yield Table("Numbers", list(map(Head, shown.columns)), rows)
    counts = table["verdict"].value_counts()
    yield Text(", ".join(f"{counts[v]} {v}" for v in _TONES if v in counts))


def _cell(column: Hashable, value: Any, tone: Tone) -> Cell:
    if not isinstance(value, float):
        return Cell(str(value), str(value), tone=tone)
    form = {"difference": "+.2f", "tolerance": ".6g"}.get(str(column), ".2f")
    return Cell("–" if math.isnan(value) else format(value, form), value, tone=tone)
