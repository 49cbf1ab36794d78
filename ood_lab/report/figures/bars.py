"""Bars and marks with intervals, a row per name."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

import numpy as np
import pandas as pd
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.text import Text
from matplotlib.transforms import ScaledTranslation

from ood_lab.report.figures.layout import COLOURS, INK, SOFT, Style, add_legend, panels
from ood_lab.report.rendering.metric_definitions import MISSING
from ood_lab.schema.results import Names, Row


class Bar(NamedTuple):
    """A value with its interval; NaN where they are missing.

    Attributes:
        value: its length.
        low: lower end of the interval.
        high: upper end.
        text: next to it.
        colour: of the bar.
        bold: whether its text is bold.
    """

    value: float
    low: float = math.nan
    high: float = math.nan
    text: str = ""
    colour: str = COLOURS[0]
    bold: bool = False

    @classmethod
    def of(cls, row: Row, factor: float = 100.0) -> Bar:
        """A row with ``value, ci_low, ci_high``, shares in percent."""
        value, low, high = (factor * float(row[name]) for name in ("value", "ci_low", "ci_high"))
        return cls(value, low, high)


def draw_bars(
    axes: Axes,
    bars: Sequence[Bar],
    *,
    label: str = "",
    place: int = 0,
    of: int = 1,
    text_at: float | None = None,
) -> None:
    """A bar per row, from the top.

    Args:
        axes: where to, with the rows of :func:`name_rows`.
        bars: in the order of the rows. The text of one without a value follows "N/A".
        label: in the legend.
        place: of this series among those of a row.
        of: the number of series.
        text_at: positions of the texts; None = behind each bar.
    """
    height = 0.8 / of
    ys = [row + (place - (of - 1) / 2) * height for row in range(len(bars))]
    defined = [(bar, y) for bar, y in zip(bars, ys, strict=True) if not math.isnan(bar.value)]
    colours = [bar.colour for bar, _ in defined]
    values, at = [bar.value for bar, _ in defined], [y for _, y in defined]
    axes.barh(at, values, height=0.9 * height, color=colours, alpha=0.85)
    _intervals(axes, defined, INK, 0.8)
    behind = axes.transData + ScaledTranslation(3 / 72, 0, axes.figure.dpi_scale_trans)
    for bar, y in zip(bars, ys, strict=True):
        missing = math.isnan(bar.value)
        if text_at is not None or missing:
            if bar.text or of == 1 or not missing:
                _write(axes, bar, 2 if text_at is None else text_at, y)
        elif bar.text:
            shown = _write(axes, bar, np.nanmax([0.0, bar.value, bar.high]), y, transform=behind)
            shown.set_in_layout(False)  # the limits leave room for it; saves half of the layout
    if label and len(bars):
        axes.barh(0, 0, color=bars[0].colour, alpha=0.85, label=label)


def draw_marks(
    axes: Axes,
    marks: Sequence[Bar],
    look: Style,
    *,
    label: str = "",
    offset: float = 0.0,
    filled: str | None = None,
) -> None:
    """A mark per row, from the top, on the line of its interval.

    Args:
        axes: where to, with the rows of :func:`name_rows`.
        marks: in the order of the rows.
        look: of all of them.
        label: in the legend.
        offset: from the middle of the rows, in rows.
        filled: colour inside the marks; None = that of the look.
    """
    defined = [(mark, row + offset) for row, mark in enumerate(marks) if not math.isnan(mark.value)]
    _intervals(axes, defined, look.color, 1.2)
    axes.plot(
        [mark.value for mark, _ in defined],
        [y for _, y in defined],
        look.marker,
        color=look.color,
        markerfacecolor=filled or look.color,
        label=label,
    )


def _intervals(axes: Axes, bars: Sequence[tuple[Bar, float]], colour: str, width: float) -> None:
    ends = [(y, bar.low, bar.high) for bar, y in bars if not math.isnan(bar.low)]
    if ends:
        ys, lows, highs = zip(*ends, strict=True)
        axes.hlines(ys, lows, highs, colors=colour, lw=width)


def _write(axes: Axes, bar: Bar, x: float, y: float, **options: Any) -> Text:
    """The text of a bar; that of one without a value follows "N/A"."""
    text, colour = bar.text, INK
    if math.isnan(bar.value):
        text, colour = f"{MISSING}  {text}".strip(), SOFT
    weight = "bold" if bar.bold else "normal"
    return axes.text(x, y, text, va="center", fontsize=6, color=colour, weight=weight, **options)


def name_rows(axes: Axes, names: Sequence[str], named: bool = True) -> None:
    """Rows from the top; ``named=False`` where a panel at the left has their names."""
    axes.set_yticks(range(len(names)) if named else [], list(names) if named else [])
    axes.set_ylim(len(names) - 0.5, -0.5)
    axes.tick_params(axis="y", length=0)
    axes.grid(visible=False, axis="y")


def bar_columns(
    columns: Mapping[str, Sequence[Bar]], names: Sequence[str], footer: str
) -> tuple[Figure, list[Axes]]:
    """Columns of bars in percent, with the names of their rows at the left.

    Args:
        columns: title, in lines → its bars, a row per name.
        names: of the rows.
        footer: text below the figure.
    """
    titles = list(columns)
    figure, grid = panels(
        titles,
        footer,
        height=0.19 * len(names),
        columns=len(titles),
        extra=0.9 + 0.13 * max(title.count("\n") for title in titles),
    )
    for axes, bars in zip(grid, columns.values(), strict=True):
        draw_bars(axes, bars)
        name_rows(axes, names, named=axes is grid[0])
        axes.set_xlim(0, 110 + 6 * len(titles))  # room for the numbers
        axes.set_xticks([0, 50, 100])
    return figure, grid


def bar_panels(
    rows: pd.DataFrame,
    titles: Names,
    names: Names,
    footer: str,
    *,
    panel: str = "metric",
    row: str = "split",
    series: tuple[str, Names] | None = None,
    factor: float = 100.0,
    numbers: str | None = None,
) -> Figure:
    """Panels of bars with their intervals, a row per name.

    Args:
        rows: ``value, ci_low, ci_high`` and the columns named below.
        titles: key in ``panel`` → title of its panel.
        names: key in ``row`` → name of its row; those without a value are skipped.
        footer: text below the figure.
        panel: column that tells the panels apart.
        row: column that tells the rows of a panel apart.
        series: column that tells the bars of a row apart, and key → label in the legend; None =
            one bar, with its number.
        factor: from the values to what is shown: 100 for shares, which are shown in percent.
        numbers: format of the number at every bar; None = one decimal, where a row has one bar.
    """
    column, labels = series or (row, {})
    keys = [panel, row, column]
    by_key = {tuple(entry[key] for key in keys): entry for entry in rows.to_dict("records")}
    shown = [name for name in names if (rows[row] == name).any()]
    each_row = 0.24 if series is None else 0.14 * len(labels) + 0.14
    columns = 2 if len(titles) == 4 else 3
    figure, grid = panels(
        [f"{title} (%)" if factor == 100 else title for title in titles.values()],
        footer,
        columns=columns,
        height=each_row * len(shown) + 0.55,
        extra=0.35 if series is None else 0.6,
    )

    def bar(key: tuple[str, str, str], place: int) -> Bar:
        cell = by_key.get(key, {"value": math.nan, "ci_low": math.nan, "ci_high": math.nan})
        shown = Bar.of(cell, factor)
        silent = (series and not numbers) or math.isnan(shown.value)
        number = "" if silent else format(shown.value, numbers or ".1f")
        return shown._replace(text=number, colour=COLOURS[place % len(COLOURS)])

    for position, (axes, title) in enumerate(zip(grid, titles, strict=True)):
        if series is None:
            draw_bars(axes, [bar((title, name, name), place) for place, name in enumerate(shown)])
        for place, (key, label) in enumerate(labels.items()):
            bars = [bar((title, name, key), place) for name in shown]
            draw_bars(axes, bars, label=label, place=place, of=len(labels))
        name_rows(axes, [names[name] for name in shown], named=position % columns == 0)
        if factor == 100:
            axes.set_xlim(1.1 * min(0.0, axes.dataLim.x0), 122 if series is None else 105)
            axes.set_xticks([0, 50, 100])
        else:
            axes.use_sticky_edges = False
            axes.margins(x=0.25)  # for the numbers
    add_legend(figure, grid)
    return figure
