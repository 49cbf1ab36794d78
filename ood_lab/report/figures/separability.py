"""Sets in the feature spaces of several backbones, and how well each space separates them."""

from __future__ import annotations

import math
from collections.abc import Mapping
from pathlib import Path

import numpy as np
import pandas as pd
from matplotlib.axes import Axes
from matplotlib.figure import Figure

from ood_lab.report.figures import write_figure
from ood_lab.report.figures.clouds import draw_clouds, styles_of
from ood_lab.report.figures.shift import label_of
from ood_lab.report.figures.style import (
    GREY,
    INK,
    MARKERS,
    legend_columns,
    new_figure,
    rc,
    wrapped,
)
from ood_lab.report.page import FigureFile
from ood_lab.report.shift_tables import distances_of
from ood_lab.shift import Separability

_COLUMNS = 3
_FACES = (INK, "white", GREY)
#: Ratio of the largest to the smallest distance above which the scale is logarithmic.
_WIDE = 30


def write_separability_figure(folder: Path, found: Mapping[str, Separability]) -> FigureFile:
    """Writes ``separability.png`` and ``separability.svg``.

    Args:
        folder: made if missing.
        found: backbone -> what was found in its space.
    """
    caption = (
        "Above: first principal components of ID features; lines hold the middle half of a set. "
        "Below: Bhattacharyya distance to ID, larger = easier to separate."
    )
    with rc():
        figure = separability_figure(found)
        return write_figure(folder, "separability", "Separability from ID", caption, figure)


def separability_figure(found: Mapping[str, Separability]) -> Figure:
    """One scatter per backbone, and the distances of all of them below."""
    distances = distances_of({name: space.table for name, space in found.items()})
    columns = min(len(found), _COLUMNS)
    rows = math.ceil(len(found) / columns)
    above, below = 7.0 / max(columns, 2), 0.3 * len(distances) + 0.5
    kept = sorted({int(space.table["components"].iloc[0]) for space in found.values()})
    footer = f"Distances on {', '.join(map(str, kept))} principal components of the ID features."
    figure = new_figure(rows * above + below + 0.9, footer)
    grid = figure.add_gridspec(rows + 1, columns, height_ratios=[*[above] * rows, below])
    for place, (backbone, space) in enumerate(found.items()):
        axes = figure.add_subplot(grid[place // columns, place % columns])
        _scatter(axes, space)
        axes.set_title(wrapped(backbone, 30))
    handles, labels = axes.get_legend_handles_labels()
    figure.legend(handles, labels, loc="outside upper center", ncols=legend_columns(labels))
    _distances(figure.add_subplot(grid[rows, :]), distances)
    return figure


def _scatter(axes: Axes, space: Separability) -> None:
    """All sets on the first two components; the styles follow the order of the sets."""
    points = {name: rows.numpy() for name, rows in space.points.items()}
    labels = {name: "ID" if name == "id" else label_of(name) for name in points}
    draw_clouds(axes, points, styles_of(list(points), "id"), labels)
    shares = space.projection.variance_share[:2].tolist()
    first, second = (
        f"PC {k} ({100 * share:.0f}% of variance)" for k, share in enumerate(shares, 1)
    )
    axes.set(xlabel=first, ylabel=second)
    axes.tick_params(labelbottom=False, labelleft=False, length=0)
    axes.grid(visible=False)


def _distances(axes: Axes, distances: pd.DataFrame) -> None:
    """One row per set, one mark per backbone."""
    places = np.arange(len(distances))
    for position, backbone in enumerate(distances):
        axes.plot(
            distances[backbone],
            places,
            MARKERS[position % len(MARKERS)],
            color=INK,
            markerfacecolor=_FACES[position % len(_FACES)],
            label=str(backbone),
        )
    axes.set_yticks(places, [wrapped(label_of(str(name)), 24) for name in distances.index])
    axes.set_ylim(len(distances) - 0.5, -0.5)
    smallest, largest = (float(pick(distances.to_numpy())) for pick in (np.min, np.max))
    if 0 < smallest * _WIDE < largest:
        axes.set_xscale("log")
    else:
        axes.set_xlim(left=0)
    axes.set_xlabel("Bhattacharyya distance to ID")
    axes.tick_params(axis="y", length=0)
    if distances.shape[1] > 1:
        axes.legend(loc="upper right")  # the nearest sets are above, on the left
