"""Metrics of answers to questions, a bar for every split."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import Any

import pandas as pd
from matplotlib.axes import Axes
from matplotlib.figure import Figure

from ood_lab.report.figures.style import COLOURS, INK, panels
from ood_lab.report.protocol import MISSING


def split_bars(
    rows: pd.DataFrame, metrics: Mapping[str, str], splits: Mapping[str, str], footer: str
) -> Figure:
    """One panel a metric with a bar per split and its 95% interval.

    Args:
        rows: ``split, metric, value, ci_low, ci_high``; shares.
        metrics: key in the rows → title of its panel.
        splits: key in the rows → name of its bar.
        footer: what stands below.
    """
    found = {(row["split"], row["metric"]): row for row in rows.to_dict("records")}
    shown = [split for split in splits if any(key[0] == split for key in found)]
    columns = 2 if len(metrics) == 4 else 3
    figure, grid = panels(
        len(metrics), columns, 0.24 * len(shown) + 0.55, footer, 0.35, sharey=True
    )
    for axes, (metric, title) in zip(grid, metrics.items(), strict=True):
        axes.set_title(f"{title} (%)")
        _bars(axes, [found.get((split, metric)) for split in shown])
        axes.set_yticks(range(len(shown)), [splits[split] for split in shown])
        axes.tick_params(axis="y", length=0)
        axes.grid(visible=False, axis="y")
    grid[0].invert_yaxis()
    return figure


def _bars(axes: Axes, rows: Sequence[Mapping[Any, Any] | None]) -> None:
    lowest = 0.0
    for place, row in enumerate(rows):
        value = math.nan if row is None else 100 * float(row["value"])
        if row is None or math.isnan(value):
            axes.text(2, place, MISSING, va="center", fontsize=6, color="#666666")
            continue
        low, high = (100 * float(row[name]) for name in ("ci_low", "ci_high"))
        axes.barh(place, value, height=0.7, color=COLOURS[place % len(COLOURS)], alpha=0.85)
        axes.plot([low, high], [place, place], color=INK, lw=0.8, solid_capstyle="butt")
        end = max(value, 0.0 if math.isnan(high) else high, 0.0)
        axes.text(end + 3, place, f"{value:.1f}", va="center", fontsize=6)
        lowest = min(lowest, value, value if math.isnan(low) else low)
    axes.set_xlim(1.1 * lowest, 122)
    axes.set_xticks([0, 50, 100])
