"""What a page shows of distances: pictures, causes, a map of the sets, a detector's misses."""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from functools import partial

import numpy as np
import pandas as pd
from matplotlib.figure import Figure

from ood_lab.common.english import ordinal
from ood_lab.metrics import (
    BASELINE,
    KEPT,
    miss_rates,
    missed,
    named_causes,
    strongest_first,
    wilson_interval,
)
from ood_lab.metrics.miss_distances import Misses
from ood_lab.report.figures.bars import Bar, draw_bars, name_rows
from ood_lab.report.figures.densities import draw_densities, draw_histograms, limits_of
from ood_lab.report.figures.layout import COLOURS, GREY, add_legend, panels, style
from ood_lab.report.figures.lines import Line, draw_lines
from ood_lab.report.figures.scatter import styles_of
from ood_lab.report.rendering.blocks import (
    Block,
    Folded,
    Pictures,
    PlannedFigure,
    Section,
    Text,
)
from ood_lab.report.rendering.prose import differs, sentences
from ood_lab.report.rendering.table import (
    Group,
    Head,
    Table,
    names_column,
    number_cell,
    pivoted,
)
from ood_lab.report.rendering.thumbnails import Thumbnails
from ood_lab.report.shift.shift_figures import (
    ShiftInputs,
    build_shift_figures,
    draw_ruler,
    label_of,
)
from ood_lab.report.shift.shift_tables import WORDS, summary_tables
from ood_lab.report.verdict import WORDS as VERDICT_WORDS
from ood_lab.report.verdict import Verdict
from ood_lab.schema.image_columns import AXES
from ood_lab.schema.image_statistics import value_text
from ood_lab.schema.results import ID_TEST, Names, Tables
from ood_lab.schema.run_record import Facts

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
        facts: ``by``, ``k`` and ``rulers``; ``unsplit`` where nothing separates the two shifts.
        misses: how well the distances predict what each detector misses, by detector and axis, once
            that is known.
        images: statistics of every image, which causes rest on.
    """

    degrees: pd.DataFrame
    summary: pd.DataFrame
    axes: Names
    facts: Facts
    misses: Misses = field(default_factory=dict)
    images: pd.DataFrame | None = None

    @property
    def footer(self) -> str:
        """How it was measured."""
        k, by = self.facts["k"], self.facts["by"]
        more = " Covariate: image statistics, see What differs." if self.facts["unsplit"] else ""
        return f"Cosine distance to the {ordinal(k)} nearest ID image, features of {by}.{more}"


def sections_of(
    measured: MeasuredDistances,
    verdict: Verdict,
    scores: pd.DataFrame,
    store: Thumbnails,
    detectors: Sequence[str],
) -> tuple[PlannedFigure, list[Section], list[Section]]:
    """The map of the datasets, what is above the results, and what is below them.

    Next to the misses of the detector that the verdict names, those of all ``detectors``, the best
    first, are shown.
    """
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
    missed = list(_misses(measured, verdict.named, scores, detectors))
    above = [Section("Example images", compared), Section("Missed images by shift", missed)]
    if measured.images is not None and len(verdict.causes):
        differences = list(cause_blocks(verdict.causes, measured.images, store))
        above.insert(0, Section("What differs", differences))
    return shift_map, above, below


def _pictures(measured: MeasuredDistances, store: Thumbnails) -> Iterator[Pictures]:
    """Some ID test images, and of every set the nearest, the median and the farthest."""
    (axis, *_) = measured.axes
    for name, rows in measured.degrees.groupby("dataset", sort=False):
        ordered = rows.sort_values(axis, ignore_index=True)
        items = store.examples(ordered, _ENDS, lambda row: f"{row[axis]:.3f}")
        yield Pictures(items, label_of(str(name)), few=True)


def _misses(
    measured: MeasuredDistances,
    detector: str | None,
    scores: pd.DataFrame,
    detectors: Sequence[str],
) -> Iterator[Block]:
    """What the detectors miss, one of them above all, by distance."""
    if detector is None:
        return
    names = [detector, *(name for name in detectors if name != detector)]
    distances = {
        (name, axis): measured.misses[name, axis] for name in names for axis in measured.axes
    }
    rows = {name: missed(measured.degrees, scores, name) for name in names}
    for axis, words in measured.axes.items():
        follows = distances[detector, axis]
        yield from map(Text, sentences(WORDS, "misses", follows, detector, words, BASELINE))
    if not any(distances.values()):
        return
    yield PlannedFigure(
        "misses",
        "Does the distance predict who misses what?",
        f"Share of OOD images that score below {KEPT:.0%} of ID test, by distance: points are of "
        f"{detector}, with their 95% intervals; lines are the best curves that fall.",
        partial(miss_curves, rows, measured),
    )
    table = follow_table(distances, measured.axes)
    yield Folded(table.caption, [table])
    if not measured.facts["unsplit"]:
        yield PlannedFigure(
            "miss_map",
            f"What {detector} misses",
            f"OOD images that score below {KEPT:.0%} of ID test are missed.",
            partial(miss_map, rows[detector], measured),
        )


def follow_table(distances: Misses, axes: Names) -> Table:
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
                axes.errorbar(far, 100 * rates, spread, fmt="o", ms=3, lw=0.7, color=style(0).color)
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
    for is_missed, label, colour in (
        (False, "noticed", GREY),
        (True, "missed", COLOURS[1]),
    ):
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


#: Bars and bins of a panel, and datasets whose panels are open.
_BARS, _BINS, _OPEN = 8, 20, 4


def cause_blocks(causes: pd.DataFrame, images: pd.DataFrame, store: Thumbnails) -> Iterator[Block]:
    """A fold for every dataset, the one with the strongest cause first.

    Args:
        causes: rows of kind ``cause``, see :func:`ood_lab.metrics.causes_of`.
        images: ``dataset, index`` and the statistics of every image.
        store: small pictures.
    """
    aurocs = causes[causes["metric"] == "auroc"]
    first = strongest_first(aurocs.drop_duplicates("dataset"))
    for place, name in enumerate(first["dataset"].astype(str)):
        of_set = aurocs[aurocs["dataset"] == name].reset_index(drop=True)
        statistic = str(of_set.loc[0, "statistic"])
        causes_of_set = named_causes(of_set).to_dict("records")
        blocks: list[Block] = [
            *map(Text, sentences(VERDICT_WORDS, "cause", causes_of_set, name)),
            PlannedFigure(
                f"causes_{place + 1}",
                f"{label_of(name)}: what differs",
                "Left: how well a statistic of the image tells the dataset from ID test (50% = not "
                f"at all), with 95% intervals; grey = not significant or faint. Right: {statistic} "
                "of both.",
                partial(cause_figure, of_set, images, name),
            ),
            _examples(of_set.iloc[0], images, name, store),
        ]
        yield Folded(label_of(name), blocks, open=place < _OPEN)


def cause_figure(causes: pd.DataFrame, images: pd.DataFrame, name: str) -> Figure:
    """Bars of the first causes of a dataset, and histograms of the first one.

    Args:
        causes: rows of ``auroc`` of the dataset, the first cause first.
        images: see :func:`cause_blocks`.
        name: of the dataset.
    """
    shown = strongest_first(causes).head(_BARS)
    statistic = str(causes.loc[0, "statistic"])
    footer = "Intervals are bootstrap intervals; significance is Holm-corrected over statistics."
    titles = ["AUROC (%)", statistic]
    figure, (left, right) = panels(titles, footer, height=0.22 * len(shown) + 0.5, extra=0.4)
    statistics = set(named_causes(shown).index)
    bars = []
    for index, row in shown.iterrows():
        bar = Bar.of(row.to_dict())
        if bar.value < 50:
            bar = Bar(100 - bar.value, 100 - bar.high, 100 - bar.low)
        colour = COLOURS[0] if index in statistics else GREY
        bars.append(bar._replace(text=f"{bar.value:.0f}", colour=colour))
    draw_bars(left, bars)
    name_rows(left, [differs(row) for _, row in shown.iterrows()])
    left.set_xlim(0, 115)
    left.axvline(50, color=GREY, lw=0.8)
    values = {
        label_of(of): images.loc[images["dataset"] == of, statistic].to_numpy(np.float64)
        for of in (ID_TEST, name)
    }
    low, high = limits_of(list(values.values()))
    draw_histograms(right, values, np.linspace(low, high, _BINS + 1))
    right.set_yticks([])
    add_legend(figure, [right])
    return figure


def _examples(cause: pd.Series, images: pd.DataFrame, name: str, store: Thumbnails) -> Pictures:
    """The least, the median and the most shifted image of a dataset in its first cause."""
    statistic = str(cause["statistic"])
    rows = images[images["dataset"] == name]
    ordered = rows.sort_values(statistic, ascending=bool(cause["value"] > 0.5), kind="stable")
    words = ("least", "median", "most")
    items = store.examples(ordered, words, lambda row: value_text(row[statistic], statistic))
    return Pictures(items, f"{statistic}: {differs(cause)}", few=True)
