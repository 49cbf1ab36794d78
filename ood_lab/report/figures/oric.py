"""Figures of ORIC: sizes, distances and CLIPScores of its sets, and the curve over context."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import numpy as np
import pandas as pd
from matplotlib.axes import Axes
from matplotlib.figure import Figure

from ood_lab.report.figures.style import COLOURS, INK, new_figure, style

_TIERS = ("small", "medium", "large")
_TRUTH = {"yes": "present: share seen", "no": "absent: share not seen"}


def context_curves(curve: pd.DataFrame, sets: Mapping[str, str], footer: str) -> Figure:
    """Accuracy against P(object | context), a panel for present and one for absent objects.

    Args:
        curve: see :func:`ood_lab.lvlm.oric.analyses.curve_of`.
        sets: key in the rows → name of its line.
        footer: what stands below.
    """
    figure = new_figure(2.9, footer)
    grid = figure.subplots(1, 2, sharey=True)
    for axes, (truth, title) in zip(grid, _TRUTH.items(), strict=True):
        part = curve[curve["truth"] == truth]
        for place, (split, name) in enumerate({"all": "all questions", **sets}.items()):
            _curve(axes, part[part["split"] == split], place, name, band=split == "all")
        axes.set_title(title)
        axes.set_xlabel("P(object | other objects of the image)")
        axes.grid(visible=False, axis="x")
    grid[0].set_ylabel("right answers (%)")
    grid[0].set_ylim(-3, 103)
    handles, labels = grid[0].get_legend_handles_labels()
    figure.legend(handles, labels, loc="outside upper center", ncols=min(len(labels), 5))
    return figure


def _curve(axes: Axes, rows: pd.DataFrame, place: int, name: str, band: bool) -> None:
    rows = rows.sort_values("p_context")
    look = style(place)
    x, y = rows["p_context"], 100 * rows["accuracy"]
    width = 1.8 if band else 0.8
    axes.plot(x, y, color=look.color, ls=look.line, marker=look.marker, ms=3, lw=width, label=name)
    if band:
        low, high = 100 * rows["ci_low"], 100 * rows["ci_high"]
        axes.fill_between(x, low, high, color=look.color, alpha=0.15, lw=0)


def tier_bars(
    shares: pd.DataFrame, recall: pd.DataFrame, sets: Mapping[str, str], footer: str
) -> Figure:
    """How large the objects are, and how often they are seen; a bar a tier and set.

    Args:
        shares: rows ``tier_share`` of :func:`ood_lab.lvlm.oric.analyses.analyses_of`.
        recall: see :func:`ood_lab.lvlm.oric.analyses.by_tier`; may be empty.
        sets: key in the rows → name.
        footer: what stands below.
    """
    shown = [name for name in sets if (shares["split"] == name).any()]
    figure = new_figure(0.42 * len(shown) + 1.3, footer)
    grid = figure.subplots(1, 2, sharey=True)
    sizes = shares.rename(columns={"key": "tier"})
    for axes, rows, title in (
        (grid[0], sizes, "Present objects by size (%)"),
        (grid[1], recall.rename(columns={"accuracy": "value"}), "Share of them that is seen (%)"),
    ):
        axes.set_title(title)
        for place, tier in enumerate(_TIERS):
            _bars(axes, rows[rows["tier"] == tier], shown, place, len(_TIERS), tier)
        axes.set_xlim(0, 105)
    _name_rows(grid[0], [sets[name] for name in shown])
    handles, labels = grid[0].get_legend_handles_labels()
    figure.legend(handles, labels, loc="outside upper center", ncols=3)
    return figure


def measure_bars(rows: pd.DataFrame, sets: Mapping[str, str], title: str, footer: str) -> Figure:
    """One bar per set and series, with its 95% interval.

    Args:
        rows: ``split, series, value, ci_low, ci_high``.
        sets: key in the rows → name.
        title: of the panel.
        footer: what stands below.
    """
    shown = [name for name in sets if (rows["split"] == name).any()]
    series = list(dict.fromkeys(rows["series"]))
    figure = new_figure((0.14 * len(series) + 0.14) * len(shown) + 1.2, footer)
    axes = figure.subplots()
    axes.set_title(title)
    for place, name in enumerate(series):
        part = rows[rows["series"] == name]
        _bars(axes, part, shown, place, len(series), name, factor=1.0)
    _name_rows(axes, [sets[name] for name in shown])
    handles, labels = axes.get_legend_handles_labels()
    figure.legend(handles, labels, loc="outside upper center", ncols=min(4, len(labels)))
    return figure


def _bars(
    axes: Axes,
    rows: pd.DataFrame,
    shown: Sequence[str],
    place: int,
    of: int,
    label: str,
    factor: float = 100.0,
) -> None:
    found = {row["split"]: row for row in rows.to_dict("records")}
    height = 0.8 / of
    for number, split in enumerate(shown):
        row = found.get(split)
        y = number + (place - (of - 1) / 2) * height
        value = np.nan if row is None else factor * float(row["value"])
        named = label if number == 0 else None
        axes.barh(
            y,
            0 if np.isnan(value) else value,
            height=0.9 * height,
            label=named,
            color=COLOURS[place % len(COLOURS)],
            alpha=0.85,
        )
        if row is not None and not np.isnan(row["ci_low"]):
            ends = [factor * float(row["ci_low"]), factor * float(row["ci_high"])]
            axes.plot(ends, [y, y], color=INK, lw=0.8, solid_capstyle="butt")


def _name_rows(axes: Axes, names: Sequence[str]) -> None:
    axes.set_yticks(range(len(names)), list(names))
    axes.tick_params(axis="y", length=0)
    axes.grid(visible=False, axis="y")
    axes.invert_yaxis()
