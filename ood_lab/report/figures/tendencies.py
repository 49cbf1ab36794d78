"""What is made up beside what, as a matrix with groups of concepts."""

from __future__ import annotations

import numpy as np
import pandas as pd
from matplotlib.figure import Figure

from ood_lab.report.figures.style import COLOURS, new_figure

_MOST = 30


def tendency_matrix(matrix: pd.DataFrame, groups: pd.DataFrame, footer: str) -> Figure:
    """Concepts by rows, ordered by group, hallucinations by columns; shares of a row's sum.

    Args:
        matrix: ``N[f, h]``; the 30 rows and columns with most are shown.
        groups: ``concept, group, hallucinated``.
        footer: what stands below.
    """
    order = groups.nlargest(_MOST, "hallucinated", keep="first")
    order = order.sort_values(["group", "hallucinated"], ascending=[True, False], kind="stable")
    columns = matrix.sum().nlargest(_MOST).index
    part = matrix.loc[order["concept"], columns]
    shares = part.to_numpy(float) / matrix.loc[order["concept"]].sum(axis=1).to_numpy()[:, None]
    figure = new_figure(0.16 * len(part) + 1.6, footer)
    axes = figure.subplots()
    image = axes.pcolormesh(100 * shares, cmap="Blues", edgecolor="white", lw=0.4, vmin=0)
    axes.set_xticks(np.arange(len(columns)) + 0.5, list(columns), rotation=90, fontsize=6)
    axes.set_yticks(np.arange(len(part)) + 0.5, list(part.index), fontsize=6)
    for tick, group in zip(axes.get_yticklabels(), order["group"], strict=True):
        tick.set_color(COLOURS[int(group) % len(COLOURS)])
    axes.invert_yaxis()
    axes.set_xlabel("hallucinated")
    axes.set_ylabel("shown (colour: group)")
    axes.tick_params(length=0)
    axes.grid(visible=False)
    figure.colorbar(image, ax=axes, label="% of a row's hallucinations", fraction=0.03, pad=0.02)
    return figure
