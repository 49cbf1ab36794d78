"""Tables of a run that scored detectors: detectors × OOD sets, by level, and all metrics."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import replace

import pandas as pd

from ood_lab.metrics import BASELINE, FEWEST, metric_of
from ood_lab.metrics.resampling.intervals import Estimate
from ood_lab.report.rendering.blocks import Folded, Menu
from ood_lab.report.rendering.metric_definitions import percent, star_sentence
from ood_lab.report.rendering.prose import sentences
from ood_lab.report.rendering.table import (
    Cell,
    Column,
    Group,
    Head,
    NumberFormat,
    Table,
    count_cell,
    estimate_cell,
    metric_head,
    name_cell,
    names_column,
    number_cell,
    pivoted,
    table_of,
)
from ood_lab.report.results_lookup import RunView
from ood_lab.schema.image_columns import AXES, Axis

#: Template of the notes.
WORDS = "detection/words.j2"
#: Detectors of each kind that a short table has.
_OF_EACH = 2
_ALL = "all"


def main_table(view: RunView) -> Table:
    """Detectors × OOD sets: AUROC and FPR95 of each, their means, DAD."""
    shown, first = view.headlines, view.detectors[0]
    columns = [names_column("detector", view.detectors)]
    if any(map(view.reads, view.detectors)):
        reads = [name_cell(view.reads(d)) for d in view.detectors]
        columns.append(Column(Head("reads", "ascending", page_only=True), reads))
    names = len(columns)
    for ood in view.sets:
        n = f"n {view.get('auroc', first, ood).n_ood:,}"
        columns += _columns(view, Group(view.marked(ood), n), shown, ood)
    for of in view.shown_means:
        columns += _columns(view, Group(f"{of} mean"), [f"mean_{of}_{m}" for m in shown])
    if len(view.sets) > 1:
        columns += _columns(view, Group("mean"), [f"mean_{m}" for m in shown])
    for kind, words in view.dads.items():
        dads = [_cell(view.get(kind, d), "{:.0f}".format) for d in view.detectors]
        columns.append(Column(Head("DAD", note=words), dads))
    titles = " and ".join(metric_of(m).title for m in shown)
    order = f", OOD sets {view.order}" if view.order else ""
    parts = {t: [view.detectors.index(d) for d in names] for t, names in view.sections}
    return table_of(
        f"{titles} in %{order}",
        columns,
        names=names,
        notes=_notes(view),
        sections=parts if len(parts) > 1 else {},
    )


def brief_table(table: Table, view: RunView) -> Table:
    """The rows that matter: the best two of each kind, those of the verdict, the baseline."""
    names = {BASELINE, *(name for _, of in view.sections for name in of[:_OF_EACH])}
    names |= {*view.verdict.best, view.verdict.named or ""}
    kept = [place for place, row in enumerate(table.rows) if row[0].text in names]
    sections = {t: [kept.index(p) for p in of if p in kept] for t, of in table.sections.items()}
    note = (
        f"{len(kept)} of {len(table.rows)} detectors: the set of the best, the first {_OF_EACH} of "
        f"each kind, and {BASELINE}; detector_table=all prints all of them."
    )
    # Tables by level stand below the first, which has it.
    notes = [note, *table.notes] if table.groups else table.notes
    rows = [table.rows[place] for place in kept]
    return replace(table, rows=rows, sections=sections, notes=notes)


def _columns(
    view: RunView, group: Group, metrics: Sequence[str], ood: str | None = None, mark: bool = True
) -> list[Column]:
    """Columns of metrics, with the marks of their best."""
    columns = []
    for metric in metrics:
        best = view.best(metric, ood) if mark else ()
        cells = [_cell(view.get(metric, d, ood), best=d in best) for d in view.detectors]
        columns.append(Column(metric_head(metric, group), cells))
    return columns


def _cell(estimate: Estimate, show: NumberFormat = percent, best: bool = False) -> Cell:
    return number_cell(estimate.value, estimate.low, estimate.high, show, best)


def _notes(view: RunView) -> list[str]:
    widths = []
    for metric in view.headlines:
        estimates = [view.get(metric, d, s) for d in view.detectors for s in view.sets]
        median = pd.Series([estimate.half_width for estimate in estimates]).median()
        widths += [(metric_of(metric).title, median)] if median > 0 else []
    star = star_sentence(bool(view.tests))
    return [*sentences(WORDS, "main", view, star, widths), *view.interval_notes]


def level_tables(view: RunView) -> dict[str, list[Table]]:
    """Title of a set and axis → every metric by level, with its correlation and sensitivity."""
    return {
        f"By {axis} level ({view.marked(ood)})": [
            _level_table(view, ood, axis, levels, metric) for metric in view.level_metrics
        ]
        for ood in view.level_sets
        for axis in AXES
        if (levels := view.levels(ood, axis))
    }


def level_menu(title: str, tables: Sequence[Table]) -> Folded:
    """The tables of a set and axis, of which a page shows one metric; a terminal has the first."""
    options = [
        Folded(table.caption.partition(" in %")[0], [table], page_only=place > 0)
        for place, table in enumerate(tables)
    ]
    return Folded(title, [Menu("Metric", options)])


def _level_table(
    view: RunView, ood: str, axis: Axis, levels: Sequence[float], metric: str
) -> Table:
    n = [view.get(metric, view.detectors[0], ood, **{axis: x}).n_ood for x in levels]
    heads = [Head("detector", "ascending")]
    heads += [Head(f"{x:g}", note=f"n {k:,}") for x, k in zip(levels, n, strict=True)]
    heads += [Head("corr."), Head("points", note="per level")]
    rows, estimates = [], []
    for d in view.detectors:
        of_levels = [view.get(metric, d, ood, **{axis: level}) for level in levels]
        estimates += of_levels
        correlation = view.get(f"correlation_{axis}_{metric}", d, ood)
        sensitivity = view.get(f"sensitivity_{axis}_{metric}", d, ood)
        trend = [_cell(correlation, "{:+.2f}".format), _cell(sensitivity)]
        rows.append([name_cell(d), *map(_cell, of_levels), *trend])
    caption = f"{metric_of(metric).title} in % by {axis} level ({view.marked(ood)})"
    return Table(caption, heads, rows, notes=_few(metric, estimates))


def _few(metric: str, means: Sequence[Estimate]) -> list[str]:
    """Why means of AUPR over small cells have no interval, where they have none."""
    record = metric_of(metric)
    bare = any(not (mean.has_interval or math.isnan(mean.value)) for mean in means)
    warning = (
        f"means over cells of fewer than {FEWEST} images have no interval: the bootstrap fails"
    )
    aupr = record.rule == "percentile" and metric != "fpr95"
    return [f"{record.title}: {warning} there."] if bare and aupr else []


def larger_table(view: RunView, ood: str) -> Table | None:
    """All of a set and its larger semantic shift, as one set and as means over cells (table 8)."""
    parts = {
        "all_images": "all images",
        "larger_semantic_images": "images of the larger shift",
        "all_cells": "mean over all cells",
        "larger_semantic": "mean over cells of the larger shift",
    }
    first = {part: view.get(f"{part}_auroc", view.detectors[0], ood) for part in parts}
    shown, metrics = [part for part in parts if first[part].n_id], view.level_metrics
    if not shown:
        return None
    columns = [names_column("detector", view.detectors)]
    for part in shown:
        group = Group(parts[part], f"n {first[part].n_ood:,}")
        columns += _columns(view, group, [f"{part}_{m}" for m in metrics], ood, mark=False)
    notes = ["Larger: from level metrics.larger_semantic_from, else the upper half of the levels."]
    for metric in metrics:
        notes += _few(metric, [view.get(f"all_cells_{metric}", view.detectors[0], ood)])
    title = f"All against larger semantic shift in % ({view.marked(ood)})"
    return table_of(title, columns, notes=notes)


def all_metrics(view: RunView) -> Table:
    """One row per detector and OOD set with every metric the results hold, both FPR95."""
    named = {"fpr95_ood_positive", "fpr95_id_positive"} <= set(view.set_metrics)
    metrics = [m for m in view.set_metrics if m != "fpr95" or not named]
    heads = [Head("detector", "ascending"), Head("OOD set", "ascending"), Head("n")]
    rows = []
    for detector in view.detectors:
        for place, ood in enumerate(view.sets):
            cells = [view.get(metric, detector, ood) for metric in metrics]
            # Sets are sorted by their place in the shift order, not by name.
            start = [name_cell(detector), name_cell(view.marked(ood), place)]
            rows.append([*start, count_cell(cells[0].n_ood), *map(_cell, cells)])
    return Table("All metrics in %", [*heads, *map(metric_head, metrics)], rows, names=2)


def hierarchy_tables(hierarchy: pd.DataFrame) -> list[Table]:
    """Overall accuracy of each level, then the recall of the labels of each level, finest first."""
    rows = hierarchy[hierarchy["metric"] == "accuracy"]
    tables = [_hierarchy_table("Overall accuracy (micro) in %", rows, "level", "label_level")]
    recalls = hierarchy[hierarchy["metric"] == "recall"]
    for level in hierarchy["label_level"].unique()[::-1]:
        rows = recalls[recalls["label_level"] == level]
        tables.append(_hierarchy_table(f"Recall in %, {level}", rows, level, "name"))
    return tables


def _hierarchy_table(caption: str, rows: pd.DataFrame, head: str, key: str) -> Table:
    """The names in ``key``, and a value and n of each of them in every subset."""
    names, (metric,) = rows[key].unique(), rows["metric"].unique()
    silent = metric == "recall" and set(rows["subset"]) == {_ALL}
    cells = {}
    for row in rows.to_dict("records"):
        group = Group("" if silent else row["subset"])
        cells[row[key], Head(metric, group=group)] = estimate_cell(row)
        cells[row[key], Head("n", group=group)] = count_cell(row["n"])
    if metric == "accuracy":
        head_by = Head("predicted by", "ascending")
        for level, source in zip(rows[key], rows["source"], strict=True):
            cells[level, head_by] = name_cell(source)
    return pivoted(caption, [names_column(head, names, ordered=True)], names, cells, missing="")
