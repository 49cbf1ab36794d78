"""Shift of sets: D_sem against D_cov, the order on both axes, three decompositions of CLIP."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np
import pandas as pd
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from numpy.typing import NDArray

from ood_lab.axes import AXES
from ood_lab.report.figures.clouds import draw_clouds, styles_of
from ood_lab.report.figures.densities import density
from ood_lab.report.figures.style import INK, Style, legend_columns, new_figure, panels, wrapped
from ood_lab.report.shift_tables import DEGREE, ID_NAME, ID_TEST, SAME, rows_of, same_as_next

_NAMES = {axis: name.replace("D_", "$D_{") + "}$" for axis, name in DEGREE.items()}
_WAYS = {"": "LAID", "_pca": "PCA", "_clip": "CLIP, undecomposed"}


@dataclass(frozen=True)
class ShiftInputs:
    """What the figures are drawn from.

    Attributes:
        degrees: one row per image: ``dataset, semantic, covariate`` and ``<axis>_<baseline>``.
        summary: see :func:`ood_lab.report.shift_tables.summary_table`.
        footer: stands below every figure.
    """

    degrees: pd.DataFrame
    summary: pd.DataFrame
    footer: str

    @cached_property
    def names(self) -> list[str]:
        """The sets, the semantically nearest first."""
        return [str(name) for name in rows_of(self.summary, "semantic")["set"]]

    @cached_property
    def styles(self) -> dict[str, Style]:
        """One style per set."""
        return styles_of(self.names, ID_TEST)

    @property
    def labels(self) -> dict[str, str]:
        """What the sets are called."""
        return {name: label_of(name) for name in self.names}

    @cached_property
    def _rows(self) -> Mapping[Any, Any]:
        return self.degrees.groupby("dataset").indices

    def points(self, suffix: str = "") -> dict[str, NDArray[np.float64]]:
        """D_sem and D_cov of every set, ``[n, 2]``, of one decomposition."""
        values = self.degrees[[f"{axis}{suffix}" for axis in AXES]].to_numpy(np.float64)
        return {name: values[self._rows[name]] for name in self.names}

    @property
    def decompositions(self) -> dict[str, str]:
        """Suffix of the columns and name of every way that was measured."""
        return {s: name for s, name in _WAYS.items() if f"semantic{s}" in self.degrees}


def label_of(name: str) -> str:
    """What a set is called in figures."""
    return ID_NAME if name == ID_TEST else name


def build_shift_figures(inputs: ShiftInputs) -> Iterator[tuple[str, str, str, Figure]]:
    """File name, title, caption and figure, one at a time."""
    yield (
        "shift_scatter",
        "Semantic against covariate shift",
        "Up to 300 images per set; lines hold the middle half of a set, large marks are means. "
        "At the sides: densities.",
        shift_scatter(inputs),
    )
    yield (
        "shift_order",
        "Sets in the order of their shift",
        f"Mean with 95% interval; | = median. {SAME} between two sets: their means do not differ "
        "significantly.",
        shift_order(inputs),
    )
    if len(inputs.decompositions) > 1:
        yield (
            "shift_decompositions",
            "Three ways to split the features",
            "ρ = rank correlation of the two axes over all images: 1 where the features are not "
            "split. Scales differ.",
            shift_decompositions(inputs),
        )


def shift_scatter(inputs: ShiftInputs) -> Figure:
    """All sets in one plane, with the density of each set along both axes."""
    points = inputs.points()
    figure = new_figure(6.0, inputs.footer)
    layout: Any = [["top", "."], ["main", "right"]]
    ratios: Any = {"width_ratios": (4.5, 1), "height_ratios": (1, 4.5)}
    parts = figure.subplot_mosaic(layout, **ratios)
    main = parts["main"]
    draw_clouds(main, points, inputs.styles, inputs.labels)
    limits = [_limits([rows[:, k] for rows in points.values()]) for k in range(2)]
    main.set(
        xlim=limits[0],
        ylim=limits[1],
        xlabel=f"semantic shift {_NAMES['semantic']}",
        ylabel=f"covariate shift {_NAMES['covariate']}",
    )
    for axes, k in ((parts["top"], 0), (parts["right"], 1)):
        _marginal(axes, {name: rows[:, k] for name, rows in points.items()}, inputs, limits[k], k)
    _legend(figure, main)
    return figure


def _limits(values: Sequence[NDArray[np.float64]]) -> tuple[float, float]:
    """Of an axis: all but the outermost 0.2% of each set, with a margin."""
    low = min(float(np.quantile(v, 0.002)) for v in values)
    high = max(float(np.quantile(v, 0.998)) for v in values)
    margin = 0.04 * (high - low) or 0.1
    return low - margin, high + margin


def _marginal(
    axes: Axes,
    values: Mapping[str, NDArray[np.float64]],
    inputs: ShiftInputs,
    limits: tuple[float, float],
    axis: int,
) -> None:
    for name, degrees in values.items():
        look = inputs.styles[name]
        x, y = density(degrees, *limits)
        pair = (x, y) if axis == 0 else (y, x)
        axes.plot(*pair, color=look.color, ls=look.line, lw=1.0)
        if name == ID_TEST:
            fill = axes.fill_between if axis == 0 else axes.fill_betweenx
            fill(x, y, color=look.color, alpha=0.35, lw=0)
    axes.set(
        **{"xlim" if axis == 0 else "ylim": limits, "ylim" if axis == 0 else "xlim": (0, None)}
    )
    axes.grid(visible=False)
    axes.spines[:].set_visible(False)
    axes.set(xticks=[], yticks=[])


def _legend(figure: Figure, axes: Axes) -> None:
    handles, labels = axes.get_legend_handles_labels()
    figure.legend(
        handles, labels, loc="outside upper center", ncols=legend_columns(labels), markerscale=0.8
    )


def shift_order(inputs: ShiftInputs) -> Figure:
    """One panel per axis; sets from the least to the most shifted."""
    sets = len(inputs.names)
    figure, grid = panels(2, 2, 0.26 * sets, inputs.footer, 0.9)
    for axes, axis in zip(grid, AXES, strict=True):
        rows = rows_of(inputs.summary, axis)
        for place, row in enumerate(rows.to_dict("records")):
            look = inputs.styles[str(row["set"])]
            ends = [row["mean_low"], row["mean_high"]]
            axes.plot(ends, [place, place], color=look.color, lw=1.6, solid_capstyle="butt")
            axes.plot(row["mean"], place, look.marker, color=look.color, markersize=5)
            axes.plot(row["median"], place, "|", color=INK, markersize=7, markeredgewidth=0.8)
        for place, same in enumerate(same_as_next(rows)):
            if same:
                where: Any = {"transform": axes.get_yaxis_transform(), "va": "center"}
                axes.text(1.01, place + 0.5, SAME, fontsize=9, **where)
        names = [f"{wrapped(label_of(str(r['set'])), 20)}" for r in rows.to_dict("records")]
        axes.set_yticks(range(sets), names)
        axes.set_ylim(sets - 0.5, -0.5)
        axes.set_xlabel(f"mean {axis} shift {_NAMES[axis]}")
        axes.tick_params(axis="y", length=0)
        axes.margins(x=0.06)
    return figure


def shift_decompositions(inputs: ShiftInputs) -> Figure:
    """One panel a way to split the features, each with its own scales."""
    decompositions = inputs.decompositions
    figure, grid = panels(len(decompositions), 3, 2.3, inputs.footer, 1.0)
    for axes, (suffix, name) in zip(grid, decompositions.items(), strict=True):
        points = inputs.points(suffix)
        draw_clouds(axes, points, inputs.styles, inputs.labels, contours=False)
        values = pd.DataFrame(np.concatenate(list(points.values()))).rank()
        axes.set_title(f"{name} (ρ = {values[0].corr(values[1]):.2f})")
        axes.set(
            xlim=_limits([rows[:, 0] for rows in points.values()]),
            ylim=_limits([rows[:, 1] for rows in points.values()]),
            xlabel=_NAMES["semantic"],
        )
    grid[0].set_ylabel(_NAMES["covariate"])
    _legend(figure, grid[0])
    return figure
