"""Figures of questions about objects: the curve over context, sizes, distances, CLIPScores."""

from __future__ import annotations

import numpy as np
import pandas as pd
from matplotlib.figure import Figure

from ood_lab.report.figures.bars import bar_panels
from ood_lab.report.figures.layout import add_legend, panels
from ood_lab.report.figures.lines import draw_lines, lines_of
from ood_lab.schema.results import Names

_TIERS = {"small": "small", "medium": "medium", "large": "large"}
_TRUTH = {"yes": "present: share seen", "no": "absent: share not seen"}


def context_curves(curve: pd.DataFrame, sets: Names, footer: str) -> Figure:
    """Accuracy against P(object | context), a panel for present and one for absent objects.

    Args:
        curve: see :func:`ood_lab.lvlm.object_questions.context_scores.curve_of`.
        sets: key in the rows → name of its line.
        footer: text below.
    """
    labels = ("P(object | other objects of the image)", "right answers (%)")
    figure, grid = panels(
        list(_TRUTH.values()), footer, height=2.2, extra=0.7, labels=labels, sharey=True
    )
    rows = curve.rename(columns={"accuracy": "value"})
    # Bands of single sets would cover each other.
    rows[["ci_low", "ci_high"]] = rows[["ci_low", "ci_high"]].where(rows["split"] == "all", np.nan)
    for axes, truth in zip(grid, _TRUTH, strict=True):
        part = rows[rows["truth"] == truth]
        first, *others = lines_of(part, "p_context", "split", {"all": "all questions", **sets})
        thin = [line._replace(width=0.8) for line in others]
        draw_lines(axes, [first._replace(width=1.8), *thin])
    grid[0].set_ylim(-3, 103)
    add_legend(figure, grid)
    return figure


def tier_bars(shares: pd.DataFrame, recall: pd.DataFrame, sets: Names, footer: str) -> Figure:
    """How large the objects are, and how often they are seen; a bar a tier and set.

    Args:
        shares: rows ``tier_share`` of
            :func:`ood_lab.lvlm.object_questions.set_analyses.analyses_of`.
        recall: see :func:`ood_lab.lvlm.object_questions.context_scores.by_tier`; may be empty.
        sets: key in the rows → name.
        footer: text below.
    """
    sizes = shares.rename(columns={"key": "tier"}).assign(metric="size")
    seen = recall.rename(columns={"accuracy": "value"}).assign(metric="seen")
    titles = {"size": "Present objects by size", "seen": "Share of them that is seen"}
    rows = pd.concat([sizes, seen]) if len(seen) else sizes
    return bar_panels(rows, titles, sets, footer, series=("tier", _TIERS))


def measure_bars(rows: pd.DataFrame, sets: Names, title: str, footer: str) -> Figure:
    """One bar per set and series, with its 95% interval.

    Args:
        rows: ``split, series, value, ci_low, ci_high``.
        sets: key in the rows → name.
        title: of the panel.
        footer: text below.
    """
    series = {str(name): str(name) for name in rows["series"].unique()}
    named = rows.assign(metric="one")
    return bar_panels(named, {"one": title}, sets, footer, series=("series", series), factor=1.0)
