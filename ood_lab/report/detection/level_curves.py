"""Detection by shift level: curves, and the field of one chosen detector."""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence

from ood_lab.metrics import metric_of
from ood_lab.metrics.resampling.intervals import Estimate
from ood_lab.report.rendering.blocks import Block, Folded, Menu, PlannedFigure, Text
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

#: AUROC of a coin, the dark end of its colours.
_CHANCE = 0.5
#: Semantic and covariate.
_COVARIATE = Group("covariate level")
_Levels = tuple[list[float], list[float]]


def lowest(metric: str) -> float:
    """The value at the end of the colours of a metric: chance, where it is one number."""
    return _CHANCE if metric == "auroc" else 0.0


def level_blocks(
    view: RunView, figures: Mapping[str, Sequence[PlannedFigure]], first: str | None
) -> list[Block]:
    """Curves and fields of every OOD set with levels; those after the first set are folded.

    Args:
        view: the results.
        figures: by level, of every set.
        first: the detector that a menu shows first; None = the best.
    """
    parts = {name: list(_of_set(view, name, figures[name], first)) for name in view.level_sets}
    all_sets, *levels = [(name, blocks) for name, blocks in parts.items() if blocks] or [("", [])]
    return [*all_sets[1], *(Folded(f"The levels of {name}", blocks) for name, blocks in levels)]


def _of_set(
    view: RunView, ood: str, figures: Sequence[PlannedFigure], first: str | None
) -> Iterator[Block]:
    yield from (figure for figure in figures if not figure.linked)
    semantic, covariate = levels = view.cell_levels(ood)
    if min(len(semantic), len(covariate)) < 2:
        return
    yield Text(
        f"The field of one detector: a cell compares the images of {ood} of one semantic and one "
        "covariate level with all of ID test. Light cells are detected well, dark cells are "
        "not; N/A = too few images."
    )
    names = sorted(view.detectors, key=lambda name: name != first)
    options = [Folded(name, _field(view, name, ood, levels)) for name in names]
    counts = _grid(view, "auroc", names[0], ood, levels, counts=True)
    yield Menu("Detector", [*options, Folded("number of images", [counts])])
    yield from (figure for figure in figures if figure.linked)


def _field(view: RunView, detector: str, ood: str, levels: _Levels) -> list[Block]:
    """The metrics of a detector over the levels."""
    return [_grid(view, metric, detector, ood, levels) for metric in view.level_metrics]


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
    cell = number_cell(estimate.value, estimate.low, estimate.high, "{:.0%}".format)
    if math.isnan(estimate.value):
        return cell
    good = (estimate.value - lowest(metric)) / (1 - lowest(metric))
    good = 1 - good if metric_of(metric).better == "lower" else good
    shown = cell.text.removesuffix("%")
    interval = cell.interval.replace("%", "")
    return Cell(shown, interval=interval, shade=min(max(good, 0.0), 1.0))
