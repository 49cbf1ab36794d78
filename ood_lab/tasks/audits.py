"""Error rates from people's verdicts on a benchmark, and the agreement of two people."""

from __future__ import annotations

import logging
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import combinations
from pathlib import Path
from typing import ClassVar

import pandas as pd

from ood_lab.common.arguments import Count
from ood_lab.common.errors import UserError
from ood_lab.common.files import write_csv
from ood_lab.common.hints import check_known
from ood_lab.common.random_streams import Resampling
from ood_lab.lvlm.scoring.human_verdicts import (
    ERROR,
    REJECT,
    VERDICT,
    agreement,
    drawn,
    read_audit,
)
from ood_lab.lvlm.scoring.scored_results import columns_of
from ood_lab.metrics.resampling.intervals import Estimate, clopper_pearson
from ood_lab.report.rendering.metric_definitions import percent
from ood_lab.report.rendering.summary import show_blocks
from ood_lab.report.rendering.table import Head, Table, count_cell, estimate_cell, name_cell
from ood_lab.run.job.workspace import Task, Workspace
from ood_lab.schema.results import PART, Kind, Row, Tables, write_results

log = logging.getLogger(__name__)

KIND = Kind("audit", "row", ("audit", PART, ERROR))


@dataclass(frozen=True, kw_only=True)
class Audits(Task):
    """Writes ``results.*``, or ``to_check.csv`` with rows for a person to look at.

    The error rate is the share of judged rows with the verdict ``reject``, with the exact
    (Clopper-Pearson) 95% interval; each kind of error in the column ``error`` has its own rate. Of
    two files Cohen's kappa on the rows that both have judged. Rows of objects that were considered
    and not ``chosen`` are no questions, and never count.

    Args:
        files: ``audit.csv`` of OODBench, ORIC or ODE with verdicts, one a person.
        by: column whose values have error rates of their own, such as split, label or criterion.
        draw: write so many rows of each of them, without verdicts, and end.

    Raises:
        UserError: a file is missing or has no verdict; a column that is not there.
    """

    files: Sequence[str]
    by: str | None
    draw: Count | None
    names: ClassVar[dict[str, str]] = {"error_rate": "error rate", "kappa": "Cohen's kappa"}

    def check(self, ws: Workspace) -> None:
        """Raises a UserError where a file cannot be used."""
        if not self.files:
            raise UserError("task.files=[audit.csv] names the files with verdicts")
        for file, audit in self._audits.items():
            check_known([self.by], audit, f"task.by={{name}} is no column of {file}")
            if self.draw is None and not (audit[VERDICT] != "").any():
                raise UserError(
                    f"{file} has no verdict yet: write accept or reject into its column verdict "
                    "(task.draw=150 writes a file with that many rows)"
                )

    @property
    def _audits(self) -> Tables:
        """The rows of each file that count."""
        return {str(file): read_audit(Path(str(file)), key="task.files") for file in self.files}

    def run(self, ws: Workspace) -> pd.DataFrame | None:
        """Returns the results; None where rows were drawn, and on the other ranks."""
        self.check(ws)
        if not ws.is_main:
            return None
        audits = self._audits
        if self.draw is not None:
            file = ws.folder / "to_check.csv"
            write_csv(drawn(next(iter(audits.values())), self.draw, self.by, ws.seed), file)
            log.info("write accept or reject into the column verdict of %s", file)
            return None
        rows = [*self._rates(audits), *_agreements(audits, ws.resampling)]
        results = KIND.table(rows, model="people", seed=ws.seed)
        write_results(results, ws.folder)
        show_blocks([self._table(results)], ws.folder, "audits", lines=None)
        return results

    def _rates(self, audits: Tables) -> Iterator[Row]:
        for file, audit in audits.items():
            filled = audit[audit[VERDICT] != ""]
            parts: list[tuple[str | None, pd.DataFrame]] = [(None, filled)]
            parts += [(str(v), rows) for v, rows in filled.groupby(self.by)] if self.by else []
            kinds = sorted(set(_kinds(filled)) - {""})
            for part, rows in parts:
                for kind in (None, *kinds):
                    rejects = rows[VERDICT] == REJECT
                    wrong = int(
                        (rejects if kind is None else rejects & (_kinds(rows) == kind)).sum()
                    )
                    rate = Estimate(wrong / len(rows), *clopper_pearson(wrong, len(rows)))
                    keys = {"audit": file, PART: part, ERROR: kind, "metric": "error_rate"}
                    yield keys | columns_of(rate) | {"n": len(rows)}

    def _table(self, results: pd.DataFrame) -> Table:
        rows = []
        for row in results.fillna({PART: "", ERROR: ""}).to_dict("records"):
            show = percent if row["metric"] == "error_rate" else "{:.2f}".format
            metric = self.names.get(row["metric"], row["metric"])
            rows.append(
                [
                    *map(name_cell, (metric, row["audit"], row[PART], row[ERROR])),
                    estimate_cell(row, show),
                    count_cell(row["n"]),
                ]
            )
        heads = [Head(text, "ascending") for text in ("", "file", "part", "kind of error")]
        note = "Error rates in % with exact (Clopper-Pearson) 95% intervals; the others bootstrap."
        heads += [Head("value"), Head("rows")]
        return Table("What people say", heads, rows, names=4, notes=[note], spreads=True)


def _kinds(audit: pd.DataFrame) -> pd.Series:
    """The kind of error that a person wrote next to the verdict; "" = none."""
    return audit.get(ERROR, pd.Series("", audit.index, dtype=str)).str.strip()


def _agreements(audits: Tables, resampling: Resampling) -> Iterator[dict]:
    for (a, first), (b, second) in combinations(audits.items(), 2):
        estimates, n = agreement(first, second, resampling)
        for metric, estimate in estimates.items():
            yield {"audit": f"{a}, {b}", "metric": metric, "n": n, **columns_of(estimate)}
