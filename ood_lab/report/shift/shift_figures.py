"""Figures of shift: degrees of sets, levels of a pool, separability, and pictures at both ends."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property, partial
from typing import Any, NamedTuple

import numpy as np
import pandas as pd
from matplotlib.axes import Axes
from matplotlib.figure import Figure

from ood_lab.report.figures.bars import Bar, draw_marks, name_rows
from ood_lab.report.figures.densities import draw_densities, limits_of
from ood_lab.report.figures.heatmap import draw_cells, shades
from ood_lab.report.figures.layout import (
    GREY,
    INK,
    MARKERS,
    WIDTH,
    Style,
    add_legend,
    new_figure,
    panels,
    wrapped,
)
from ood_lab.report.figures.scatter import component_labels, draw_clouds, styles_of
from ood_lab.report.rendering.blocks import PlannedFigure
from ood_lab.report.rendering.metric_definitions import MISSING
from ood_lab.report.shift.shift_tables import (
    DEGREE,
    ID_NAME,
    SAME,
    distances_of,
    rows_of,
    same_as_next,
)
from ood_lab.schema.arrays import Bools, Floats, Ints
from ood_lab.schema.image_columns import AXES
from ood_lab.schema.results import ID_TEST, Names
from ood_lab.schema.run_record import Facts

_NAMES = {axis: name.replace("D_", "$D_{") + "}$" for axis, name in DEGREE.items()}
_WAYS = {"": "LAID", "_pca": "PCA", "_clip": "CLIP, undecomposed"}
_FACES = (INK, "white", GREY)
#: Ratio of the largest to the smallest distance above which the scale is logarithmic.
_WIDE = 30
#: What the units of a ruler are called, by its metric.
UNITS = {
    "held_out_class_units": "1 = one of your own classes, held out",
    "corruption_severity": "severity of corruption of your test images",
}
#: Ticks are no nearer than this share of the axis.
_ROOM = 0.035


@dataclass(frozen=True)
class ShiftInputs:
    """What the figures are drawn from.

    Attributes:
        degrees: one row per image: ``dataset, semantic, covariate`` and ``<axis>_<baseline>``.
        summary: see :func:`ood_lab.report.shift.shift_tables.summary_tables`.
        footer: text below every figure.
        rulers: scales in units of ID data, see
            :func:`draw_ruler`.
    """

    degrees: pd.DataFrame
    summary: pd.DataFrame
    footer: str
    rulers: Sequence[Facts]

    @cached_property
    def names(self) -> list[str]:
        """The sets, the semantically nearest first."""
        return [str(name) for name in rows_of(self.summary, "semantic")["dataset"]]

    @cached_property
    def styles(self) -> dict[str, Style]:
        """One style per set."""
        return styles_of(self.names, ID_TEST)

    @property
    def labels(self) -> Names:
        """What the sets are called."""
        return {name: label_of(name) for name in self.names}

    @cached_property
    def _rows(self) -> Mapping[Any, Any]:
        return self.degrees.groupby("dataset").indices

    def points(self, suffix: str = "") -> dict[str, Floats]:
        """D_sem and D_cov of every set, ``[n, 2]``, of one decomposition."""
        values = self.degrees[[f"{axis}{suffix}" for axis in AXES]].to_numpy(np.float64)
        return {name: values[self._rows[name]] for name in self.names}

    @property
    def decompositions(self) -> Names:
        """Suffix of the columns and name of every way that was measured."""
        return {s: name for s, name in _WAYS.items() if f"semantic{s}" in self.degrees}


def label_of(name: str) -> str:
    """What a set is called in figures."""
    return {ID_TEST: ID_NAME, "id": "ID"}.get(name, name)


def build_shift_figures(inputs: ShiftInputs) -> Iterator[PlannedFigure]:
    """The figures of a measurement, in reading order."""
    yield PlannedFigure(
        "shift_scatter",
        "Semantic against covariate shift",
        "Up to 300 images per set; lines hold the middle half of a set, large marks are means. "
        "At the sides: densities.",
        partial(shift_scatter, inputs),
    )
    yield PlannedFigure(
        "shift_order",
        "Sets in the order of their shift",
        f"Mean with 95% interval; | = median. {SAME} between two sets: their means do not differ "
        "significantly.",
        partial(shift_order, inputs),
    )
    if len(inputs.decompositions) > 1:
        yield PlannedFigure(
            "shift_decompositions",
            "Three ways to split the features",
            "ρ = rank correlation of the two axes over all images: 1 where the features are not "
            "split. Scales differ.",
            partial(shift_decompositions, inputs),
        )


def shift_scatter(inputs: ShiftInputs) -> Figure:
    """All sets in one plane, with the density of each set along both axes."""
    points = inputs.points()
    figure = new_figure(6.0, inputs.footer)
    layout: Any = [["top", "."], ["main", "right"]]
    parts = figure.subplot_mosaic(layout, width_ratios=(4.5, 1), height_ratios=(1, 4.5))
    main = parts["main"]
    draw_clouds(main, points, inputs.styles, inputs.labels)
    for place, (axis, side) in enumerate(zip(AXES, ("top", "right"), strict=True)):
        values = {name: rows[:, place] for name, rows in points.items()}
        limits = limits_of(list(values.values()))
        name, upright = ("x", False) if side == "top" else ("y", True)
        main.set(**{f"{name}lim": limits, f"{name}label": f"{axis} shift {_NAMES[axis]}"})
        axes = parts[side]
        draw_densities(axes, values, inputs.styles, limits, filled=ID_TEST, upright=upright)
        axes.set(xticks=[], yticks=[])
        axes.spines[:].set_visible(False)
    for ruler in inputs.rulers:
        draw_ruler(main, ruler, upright=ruler["axis"] == "covariate")
    add_legend(figure, [main])
    return figure


def shift_order(inputs: ShiftInputs) -> Figure:
    """One panel per axis; sets from the least to the most shifted."""
    sets = len(inputs.names)
    figure, grid = panels(["", ""], inputs.footer, height=0.26 * sets, columns=2, extra=0.9)
    for axes, axis in zip(grid, AXES, strict=True):
        rows = rows_of(inputs.summary, axis)
        for place, row in enumerate(rows.to_dict("records")):
            bar = Bar(row["mean"], row["mean_low"], row["mean_high"])
            draw_marks(axes, [bar], inputs.styles[row["dataset"]], offset=place)
        axes.plot(rows["median"], range(sets), "|", color=INK, ms=7, mew=0.8, zorder=4)
        for place, same in enumerate(same_as_next(rows)):
            if same:
                beside = axes.get_yaxis_transform()
                axes.text(1.01, place + 0.5, SAME, fontsize=9, transform=beside, va="center")
        name_rows(axes, [wrapped(label_of(name), 20) for name in rows["dataset"]])
        axes.set_xlabel(f"mean {axis} shift {_NAMES[axis]}")
        axes.margins(x=0.06)
    return figure


def shift_decompositions(inputs: ShiftInputs) -> Figure:
    """One panel a way to split the features, each with its own scales."""
    points = {name: inputs.points(suffix) for suffix, name in inputs.decompositions.items()}
    ranks = {n: pd.DataFrame(np.concatenate(list(p.values()))).rank() for n, p in points.items()}
    titles = [f"{name} (ρ = {values[0].corr(values[1]):.2f})" for name, values in ranks.items()]
    labels = (_NAMES["semantic"], _NAMES["covariate"])
    figure, grid = panels(titles, inputs.footer, height=2.3, extra=1.0, labels=labels)
    for axes, clouds in zip(grid, points.values(), strict=True):
        draw_clouds(axes, clouds, inputs.styles, inputs.labels, contours=False)
        x, y = (limits_of([rows[:, k] for rows in clouds.values()]) for k in (0, 1))
        axes.set(xlim=x, ylim=y)
    add_legend(figure, grid)
    return figure


def draw_ruler(axes: Axes, ruler: Facts, *, upright: bool) -> None:
    """Draws the marks of a ruler as a second axis; nothing where there is no ruler.

    Args:
        axes: whose x axis, or y axis where ``upright``, has its limits and holds distances.
        ruler: ``metric``, ``reason`` (why there is none) and ``marks``, the distances at 0, 1, ...;
            two of them define an even, open scale.
        upright: the distances run upwards.
    """
    if ruler["reason"]:
        return
    marks = np.array(ruler["marks"])
    other = axes.secondary_yaxis if upright else axes.secondary_xaxis
    if len(marks) == 2:
        start, unit = marks[0], marks[1] - marks[0]
        scale = other(1, functions=(lambda d: (d - start) / unit, lambda u: start + u * unit))
    else:
        low, high = axes.get_ylim() if upright else axes.get_xlim()
        room = _ROOM * (high - low)
        scale, shown = other(1), [len(marks) - 1]
        for number in range(len(marks) - 2, 0, -1):
            if marks[shown[0]] - marks[number] >= room <= marks[number] - marks[0]:
                shown.insert(0, number)
        shown.insert(0, 0)
        scale.set_ticks(marks[shown], labels=[str(number) for number in shown])
    scale.tick_params(labelsize=6, length=2)
    (scale.set_ylabel if upright else scale.set_xlabel)(UNITS[ruler["metric"]], fontsize=7)


def cells_figure(counts: Ints, enough: Bools, min_count: int) -> PlannedFigure:
    """How many images each cell of a division has (IS-OOD, Figure 9).

    Args:
        counts: images of each cell, ``[covariate, semantic]``.
        enough: which cells have enough images; the others are N/A.
        min_count: what is enough, in words.
    """
    caption = f"Images of each cell; {MISSING} below {min_count}."
    draw = partial(_cells, counts, enough, min_count)
    return PlannedFigure("cells", "Images by level of shift", caption, draw)


def _cells(counts: Ints, enough: Bools, min_count: int) -> Figure:
    """Covariate rows × semantic columns, coloured by the logarithm of n."""
    missing = f"Grey: {MISSING}, fewer than {min_count}."
    figure, (axes,) = panels(
        [""],
        f"N = {counts.sum():,} images. {missing} At the levels: their sums.",
        height=0.42 * len(counts),
        extra=1.1,
        width=min(WIDTH, 0.66 * counts.shape[1] + 1.9),
        labels=("semantic level", "covariate level"),
    )
    most = max(int(counts.max()), min_count + 1, 2)
    colours = shades(max(min_count, 1), most, logarithmic=True)
    numbers = np.array([[f"{n:,}" for n in row] for row in counts], object)
    texts, notes = np.where(enough, numbers, MISSING), np.where(enough, "", "n=" + numbers)
    columns = [f"{level}\n{n:,}" for level, n in enumerate(counts.sum(axis=0))]
    rows = [f"{n:,}   {level}" for level, n in enumerate(counts.sum(axis=1))]
    draw_cells(axes, colours.of(np.where(enough, counts, np.nan)), (rows, columns), texts, notes)
    colours.bar(figure, axes, "images", aspect=30)
    return figure


class Space(NamedTuple):
    """Sets in the feature space of a backbone.

    Attributes:
        points: name → coordinates ``[n, 2]``; ``id`` first.
        shares: of the variance, by component.
        table: see :func:`ood_lab.report.shift.shift_tables.separability_table`.
    """

    points: Mapping[str, Floats]
    shares: Sequence[float]
    table: pd.DataFrame


def separability_figure(spaces: Mapping[str, Space]) -> PlannedFigure:
    """Sets in the feature spaces of several backbones, and how well each space separates them.

    Args:
        spaces: backbone → its space.
    """
    caption = (
        "Above: first principal components of ID features; lines hold the middle half of a set. "
        "Below: Bhattacharyya distance to ID, larger = easier to separate."
    )
    return PlannedFigure(
        "separability", "Separability from ID", caption, partial(_separability, spaces)
    )


def _separability(by_backbone: Mapping[str, Space]) -> Figure:
    """One scatter per backbone, and the distances of all of them below."""
    distances = distances_of({name: space.table for name, space in by_backbone.items()})
    columns = min(len(by_backbone), 3)
    rows = -(-len(by_backbone) // columns)
    above, below = 7.0 / max(columns, 2), 0.3 * len(distances) + 0.5
    kept = sorted({int(space.table["components"].iloc[0]) for space in by_backbone.values()})
    footer = f"Distances on {', '.join(map(str, kept))} principal components of the ID features."
    figure = new_figure(rows * above + below + 0.9, footer)
    grid = figure.add_gridspec(rows + 1, columns, height_ratios=[*[above] * rows, below])
    spaces = []
    for place, (backbone, space) in enumerate(by_backbone.items()):
        axes = figure.add_subplot(grid[place // columns, place % columns])
        labels = {name: label_of(name) for name in space.points}
        draw_clouds(axes, space.points, styles_of(list(labels), "id"), labels, units=False)
        x, y = component_labels(space.shares)
        axes.set(xlabel=x, ylabel=y, title=wrapped(backbone, 30))
        spaces.append(axes)
    add_legend(figure, spaces)
    _distances(figure.add_subplot(grid[rows, :]), distances)
    return figure


def _distances(axes: Axes, distances: pd.DataFrame) -> None:
    """One row per set, one mark per backbone."""
    for place, (backbone, column) in enumerate(distances.items()):
        look = Style(INK, "-", MARKERS[place % len(MARKERS)])
        face = _FACES[place % len(_FACES)]
        draw_marks(axes, [Bar(value) for value in column], look, label=str(backbone), filled=face)
    name_rows(axes, [wrapped(label_of(str(name)), 24) for name in distances.index])
    smallest, largest = distances.to_numpy().min(), distances.to_numpy().max()
    if 0 < smallest * _WIDE < largest:
        axes.set_xscale("log")
    else:
        axes.set_xlim(left=0)
    axes.set_xlabel("Bhattacharyya distance to ID")
    if distances.shape[1] > 1:
        axes.legend(loc="upper right")  # the nearest sets are above, on the left
