"""The tables of the report as plain data for the template."""

from __future__ import annotations

import math
from collections.abc import Callable

from ood_lab.axes import AXES, Axis
from ood_lab.metrics import higher_is_better
from ood_lab.report.protocol import MISSING, percent
from ood_lab.report.table import Cell, Group, Head, Table
from ood_lab.report.view import Estimate, RunView

_LABELS = {
    "auroc": "AUROC",
    "fpr95": "FPR95",
    "fpr95_ood": "FPR95 (openood)",
    "fpr95_id": "FPR95 (hendrycks)",
    "aupr_in": "AUPR in",
    "aupr_out": "AUPR out",
}


def _cell(estimate: Estimate, show: Callable[[float], str] = percent, best: bool = False) -> Cell:
    if math.isnan(estimate.value):
        return Cell(MISSING)
    ends = f"{show(estimate.low)} to {show(estimate.high)}" if estimate.has_interval else ""
    return Cell(show(estimate.value), estimate.value, ends, best=best)


def _head(metric: str) -> Head:
    return Head(_LABELS[metric], "descending" if higher_is_better(metric) else "ascending")


def _name(text: str) -> Cell:
    return Cell(text, text)


def main_table(view: RunView) -> Table:
    """Detectors × OOD sets: AUROC and FPR95 of each, their means, DAD."""
    columns: list[dict[str, Cell]] = []
    heads = [Head("detector", "ascending")]
    groups = [Group("", "", 1)]
    if any(map(view.reads, view.detectors)):
        columns.append({d: Cell(view.reads(d), view.reads(d)) for d in view.detectors})
        heads.append(Head("reads", "ascending"))
        groups = [Group("", "", 2)]
    for ood in view.sets:
        n = view.get("auroc", view.detectors[0], ood).n_ood
        groups.append(Group(view.marked(ood), f"n {n:,}", 2))
        for metric in ("auroc", "fpr95"):
            cells = {d: view.get(metric, d, ood) for d in view.detectors}
            best = view.best(metric, ood, {d: c.value for d, c in cells.items()})
            columns.append({d: _cell(c, best=d in best) for d, c in cells.items()})
            heads.append(_head(metric))
    for group in view.groups:
        groups.append(Group(f"mean {group}", "", 2))
        for metric in ("auroc", "fpr95"):
            name = f"mean_{group}_{metric}"
            cells = {d: view.get(name, d) for d in view.detectors}
            best = view.best(name, None, {d: c.value for d, c in cells.items()})
            columns.append({d: _cell(c, best=d in best) for d, c in cells.items()})
            heads.append(_head(metric))
    if len(view.sets) > 1:
        groups.append(Group("mean", "", 2))
        for metric in ("auroc", "fpr95"):
            cells = {d: view.mean(metric, d) for d in view.detectors}
            best = view.best(f"mean_{metric}", None, {d: c.value for d, c in cells.items()})
            columns.append({d: _cell(c, best=d in best) for d, c in cells.items()})
            heads.append(_head(metric))
    if view.most_dad:
        groups.append(Group("", "", 1))
        heads.append(Head("DAD", note=f"of {view.most_dad}"))
        columns.append({d: _cell(view.get("dad", d), "{:.0f}".format) for d in view.detectors})
    rows = [[_name(d), *(column[d] for column in columns)] for d in view.detectors]
    return Table("AUROC and FPR95 in %", heads, rows, groups)


def all_metrics_table(view: RunView) -> Table:
    """One row per detector and OOD set with every metric the results hold, both FPR95."""
    known = set(view.table["metric"])
    metrics = [m for m in _LABELS if m in known and m != "fpr95"]
    metrics = metrics if "fpr95_ood" in metrics else [*metrics, "fpr95"]
    heads = [Head("detector", "ascending"), Head("OOD set", "ascending"), Head("n")]
    rows = []
    for detector in view.detectors:
        for place, ood in enumerate(view.sets):
            cells = [view.get(metric, detector, ood) for metric in metrics]
            n = cells[0].n_ood
            # Sets are sorted by their place in the shift order, not by name.
            start = [_name(detector), Cell(view.marked(ood), place), Cell(f"{n:,}", n)]
            rows.append([*start, *(_cell(c) for c in cells)])
    return Table("All metrics in %", [*heads, *(_head(m) for m in metrics)], rows)


def level_tables(view: RunView) -> list[Table]:
    """AUROC by level with correlation and sensitivity, one table per set and axis."""
    tables = []
    for ood in view.level_sets:
        for axis in AXES:
            levels = view.levels(ood, axis)
            if not levels:
                continue
            heads = [Head("detector", "ascending")]
            n = [view.at_level("auroc", view.detectors[0], ood, axis, x).n_ood for x in levels]
            heads += [Head(f"{x:g}", note=f"n {k:,}") for x, k in zip(levels, n, strict=True)]
            heads += [Head("correlation"), Head("points per level")]
            rows = [[_name(d), *_level_cells(view, d, ood, axis)] for d in view.detectors]
            tables.append(Table(f"AUROC in % by {axis} level ({view.marked(ood)})", heads, rows))
    return tables


def _level_cells(view: RunView, detector: str, ood: str, axis: Axis) -> list[Cell]:
    cells = [
        _cell(view.at_level("auroc", detector, ood, axis, level))
        for level in view.levels(ood, axis)
    ]
    correlation = view.get(f"correlation_{axis}_auroc", detector, ood)
    sensitivity = view.get(f"sensitivity_{axis}_auroc", detector, ood)
    return [
        *cells,
        _cell(correlation, "{:+.2f}".format),
        _cell(sensitivity, lambda v: f"{100 * v:.1f}"),
    ]


def failure_table(view: RunView) -> list[Table]:
    """AURC and E-AURC of ID errors, and of them with each OOD set; empty where there is none."""
    places = [p for p in (None, *view.sets) if view.get("aurc", view.detectors[0], p).n_id]
    if not places:
        return []
    heads, groups = [Head("detector", "ascending")], [Group("", "", 1)]
    columns: list[dict[str, Cell]] = []
    for place in places:
        first = view.get("aurc", view.detectors[0], place)
        n = first.n_id + first.n_ood
        name = "ID errors" if place is None else f"ID + {view.marked(place)}"
        groups.append(Group(name, f"n {n:,}", 2))
        for metric, label in (("aurc", "AURC"), ("e_aurc", "E-AURC")):
            cells = {d: view.get(metric, d, place) for d in view.detectors}
            best = view.best(metric, place, {d: c.value for d, c in cells.items()})
            columns.append({d: _cell(c, best=d in best) for d, c in cells.items()})
            heads.append(Head(label, "ascending"))
    rows = [[_name(d), *(column[d] for column in columns)] for d in view.detectors]
    title = "Failure detection: area under the risk-coverage curve in %"
    return [Table(title, heads, rows, groups)]
