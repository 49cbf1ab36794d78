"""The figures of a run of detectors, by shift level and of its hierarchy."""

from __future__ import annotations

import math
from collections.abc import Iterator
from functools import partial

import numpy as np
from matplotlib.figure import Figure

from ood_lab.common.english import listed
from ood_lab.metrics import BASELINE, metric_of
from ood_lab.metrics.record import FPR95
from ood_lab.metrics.resampling.intervals import Estimate
from ood_lab.report.detection.class_figures import confusion
from ood_lab.report.detection.figure_inputs import FigureInputs
from ood_lab.report.detection.score_figures import (
    densities,
    fpr95_bars,
    roc,
)
from ood_lab.report.figures.heatmap import cell_panels, shades
from ood_lab.report.figures.layout import COLOURS, ID_COLOUR, Style, panels
from ood_lab.report.figures.lines import level_lines
from ood_lab.report.figures.scatter import component_labels, components_of, draw_clouds
from ood_lab.report.rendering.blocks import Block, Folded, Menu, PlannedFigure, Text
from ood_lab.report.rendering.metric_definitions import MISSING, star_sentence
from ood_lab.report.rendering.table import (
    Cell,
    Group,
    Head,
    Table,
    count_cell,
    name_cell,
    number_cell,
)
from ood_lab.report.results_lookup import RunView
from ood_lab.schema.image_columns import LEVELS
from ood_lab.schema.results import ID_TEST

_MAX_POINTS = 400


def planned_figures(inputs: FigureInputs) -> Iterator[PlannedFigure]:
    """What can be drawn of all levels together, in reading order."""
    view = inputs.view
    if view.sets:
        yield PlannedFigure(
            "densities",
            "Score densities",
            "The further right of the grey ID test set a line is, the better.",
            partial(densities, inputs),
        )
        star = star_sentence(bool(view.tests)).replace("* =", "Orange:")
        best = f" {star}" if any(view.best("fpr95", ood) for ood in view.sets) else ""
        order = f", {view.order}" if view.order else ""
        caption = f"FPR95 of every detector on every OOD set{order}.{best}"
        yield PlannedFigure("fpr95_bars", "FPR95", caption, partial(fpr95_bars, inputs))
        rest = len(view.detectors) - len(inputs.highlighted)
        grey = f"; in grey the {rest} with the lowest mean AUROC" if rest else ""
        yield PlannedFigure("roc", "ROC", f"One panel per OOD set{grey}.", partial(roc, inputs))
    yield PlannedFigure(
        "features",
        "Features",
        "Principal components of the features of all sets together.",
        partial(feature_scatter, inputs),
    )
    yield PlannedFigure(
        "confusion", "ID classes", "Classification of the ID test set.", partial(confusion, inputs)
    )


def level_figures(inputs: FigureInputs, ood: str) -> Iterator[PlannedFigure]:
    """By level of shift of a set: curves, then maps of all detectors, which a page links to."""
    titles = [metric_of(name).title for name in inputs.view.level_metrics]
    yield PlannedFigure(
        f"levels_{ood}",
        f"By level of shift: {ood}",
        f"{listed(titles)} of every level, along each axis of shift.",
        partial(levels, inputs, ood),
    )
    for metric, title in zip(inputs.view.level_metrics, titles, strict=True):
        yield PlannedFigure(
            f"heatmap_{ood}" if metric == "auroc" else f"heatmap_{ood}_{metric}",
            f"{title} of all detectors",
            f"{title} of every cell, one panel per detector.",
            partial(heatmap, inputs, ood, metric),
            linked=True,
        )


def levels(inputs: FigureInputs, ood: str) -> Figure | None:
    """One line per detector with its 95% band; None where no axis has two levels."""
    rows = inputs.view.table
    rows = rows[rows["dataset"] == ood]
    # With few images FPR95 has no upper end: such a band would cover the panel, and say nothing.
    open_ended = (rows["metric"] == "fpr95") & (rows["ci_high"] >= 1)
    rows = rows.assign(**{name: rows[name].mask(open_ended) for name in ("ci_low", "ci_high")})
    bands = (
        "Bands: 95% intervals, where they have two ends." if rows["ci_low"].notna().any() else ""
    )
    return level_lines(
        rows,
        {name: metric_of(name).title for name in inputs.view.level_metrics},
        {name: name for name in inputs.view.detectors},
        inputs.footer(bands, "A level is the mean over the levels of the other axis.", fpr95=True),
        by="detector",
        highlighted=inputs.highlighted,
    )


