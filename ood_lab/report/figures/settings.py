"""Metrics of splits by the setting of a run."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import numpy as np
import pandas as pd
from matplotlib.figure import Figure

from ood_lab.report.figures.style import new_figure, style, wrapped


def settings_figure(
    table: pd.DataFrame, metrics: Sequence[str], splits: Mapping[str, str]
) -> Figure:
    """One panel per metric, a line per split over the settings in their order.

    Args:
        table: ``setting, split, metric, value, ci_low, ci_high``.
        metrics: to draw.
        splits: key in the table → name of its line.
    """
    settings = list(dict.fromkeys(table["setting"]))
    figure = new_figure(3.0, "95% intervals.", width=3.6 * len(metrics))
    grid = figure.subplots(1, len(metrics), squeeze=False)[0]
    for axes, metric in zip(grid, metrics, strict=True):
        rows = table[table["metric"] == metric]
        for place, (split, name) in enumerate(splits.items()):
            part = rows[rows["split"] == split].set_index("setting").reindex(settings)
            if part["value"].isna().all():
                continue
            look = style(place)
            x = np.arange(len(settings)) + 0.06 * (place - 1.5)
            y = 100 * part["value"]
            ends = [y - 100 * part["ci_low"], 100 * part["ci_high"] - y]
            axes.errorbar(
                x, y, yerr=ends, color=look.color, marker=look.marker, ls=look.line, label=name,
                elinewidth=0.8, ms=4,
            )  # fmt: skip
        axes.set_xticks(range(len(settings)), [wrapped(name, 14) for name in settings])
        axes.set_ylabel(f"{metric} (%)")
        axes.grid(visible=False, axis="x")
    handles, labels = grid[0].get_legend_handles_labels()
    figure.legend(handles, labels, loc="outside upper center", ncols=max(len(labels), 1))
    return figure
