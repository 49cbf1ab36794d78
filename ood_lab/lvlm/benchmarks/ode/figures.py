"""Figures of ODE's page: hallucinations by true concept, and made against natural images."""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np
import pandas as pd
from matplotlib.figure import Figure
from numpy.typing import NDArray

from ood_lab.report.figures.heatmap import draw_cells, shades
from ood_lab.report.figures.layout import add_legend, panels
from ood_lab.report.figures.scatter import (
    component_labels,
    components_of,
    draw_clouds,
    styles_of,
)
from ood_lab.report.figures.style import COLOURS

_MOST = 30
_NATURAL = "natural"


def tendency_matrix(matrix: pd.DataFrame, groups: pd.DataFrame, footer: str) -> Figure:
    """Concepts by rows, ordered by group, hallucinations by columns; shares of a row's sum.

    Args:
        matrix: ``N[f, h]``; the 30 rows and columns with most are shown.
        groups: ``concept, group, hallucinated``.
        footer: text below.
    """
    order = groups.nlargest(_MOST, "hallucinated", keep="first")
    order = order.sort_values(["group", "hallucinated"], ascending=[True, False], kind="stable")
    columns = matrix.sum().nlargest(_MOST).index
    rows = matrix.loc[order["concept"]]
    shares = 100 * rows[columns].div(rows.sum(axis=1), axis=0).to_numpy(float)
    height = 0.16 * len(rows) + 1.2
    labels = ("hallucinated", "shown (colour: group)")
    figure, (axes,) = panels([""], footer, height=height, extra=0.4, labels=labels)
    colours = shades(0, float(np.nanmax(shares)), "Blues")
    draw_cells(axes, shares, colours, ([*map(str, rows.index)], [*map(str, columns)]))
    axes.tick_params(axis="x", rotation=90, labelsize=6)
    axes.tick_params(axis="y", labelsize=6)
    for tick, group in zip(axes.get_yticklabels(), order["group"], strict=True):
        tick.set_color(COLOURS[int(group) % len(COLOURS)])
    colours.bar(figure, axes, "% of a row's hallucinations", fraction=0.03, pad=0.02)
    return figure


def feature_clouds(
    features: Mapping[str, NDArray[np.float32]], distances: pd.DataFrame, footer: str
) -> Figure | None:
    """Sets of images along the two main directions of all; None with fewer than two sets.

    Args:
        features: ``[n, D]`` by name of the set; ``natural`` is grey.
        distances: of the sets to the natural images, for the legend, see
            :func:`~ood_lab.lvlm.benchmarks.ode.image_effectiveness.effectiveness`.
        footer: text below.
    """
    if len(features) < 2 or _NATURAL not in features:
        return None
    clouds, shares = components_of(features)
    labels = {name: f"{name.replace('_', '-')} (n={len(clouds[name])})" for name in clouds}
    for row in distances.to_dict("records"):
        known = pd.notna(row.get("ci_low"))  # runs of earlier versions have no interval
        ends = f" [{row['ci_low']:.3f}, {row['ci_high']:.3f}]" if known else ""
        labels[row["dataset"]] += f", distance {row['distance']:.3f}{ends}"
    words = component_labels(shares)
    figure, (axes,) = panels([""], footer, height=3.2, extra=0.4, labels=words)
    draw_clouds(axes, clouds, styles_of(list(clouds), _NATURAL), labels, units=False)
    add_legend(figure, [axes])
    return figure
