"""Metrics of answers against a number, such as a distance in a graph."""

from __future__ import annotations

from collections.abc import Mapping

import pandas as pd
from matplotlib.figure import Figure

from ood_lab.report.figures.style import panels, style


def trend_lines(
    rows: pd.DataFrame, column: str, metrics: Mapping[str, str], footer: str
) -> Figure | None:
    """One panel a metric with its 95% band; None with fewer than two values of the column.

    Args:
        rows: ``metric, value, ci_low, ci_high, n_pairs`` and the column; shares.
        column: what the x axis shows.
        metrics: key in the rows → title.
        footer: what stands below.
    """
    part = rows[rows[column].notna()]
    if part[column].nunique() < 2:
        return None
    figure, grid = panels(len(metrics), 3, 1.7, footer, 0.5)
    for place, (axes, (metric, title)) in enumerate(zip(grid, metrics.items(), strict=True)):
        line = part[part["metric"] == metric].sort_values(column)
        look = style(place)
        axes.set_title(f"{title} (%)")
        axes.plot(line[column], 100 * line["value"], color=look.color, marker=look.marker, ms=3.5)
        low, high = 100 * line["ci_low"], 100 * line["ci_high"]
        axes.fill_between(line[column], low, high, color=look.color, alpha=0.12, lw=0)
        names = [
            f"{x:g}\nn={n:,}"
            for x, n in zip(line[column], line["n_pairs"].astype(int), strict=True)
        ]
        axes.set_xticks(line[column].tolist(), names, fontsize=6)
        axes.set_xlabel(column)
        axes.set_ylim(bottom=0)
    return figure
