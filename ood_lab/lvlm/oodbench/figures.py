"""Figures of OODBench's page: how sure models are of what is annotated."""

from __future__ import annotations

import numpy as np
import pandas as pd
from matplotlib.figure import Figure

from ood_lab.report.figures.densities import draw_histograms
from ood_lab.report.figures.layout import add_legend, panels
from ood_lab.report.figures.style import SOFT

_BINS = np.linspace(0.0, 1.0, 21)
_MOST = 11
_ALL = "all categories"


def purified_histograms(division: pd.DataFrame, threshold: float) -> Figure:
    """Histograms of ``p_c`` (appendix H): all categories together, then those with the most pairs.

    Args:
        division: ``category`` and ``p_<model>`` of every annotated pair.
        threshold: T, drawn as a line.
    """
    models = [str(c) for c in division.columns if str(c).startswith("p_")]
    counts = division["category"].value_counts()
    parts = {_ALL: division}
    parts |= {str(c): division[division["category"] == c] for c in counts.index[:_MOST]}
    left = len(counts) - _MOST
    more = f" {left} further categories are in the first panel alone." if left > 0 else ""
    footer = f"Dashed: T = {threshold:g}. n = annotated pairs.{more}"
    titles = [f"{name}, n {len(rows):,}" for name, rows in parts.items()]
    labels = ("purified probability", "share of pairs")
    figure, grid = panels(
        titles, footer, height=1.15, columns=4, extra=0.6, labels=labels, sharex=True
    )
    for axes, rows in zip(grid, parts.values(), strict=True):
        values = {model.removeprefix("p_"): rows[model].to_numpy() for model in models}
        draw_histograms(axes, values, _BINS)
        axes.axvline(threshold, color=SOFT, lw=0.7, ls="--")
        axes.set_xticks([0, 0.5, 1], ["0", "0.5", "1"])
    add_legend(figure, grid)
    return figure
