"""Figures of purified probabilities, category by category."""

from __future__ import annotations

import math
from collections.abc import Iterator
from functools import partial

import numpy as np
import pandas as pd
from matplotlib.figure import Figure

from ood_lab.lvlm.pages.figure_captions import captioned
from ood_lab.report.figures.densities import draw_histograms
from ood_lab.report.figures.layout import add_legend, panels
from ood_lab.report.figures.style import SOFT
from ood_lab.report.rendering.blocks import Folded, PlannedFigure

_BINS = np.linspace(0.0, 1.0, 21)
_MOST = 11
_ALL = "all categories"


def purified_figures(division: pd.DataFrame, threshold: float) -> Iterator[PlannedFigure | Folded]:
    """See :func:`purified_histograms`; further figures have the other categories.

    Args:
        division: ``category`` and ``p_<model>`` of every annotated pair.
        threshold: T, drawn as a line.
    """
    count = 1 + max(0, math.ceil((division["category"].nunique() - _MOST) / (_MOST + 1)))
    planned = [
        captioned(
            f"purified_{number + 1}" if number else "purified",
            partial(purified_histograms, division, threshold, number),
            "purified",
            number=f" {number + 1}" if number else "",
        )
        for number in range(count)
    ]
    yield planned[0]
    if planned[1:]:
        yield Folded("Purified probabilities of the other categories", planned[1:], page_only=True)


def purified_histograms(division: pd.DataFrame, threshold: float, number: int = 0) -> Figure:
    """Histograms of ``p_c``: all categories together, then those with the most pairs.

    As in appendix H of arXiv 2602.18094.

    Args:
        division: ``category`` and ``p_<model>`` of every annotated pair.
        threshold: T, drawn as a line.
        number: of the figure; those after the first have the next categories by number of pairs.
    """
    models = [str(c) for c in division.columns if str(c).startswith("p_")]
    counts = division["category"].value_counts()
    start = number * (_MOST + 1) - 1 if number else 0
    end = (number + 1) * (_MOST + 1) - 1
    parts = {} if number else {_ALL: division}
    parts |= {str(c): division[division["category"] == c] for c in counts.index[start:end]}
    left = len(counts) - end
    more = f" {left} further categories are in further figures." if left > 0 else ""
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
