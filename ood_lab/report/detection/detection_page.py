"""What the page and the terminal show of a run that scored detectors."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
from functools import partial
from pathlib import Path

import numpy as np
import pandas as pd

from ood_lab.common.english import counted, listed
from ood_lab.metrics import BASELINE, FEWEST, metric_of
from ood_lab.metrics.record import ID_ACCURACY, ID_MAP
from ood_lab.metrics.resampling.photograph_groups import photographs
from ood_lab.metrics.selective import ACCURACIES, AREAS
from ood_lab.report.detection.hierarchy_tables import hierarchy_notes, hierarchy_tables
from ood_lab.report.detection.level_curves import HIERARCHY, level_blocks, of_section
from ood_lab.report.detection.unusual_images import UNUSUAL_BY, IDImages, unusual_id_images
from ood_lab.report.rendering.blocks import Block, FigureFile, Folded, Menu, Text
from ood_lab.report.rendering.metric_definitions import definitions_of, percent, star_sentence
from ood_lab.report.rendering.misclassified_images import (
    Thumbnails,
    marginal_blocks,
    mistake_blocks,
)
from ood_lab.report.rendering.page import Page, Section
from ood_lab.report.rendering.table import (
    Cell,
    Column,
    Group,
    Head,
    Table,
    count_cell,
    metric_head,
    name_cell,
    number_cell,
    table_of,
)
from ood_lab.report.rendering.thumbnails import LoadImage, Pictures
from ood_lab.report.results_lookup import UNGROUPED, Estimate, RunView
from ood_lab.report.shift.distance_page import Measured, sections_of
from ood_lab.report.verdict import Verdict
from ood_lab.schema.shift_axes import AXES, DEGREES, LEVELS, Axis

#: Detectors of each kind that a short table has.
_OF_EACH = 2


def detection_blocks(view: RunView, every: bool = False) -> list[Block]:
    """What a run shows first: detectors × OOD sets, then levels, and what was skipped.

    Args:
        view: of the run. The first tables have rows for the detectors that its verdict names.
        every: the first tables have a row for every detector, also where these are many.
    """
    blocks: list[Block] = [Text(_headline(view), "title")]
    if view.csid_accuracies:
        blocks.append(Text(_spectrum(view)))
    if view.detectors and view.sets:
        levels = _level_tables(view)
        first = main_table(view)
        brief = len(view.detectors) > UNGROUPED and not every
        blocks.append(_brief(first, view) if brief else first)
        shown = partial(_brief, view=view) if brief else None
        blocks += [_level_menu(title, of, shown) for title, of in levels.items()]
        blocks += [
            Folded(f"All against larger semantic shift ({ood})", [table], page_only=True)
            for ood in view.level_sets
            if (table := _larger_table(view, ood))
        ]
        if brief:
            title = f"All {len(view.detectors)} detectors"
            whole = [_level_menu(title, of) for title, of in levels.items()]
            blocks.append(Folded(title, [first, *whole], page_only=True))
    blocks += [Text(sentence, "note") for sentence in view.left_out]
    blocks += [Text(sentence, "finding") for sentence in view.findings]
    if view.refused:
        reasons = [Text(f"skipped {n}: {reason}", "note") for n, reason in view.refused.items()]
        blocks.append(Folded(f"Skipped detectors: {', '.join(view.refused)}", reasons))
    return blocks


def write_report(
    path: Path | str,
    view: RunView,
    scores: pd.DataFrame,
    *,
    figures: Sequence[FigureFile] = (),
    load_image: LoadImage | None = None,
    classes: Sequence[str] = (),
    downloads: Sequence[str] = (),
    hierarchy: pd.DataFrame | None = None,
    measured: Measured | None = None,
    published: Sequence[Block] = (),
    own: IDImages | None = None,
) -> Path:
    """Writes ``report.html``, with styles, script and images inside.

    Args:
        path: the file to write; replaced as a whole.
        view: of the run. The page begins with its verdict; its findings and warnings are above.
            All of its manifest is shown, nested mappings with dotted keys.
        scores: scores table, higher = more OOD; ID test is ``test``.
        figures: what :func:`ood_lab.report.detection.run_figures.write_figures` returned; embedded.
        load_image: ``(dataset, index)`` → PIL image, encoded bytes or None; without it the
            most confident mistakes are skipped.
        classes: names of the ID classes, position = label.
        downloads: files next to the report, by relative name.
        hierarchy: the hierarchy table, where the ID classes have levels or a category.
        measured: shift of the images, where that is known.
        published: numbers of papers about the same data.
        own: the training images, with their scores by :data:`UNUSUAL_BY`.
    """
    path, verdict = Path(path), view.verdict
    shown = bool(view.detectors and view.sets)
    pictures = Pictures(load_image or (lambda *_: None))
    store, mistakes = Thumbnails(pictures), []
    marginal: list[Block] = []
    if load_image is not None and shown:
        mistakes = mistake_blocks(scores, view.detectors, view.sets, classes, store)
        marginal += marginal_blocks(*_semantic_shift(view, scores, measured), classes, store)
    blocks = detection_blocks(view)
    blocks = [b for b in blocks if not isinstance(b, Text) or b.style != "finding"]  # above
    before: list[Section] = []
    after: list[Section] = []
    shift_map: list[Block] = []
    if measured:
        ranked = replace(measured, others=view.detectors)
        figure, before, after = sections_of(ranked, scores, store)
        shift_map.append(figure)
    named = verdict.named if verdict else None
    if verdict:
        opening = [*verdict.blocks(page=True), *_threshold(verdict, view.manifest.get("threshold"))]
        before.insert(0, Section("Verdict", opening, shift_map))
    levels = Section("Detection by shift level", level_blocks(view, figures, named, path.parent))
    before += [levels] if measured else []
    after += [] if measured else [levels]
    details = [*_failure_tables(view), _all_metrics(view)] if shown else []
    page = Page(
        title=str(view.manifest.get("title", "OOD detection report")),
        sentence=view.fpr95 if shown else "",
        facts=_facts(view, made_remark(scores)),
        before=before,
        summary=[
            *blocks,
            *(Folded(table.caption, [table]) for table in details),
            *_settings_in_force(view),
        ],
        sections=[
            *after,
            Section("Hierarchical classification", _hierarchy(hierarchy, figures)),
            Section("Published numbers of these data", published),
            Section("Figures", [f for f in figures if not of_section(f)]),
            Section("OOD images with the smallest semantic shift", marginal),
            Section("Most confident mistakes", mistakes),
            Section(
                "Unusual ones among your ID images",
                [unusual_id_images(own, UNUSUAL_BY, store, "train")] if own else [],
            ),
        ],
        thumbnails=store.uris,
        definitions=definitions_of(view.table),
        manifest=view.manifest,
        downloads=downloads,
    ).write(path)
    pictures.warn(path.name)
    return page


def _settings_in_force(view: RunView) -> Iterator[Block]:
    """What detectors have chosen themselves."""
    every = view.manifest.get("detectors", {}).items()
    if chosen := [Text(f"{name}: {of['chosen']}") for name, of in every if of.get("chosen")]:
        yield Folded("Settings chosen from the number of ID images", chosen)


def _semantic_shift(
    view: RunView, scores: pd.DataFrame, measured: Measured | None
) -> tuple[pd.DataFrame, pd.Series]:
    """The OOD images, and their measured semantic distance; without one their semantic level."""
    ood = scores[scores["dataset"].isin([*view.sets, *view.level_sets])]
    if measured is not None and "semantic" in measured.degrees:
        degrees = measured.degrees[["dataset", "index", "semantic"]]
        ood = ood.merge(degrees, "left", on=["dataset", "index"])
        return ood, ood["semantic"]
    if DEGREES[0] in ood:
        return ood, ood[DEGREES[0]]
    levels = ood.reindex(columns=[LEVELS[0]])[LEVELS[0]].astype("float64")
    return ood, levels.where(levels >= 0)


def _threshold(verdict: Verdict, threshold: float | None) -> Iterator[Block]:
    """What a score of the recommended detector means on new images."""
    if threshold is not None:
        yield Text(
            f"{verdict.recommended} flags an image that scores above {threshold:.4g} (alpha 0.05): "
            "at most 5% of ID images score as high, by the ID validation images."
        )


def _hierarchy(hierarchy: pd.DataFrame | None, figures: Sequence[FigureFile]) -> list[Block]:
    if hierarchy is None:
        return []
    notes = [Text(note) for note in hierarchy_notes(hierarchy)]
    return [*notes, *hierarchy_tables(hierarchy), *(f for f in figures if f.png.stem == HIERARCHY)]


def _headline(view: RunView) -> str:
    """What was run, accuracy and n."""
    parts = [str(view.manifest["title"])] if "title" in view.manifest else []
    for metric in (ID_ACCURACY, ID_MAP):
        found = view.get(metric.name, None)
        if not math.isnan(found.value):
            ends = f" [{percent(found.low)}, {percent(found.high)}]"
            parts.append(f"{metric.title} {percent(found.value)}%{ends * found.has_interval}")
    return " · ".join([*parts, f"{view.marked('test', 'ID test')} n = {view.n_id:,}"])


def _spectrum(view: RunView) -> str:
    """Accuracy on the sets with shifted covariates, and its distance to that on ID test."""
    own = view.get("id_accuracy", None).value
    parts = [
        f"{view.marked(name)} {percent(found.value)}% ({100 * (found.value - own):+.1f})"
        for name, found in view.csid_accuracies
    ]
    return f"ID accuracy under shifted covariates: {', '.join(parts)}"


def made_remark(scores: pd.DataFrame) -> str:
    """Of how few photographs the images of some sets are made; empty where of as many."""
    parts = []
    for name, rows in scores.groupby("dataset", sort=False):
        made_of = photographs(rows)
        if made_of is not None and (n := len(set(made_of))) < len(rows):
            parts.append(f"; {name}: {len(rows):,} copies of {counted(n, 'photograph')}")
    return "".join(parts)


def _facts(view: RunView, made: str = "") -> list[tuple[str, str, str]]:
    """Name, value and remark of the numbers at the top of the page.

    ``made``: see :func:`made_remark`.
    """
    facts, verdict = [], view.verdict
    accuracy = view.get("id_accuracy", None)
    for metric in (ID_ACCURACY, ID_MAP):
        of_head = view.get(metric.name, None)
        if not math.isnan(of_head.value):
            ends = f"95% interval {percent(of_head.low)} to {percent(of_head.high)}"
            remark = ends if of_head.has_interval else ""
            facts.append((metric.title, f"{percent(of_head.value)}%", remark))
    for name, found in view.csid_accuracies:
        drop = f"{100 * (found.value - accuracy.value):+.1f} points, {found.n_id:,} images"
        facts.append((f"ID accuracy, {view.marked(name)}", f"{percent(found.value)}%", drop))
    if view.detectors and view.sets:
        best = (verdict and verdict.named) or view.detectors[0]
        means = {m: f"{percent(view.mean(m, best).value)}%" for m in view.headlines}
        mean = "mean " if len(view.sets) > 1 else ""
        title = f"Highest {mean}AUROC" if len(view.detectors) > 1 else "Detector"
        title = "Recommended detector" if verdict and verdict.recommended else title
        told = ", ".join(f"{mean}{metric_of(m).title} {value}" for m, value in means.items())
        left = f" (of {counted(verdict.n_counted, 'dataset')})" if verdict and verdict.left else ""
        facts.append((title, best, told + left))
        n_ood = sum(view.get("auroc", best, ood).n_ood for ood in view.sets)
        order = f", {view.order}" if view.order else ""
        levelled = [name for name in view.level_sets if name not in view.sets]
        others = f"; {listed(levelled)} by level" if levelled else ""
        remark = f"{counted(n_ood, 'image')}{order}{others}{made}"
        facts.append(("OOD datasets", str(len(view.sets)), remark))
    n = len(view.detectors)
    scored = f"{n} detector{'s' * (n > 1)}" if n else ""
    facts.append((f"{view.marked('test', 'ID test')} images", f"{view.n_id:,}", scored))
    return facts


# Tables


def main_table(view: RunView) -> Table:
    """Detectors × OOD sets: AUROC and FPR95 of each, their means, DAD."""
    shown, first = view.headlines, view.detectors[0]
    columns = [Column(Head("detector", "ascending"), [*map(name_cell, view.detectors)])]
    if any(map(view.reads, view.detectors)):
        reads = [name_cell(view.reads(d)) for d in view.detectors]
        columns.append(Column(Head("reads", "ascending", page_only=True), reads))
    names = len(columns)
    for ood in view.sets:
        n = f"n {view.get('auroc', first, ood).n_ood:,}"
        columns += _columns(view, Group(view.marked(ood), n), shown, ood)
    for of in view.groups:
        columns += _columns(view, Group(f"{of} mean"), [f"mean_{of}_{m}" for m in shown])
    if len(view.sets) > 1:
        columns += _columns(view, Group("mean"), [f"mean_{m}" for m in shown])
    for kind, words in view.dads.items():
        dads = [_cell(view.get(kind, d), "{:.0f}".format) for d in view.detectors]
        columns.append(Column(Head("DAD", note=words), dads, Group()))
    titles = " and ".join(metric_of(m).title for m in shown)
    order = f", OOD sets {view.order}" if view.order else ""
    parts = {t: [view.detectors.index(d) for d in names] for t, names in view.sections}
    return table_of(
        f"{titles} in %{order}",
        columns,
        names=names,
        notes=_notes(view),
        sections=parts if len(parts) > 1 else {},
        each=f"{{}} in %{order}",
    )


def _brief(table: Table, view: RunView) -> Table:
    """The rows that matter: the best two of each kind, those of the verdict, the baseline."""
    names = {BASELINE, *(name for _, of in view.sections for name in of[:_OF_EACH])}
    names |= {*view.verdict.best, view.verdict.named or ""} if view.verdict else set()
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
        found = {d: view.get(metric, d, ood) for d in view.detectors}
        values = {d: estimate.value for d, estimate in found.items()}
        best = view.best(metric, ood, values) if mark else ()
        cells = [_cell(estimate, best=d in best) for d, estimate in found.items()]
        columns.append(Column(metric_head(metric), cells, group))
    return columns


def _cell(estimate: Estimate, show: Callable[[float], str] = percent, best: bool = False) -> Cell:
    return number_cell(estimate.value, estimate.low, estimate.high, show, best)


def _notes(view: RunView) -> list[str]:
    notes = [f"{view.fpr95}."]
    if view.has_marks:
        notes.append(f"Sorted by mean AUROC. {star_sentence(view.has_significance)}")
    elif len(view.detectors) > 1:
        notes.append("Sorted by mean AUROC. None is marked as best: see the warning.")
    if view.most_dad:
        notes.append("DAD = pairs of sets in which the larger shift has the lower FPR95.")
    halves = [
        f"{metric_of(m).title} ±{100 * h:.1f}" for m in view.headlines if (h := _half(view, m))
    ]
    if halves:
        notes.append(f"95% intervals of one number each: {', '.join(halves)} points (median).")
    return [*notes, *view.interval_notes]


def _half(view: RunView, metric: str) -> float:
    cells = [view.get(metric, d, s).half_width for d in view.detectors for s in view.sets]
    known = [h for h in cells if not math.isnan(h)]
    return float(np.median(known)) if known else 0.0


def _level_tables(view: RunView) -> dict[str, list[Table]]:
    """Title of a set and axis → every metric by level, with its correlation and sensitivity."""
    return {
        f"By {axis} level ({view.marked(ood)})": [
            _level_table(view, ood, axis, levels, metric) for metric in view.level_metrics
        ]
        for ood in view.level_sets
        for axis in AXES
        if (levels := view.levels(ood, axis))
    }


def _level_menu(
    title: str, tables: Sequence[Table], shown: Callable[[Table], Table] | None = None
) -> Folded:
    """The tables of a set and axis, of which a page shows one metric; a terminal has the first."""
    options = []
    for table in tables:
        blocks = [shown(table) if shown else table]
        name = table.caption.partition(" in %")[0]
        options.append(Folded(name, blocks, page_only=table is not tables[0]))
    return Folded(title, [Menu("Metric", options)])


def _level_table(
    view: RunView, ood: str, axis: Axis, levels: Sequence[float], metric: str
) -> Table:
    n = [view.at_level(metric, view.detectors[0], ood, axis, x).n_ood for x in levels]
    heads = [Head("detector", "ascending")]
    heads += [Head(f"{x:g}", note=f"n {k:,}") for x, k in zip(levels, n, strict=True)]
    heads += [Head("corr."), Head("points", note="per level")]
    rows, found = [], []
    for d in view.detectors:
        found += (known := [view.at_level(metric, d, ood, axis, level) for level in levels])
        cells = [*map(_cell, known)]
        correlation = view.get(f"correlation_{axis}_{metric}", d, ood)
        sensitivity = view.get(f"sensitivity_{axis}_{metric}", d, ood)
        cells.append(_cell(correlation, "{:+.2f}".format))
        cells.append(_cell(sensitivity, lambda v: f"{100 * v:.1f}"))
        rows.append([name_cell(d), *cells])
    caption = f"{metric_of(metric).title} in % by {axis} level ({view.marked(ood)})"
    return Table(caption, heads, rows, notes=_few(metric, found))


def _few(metric: str, means: Sequence[Estimate]) -> list[str]:
    """Why means of AUPR over small cells have no interval, where they have none."""
    record = metric_of(metric)
    bare = any(not (mean.has_interval or math.isnan(mean.value)) for mean in means)
    said = f"means over cells of fewer than {FEWEST} images have no interval: the bootstrap fails"
    aupr = record.rule == "percentile" and metric != "fpr95"
    return [f"{record.title}: {said} there."] if bare and aupr else []


def _larger_table(view: RunView, ood: str) -> Table | None:
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
    columns = [Column(Head("detector", "ascending"), [*map(name_cell, view.detectors)])]
    for part in shown:
        group = Group(parts[part], f"n {first[part].n_ood:,}")
        columns += _columns(view, group, [f"{part}_{m}" for m in metrics], ood, mark=False)
    notes = ["Larger: from level metrics.larger_semantic_from, else the upper half of the levels."]
    for metric in metrics:
        notes += _few(metric, [view.get(f"all_cells_{metric}", view.detectors[0], ood)])
    title = f"All against larger semantic shift in % ({view.marked(ood)})"
    return table_of(title, columns, notes=notes)


def _all_metrics(view: RunView) -> Table:
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


def _failure_tables(view: RunView) -> list[Table]:
    """Of ID errors, and of them with each OOD set; none where there is nothing."""
    places = [p for p in (None, *view.sets) if view.get("aurc", view.detectors[0], p).n_id]
    titles = {
        "Selective classification: areas under risk-coverage curves in %": AREAS,
        "Selective classification: accuracy in % of the images that are kept": ACCURACIES,
    }
    return [_failure_table(view, *each, places) for each in titles.items() if places]


def _failure_table(
    view: RunView, title: str, metrics: Sequence[str], places: Sequence[str | None]
) -> Table:
    columns = [Column(Head("detector", "ascending"), [*map(name_cell, view.detectors)])]
    for place in places:
        first = view.get("aurc", view.detectors[0], place)
        name = "ID errors" if place is None else f"ID + {view.marked(place)}"
        group = Group(name, f"n {first.n_id + first.n_ood:,}")
        columns += _columns(view, group, metrics, place)
    return table_of(title, columns)