def heatmap(inputs: FigureInputs, ood: str, metric: str) -> Figure | None:
    """A panel per detector and one of the number of images; None without a grid, or values."""
    rows = inputs.view.table
    rows = rows[(rows["dataset"] == ood) & (rows["metric"] == metric)]
    rows = rows[rows[list(LEVELS)].notna().all(axis=1)]
    few = f"{MISSING} where the OOD images are too few." if rows["value"].isna().any() else ""
    maps = {name: rows[rows["detector"] == name] for name in inputs.panels}
    record = metric_of(metric)
    # Light is good, whichever direction that is.
    name = "cividis_r" if record.better == "lower" else "cividis"
    colours, scale = shades(100 * lowest(metric), 100, name), f"{record.title} in % ({ood})"
    counted = "number of OOD images"
    best = ""
    if len(maps) < (count := len(inputs.view.detectors)):
        also = f", and {BASELINE}" if BASELINE in maps else ""
        best = f"Of {count} detectors: those with the highest mean AUROC{also}."
    footer = inputs.footer(best, few, fpr95=metric == FPR95.name)
    return cell_panels(maps, "n_ood", footer, colours, scale, counted)


def feature_scatter(inputs: FigureInputs) -> Figure | None:
    """One panel per OOD set over the ID test set; None without features of both."""
    test = ID_TEST
    sets = [name for name in inputs.view.sets if name in inputs.features]
    if not sets or test not in inputs.features:
        return None
    rng = np.random.default_rng(0)
    parts = {name: np.asarray(inputs.features[name]) for name in [test, *sets]}
    clouds, shares = components_of(
        {n: rows[np.sort(rng.permutation(len(rows))[:_MAX_POINTS])] for n, rows in parts.items()}
    )
    figure, grid = panels(
        sets,
        inputs.footer(
            "Grey: ID test. Lines hold the middle half of a set, large marks are means. "
            f"Up to {_MAX_POINTS} images of each set."
        ),
        height=2.0 if len(sets) > 1 else 3.4,
        columns=2 if len(sets) in (2, 4) else 3,
        extra=0.7,
        labels=component_labels(shares),
        sharex=True,
        sharey=True,
    )
    for axes, name in zip(grid, sets, strict=True):
        looks = {test: Style(ID_COLOUR, "-", "o"), name: Style(COLOURS[1], "-", "s")}
        draw_clouds(axes, {n: clouds[n] for n in looks}, looks, units=False)
    return figure


#: AUROC of a coin, the dark end of its colours.
_CHANCE = 0.5
#: Semantic and covariate.
_COVARIATE = Group("covariate level")
_Levels = tuple[list[float], list[float]]


def lowest(metric: str) -> float:
    """The value at the end of the colours of a metric: chance, where it is one number."""
    return _CHANCE if metric == "auroc" else 0.0


def level_blocks(inputs: FigureInputs, first: str | None) -> list[Block]:
    """Curves and fields of every OOD set with levels; those after the first set are folded.

    Args:
        inputs: of the figures.
        first: the detector that a menu shows first; None = the best.
    """
    shown: list[Block] = []
    for name in inputs.view.level_sets:
        blocks = list(_of_set(inputs, name, first))
        shown += [Folded(f"The levels of {name}", blocks)] if shown else blocks
    return shown


def _of_set(inputs: FigureInputs, ood: str, first: str | None) -> Iterator[Block]:
    view, (curves, *maps) = inputs.view, level_figures(inputs, ood)
    yield curves
    semantic, covariate = levels = view.cell_levels(ood)
    if min(len(semantic), len(covariate)) < 2:
        return
    yield Text(
        f"The field of one detector: a cell compares the images of {ood} of one semantic and one "
        "covariate level with all of ID test. Light cells are detected well, dark cells are "
        "not; N/A = too few images."
    )
    names = sorted(view.detectors, key=lambda name: name != first)
    options = [
        Folded(name, [_grid(view, metric, name, ood, levels) for metric in view.level_metrics])
        for name in names
    ]
    counts = _grid(view, "auroc", names[0], ood, levels, counts=True)
    yield Menu("Detector", [*options, Folded("number of images", [counts])])
    yield from maps


def _grid(
    view: RunView, metric: str, detector: str, ood: str, levels: _Levels, counts: bool = False
) -> Table:
    """Semantic × covariate levels, in their order."""
    semantic, covariate = levels
    rows = []
    for s in semantic:
        estimates = [view.get(metric, detector, ood, s, c) for c in covariate]
        cells = [count_cell(e.n_ood) if counts else _shaded(metric, e) for e in estimates]
        rows.append([name_cell(f"{s:g}"), *cells])
    title = f"{metric_of(metric).title} of {detector} in %"
    heads = [Head("semantic level"), *(Head(f"{c:g}", group=_COVARIATE) for c in covariate)]
    caption = f"Number of images ({ood})" if counts else f"{title} ({ood})"
    return Table(caption, heads, rows, grid=True)


def _shaded(metric: str, estimate: Estimate) -> Cell:
    """A value on its colour: light is good, whichever direction that is."""
    value, low, high, *_ = estimate
    cell = number_cell(value, low, high, lambda share: f"{100 * share:.0f}")
    if math.isnan(value):
        return cell
    good = (value - lowest(metric)) / (1 - lowest(metric))
    good = 1 - good if metric_of(metric).better == "lower" else good
    return Cell(cell.text, interval=cell.interval, shade=min(max(good, 0.0), 1.0))
