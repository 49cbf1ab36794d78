"""What a page shows of distances: pictures, a map of the sets, and what one detector misses."""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial
from typing import Any

import numpy as np
import pandas as pd
from matplotlib.figure import Figure

from ood_lab.common.english import ordinal
from ood_lab.metrics import BASELINE, KEPT, MissDistances, miss_rates, missed, wilson_interval
from ood_lab.report.figures.densities import draw_densities, limits_of
from ood_lab.report.figures.layout import add_legend, panels
from ood_lab.report.figures.lines import Line, draw_lines
from ood_lab.report.figures.scatter import styles_of
from ood_lab.report.figures.style import COLOURS, GREY, style
from ood_lab.report.rendering.blocks import (
    Block,
    Folded,
    Pictures,
    PlannedFigure,
    Section,
    Text,
)
from ood_lab.report.rendering.prose import sentences
from ood_lab.report.rendering.table import (
    Group,
    Head,
    Table,
    names_column,
    number_cell,
    pivoted,
)
from ood_lab.report.rendering.thumbnails import Thumbnails
from ood_lab.report.shift.cause_panels import cause_blocks
from ood_lab.report.shift.shift_figures import (
    ShiftInputs,
    build_shift_figures,
    draw_ruler,
    label_of,
)
from ood_lab.report.shift.shift_sentences import WORDS
from ood_lab.report.shift.shift_tables import summary_tables
from ood_lab.schema.image_columns import AXES
from ood_lab.schema.results import ID_TEST, Names, Tables

_ENDS = ("nearest", "median", "farthest")
_DRAWN = 3000
#: Curves in colour.
_COLOURED = 5


@dataclass(frozen=True)
class MeasuredDistances:
    """Shift of the images from ID.

    Attributes:
        degrees: one row per image: ``dataset, index`` and the columns of ``axes``.
        summary: see :func:`ood_lab.report.shift.shift_tables.summary_tables`.
        axes: column of ``degrees`` → its words.
        detector: whose misses are looked at; None = nobody's.
        facts: ``by``, ``k`` and ``rulers``; ``unsplit`` where nothing separates the two shifts.
        misses: how well the distances predict the misses, by detector and axis.
        compared: all detectors, the best first, whose misses are shown for comparison.
        causes: what tells each dataset from ID test, see :func:`ood_lab.metrics.causes_of`.
        images: statistics of every image, which the causes rest on.
    """

    degrees: pd.DataFrame
    summary: pd.DataFrame
    axes: Names
    detector: str | None
    facts: Mapping[str, Any]
    misses: Mapping[tuple[str, str], MissDistances | None]
    compared: Sequence[str] = ()
    causes: pd.DataFrame = field(default_factory=pd.DataFrame)
    images: pd.DataFrame = field(default_factory=pd.DataFrame)

    @property
    def footer(self) -> str:
        """How it was measured."""
        k, by = self.facts["k"], self.facts["by"]
        more = " Covariate: image statistics, see What differs." if self.facts["unsplit"] else ""
        return f"Cosine distance to the {ordinal(k)} nearest ID image, features of {by}.{more}"


def sections_of(
    measured: MeasuredDistances, scores: pd.DataFrame, store: Thumbnails
) -> tuple[PlannedFigure, list[Section], list[Section]]:
    """The map of the datasets, what is above the results, and what is below them."""
    below: list[Section] = []
    if measured.facts["unsplit"]:
        shift_map = PlannedFigure(
            "distance",
            "Distance from ID",
            "The further right a line is of the grey ID test images, the larger the shift.",
            partial(distance_densities, measured),
        )
    else:
        inputs = ShiftInputs(
            measured.degrees, measured.summary, measured.footer, measured.facts["rulers"]
        )
        shift_map, *figures = build_shift_figures(inputs)
        tables: list[Block] = [Folded(t.caption, [t]) for t in summary_tables(measured.summary)]
        below = [Section("Distances", [*tables, *figures])]
    words = next(iter(measured.axes.values()))
    compared: list[Block] = [Text(f"Ordered by distance {words}."), *_pictures(measured, store)]
    missed = list(_misses(measured, scores))
    above = [Section("Example images", compared), Section("Missed images by shift", missed)]
    if len(measured.causes):
        differences = list(cause_blocks(measured.causes, measured.images, store))
        above.insert(0, Section("What differs", differences))
    return shift_map, above, below


def _pictures(measured: MeasuredDistances, store: Thumbnails) -> Iterator[Pictures]:
    """Some ID test images, and of every set the nearest, the median and the farthest."""
    (axis, *_) = measured.axes
    for name, rows in measured.degrees.groupby("dataset", sort=False):
        ordered = rows.sort_values(axis, ignore_index=True)
        items = store.examples(ordered, _ENDS, lambda row: f"{row[axis]:.3f}")
        yield Pictures(items, label_of(str(name)), few=True)


