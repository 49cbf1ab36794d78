"""How sure image-text models are of what is annotated (OODBench, appendix H)."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import pandas as pd
from matplotlib.axes import Axes
from matplotlib.figure import Figure

from ood_lab.report.figures.style import label_outer, panels, style

_BINS = np.linspace(0.0, 1.0, 21)
_MOST = 11
ALL = "all categories"


def purified_histograms(division: pd.DataFrame, threshold: float) -> Figure:
    """Histograms of ``p_c``: all categories together, then those with the most pairs.

    Args:
        division: ``category`` and ``p_<model>`` of every annotated pair.
        threshold: T, drawn as a line.
    """
    models = [str(c).removeprefix("p_") for c in division.columns if str(c).startswith("p_")]
    counts = division["category"].value_counts()
    names = [ALL, *map(str, counts.index[:_MOST])]
    left = len(counts) - _MOST
    more = f" {left} further categories are in the first panel alone." if left > 0 else ""
    footer = f"Dashed: T = {threshold:g}. n = annotated pairs.{more}"
    figure, grid = panels(len(names), 4, 1.15, footer, 0.6, sharex=True)
    for axes, name in zip(grid, names, strict=True):
        rows = division if name == ALL else division[division["category"] == name]
        _panel(axes, rows, models, threshold)
        axes.set_title(f"{name}, n {len(rows):,}", fontsize=7)
    handles, labels = grid[0].get_legend_handles_labels()
    figure.legend(handles, labels, loc="outside upper center", ncols=len(models))
    label_outer(grid, 4, "purified probability", "share of pairs")
    return figure


def _panel(axes: Axes, rows: pd.DataFrame, models: Sequence[str], threshold: float) -> None:
    for place, model in enumerate(models):
        shares, edges = np.histogram(rows[f"p_{model}"].to_numpy(), _BINS)
        look = style(place)
        axes.stairs(
            shares / max(shares.sum(), 1), edges, color=look.color, ls=look.line, label=model
        )
    axes.axvline(threshold, color="#666666", lw=0.7, ls="--")
    axes.set_xlim(0, 1)
    axes.set_ylim(bottom=0)
    axes.set_xticks([0, 0.5, 1], ["0", "0.5", "1"])
    axes.tick_params(labelbottom=True)