def _misses(measured: MeasuredDistances, scores: pd.DataFrame) -> Iterator[Block]:
    """What the detectors miss, by distance."""
    if measured.detector is None:
        return
    names = [measured.detector, *(n for n in measured.compared if n != measured.detector)]
    distances = {
        (name, axis): measured.misses[name, axis] for name in names for axis in measured.axes
    }
    rows = {name: missed(measured.degrees, scores, name) for name in names}
    for axis, words in measured.axes.items():
        follows = distances[measured.detector, axis]
        yield from map(
            Text, sentences(WORDS, "misses", follows, measured.detector, words, BASELINE)
        )
    if not any(distances.values()):
        return
    yield PlannedFigure(
        "misses",
        "Does the distance predict who misses what?",
        f"Share of OOD images that score below {KEPT:.0%} of ID test, by distance: points are of "
        f"{measured.detector}, with their 95% intervals; lines are the best curves that fall.",
        partial(miss_curves, rows, measured),
    )
    table = follow_table(distances, measured.axes)
    yield Folded(table.caption, [table])
    if not measured.facts["unsplit"]:
        yield PlannedFigure(
            "miss_map",
            f"What {measured.detector} misses",
            f"OOD images that score below {KEPT:.0%} of ID test are missed.",
            partial(miss_map, rows[measured.detector], measured),
        )


def follow_table(distances: Mapping[tuple[str, str], MissDistances | None], axes: Names) -> Table:
    """How well each distance predicts the misses of each detector."""
    parts = {"nearer": "nearer is missed", "beyond": f"beyond {BASELINE}", "explained": "R²"}
    names = list(dict.fromkeys(name for name, _ in distances))
    cells = {}
    for (name, axis), measures in distances.items():
        for part, head in parts.items():
            if measures and (of := vars(measures)[part]):
                cell = number_cell(of.value, of.low, of.high)
            else:
                cell = number_cell(math.nan)
            cells[name, Head(head, group=Group(axes[axis]))] = cell
    notes = [
        "Nearer is missed: share of the pairs of a missed and a detected OOD image in which the "
        "missed one is nearer; 50% = the distance says nothing.",
        f"Beyond {BASELINE}: the same among images that {BASELINE} scores alike (tenths).",
        "R²: of a falling curve for the miss rates of ten levels of distance, each half of the "
        "images predicted from the other; 0 = no better than their mean.",
    ]
    caption = "Does the measured distance predict the misses? (%)"
    return pivoted(caption, [names_column("detector", names)], names, cells, notes=notes)


def miss_curves(rows: Tables, measured: MeasuredDistances) -> Figure:
    """A panel per axis: miss rates by level of distance, with falling curves through them."""
    figure, grid = panels(
        list(measured.axes.values()),
        f"{measured.footer} Levels hold equally many images.",
        height=2.3,
        extra=0.5,
        columns=2,
        labels=("distance", "missed (%)"),
        sharey=True,
    )
    for axes, axis in zip(grid, measured.axes, strict=True):
        lines = []
        for place, (name, part) in enumerate(rows.items()):
            far, n, rates, falling = miss_rates(
                part[axis].to_numpy(np.float64), part["missed"].to_numpy()
            )
            highlighted = place < _COLOURED
            look = style(place)._replace(marker="") if highlighted else None
            label = name if highlighted else f"{len(rows) - _COLOURED} others"
            lines.append(Line(far, 100 * falling, look, label))
            if not place:
                ends = np.array(list(map(wilson_interval, rates, n)))
                spread = np.abs(100 * (ends.T - rates))
                colour = style(0).color
                axes.errorbar(far, 100 * rates, spread, fmt="o", ms=3, lw=0.7, color=colour)
        draw_lines(axes, lines)
        axes.set_ylim(bottom=-2)
    add_legend(figure, grid)
    return figure


def miss_map(rows: pd.DataFrame, measured: MeasuredDistances) -> Figure:
    """OOD images in the plane of both distances, coloured by whether they are missed."""
    note = f"{measured.footer} {int(rows['missed'].sum()):,} of {len(rows):,} are missed."
    labels = tuple(f"{axis} shift" for axis in AXES)
    figure, (axes,) = panels([""], note, height=4.2, extra=0.4, labels=(labels[0], labels[1]))
    shown = rows.sample(min(len(rows), _DRAWN), random_state=0)
    looks = (
        (False, "noticed", GREY),
        (True, "missed", COLOURS[1]),
    )
    for is_missed, label, colour in looks:
        part = shown[shown["missed"] == is_missed]
        axes.scatter(
            part["semantic"],
            part["covariate"],
            s=9 if is_missed else 6,
            color=colour,
            lw=0,
            alpha=0.8 if is_missed else 0.4,
            label=label,
            rasterized=True,
        )
    add_legend(figure, [axes])
    return figure


def distance_densities(measured: MeasuredDistances) -> Figure:
    """The density of every set along each distance."""
    titles = [f"distance {words}" for words in measured.axes.values()]
    labels = ("distance", "density")
    figure, grid = panels(titles, measured.footer, height=3.0, extra=0.6, columns=1, labels=labels)
    for axes, axis in zip(grid, measured.axes, strict=True):
        values = {
            str(name): rows[axis].to_numpy(np.float64)
            for name, rows in measured.degrees.groupby("dataset", sort=False)
        }
        names = {name: label_of(name) for name in values}
        limits = limits_of(list(values.values()))
        styles = styles_of(list(values), ID_TEST)
        draw_densities(axes, values, styles, limits, labels=names, filled=ID_TEST)
        for ruler in measured.facts["rulers"]:
            if ruler["axis"] == axis:
                draw_ruler(axes, ruler, upright=False)
                axes.set_title(axes.get_title(), fontsize=7, pad=26)  # above the second scale
    add_legend(figure, grid)
    return figure
