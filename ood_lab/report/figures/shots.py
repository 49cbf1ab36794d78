"""ID accuracy and AUROC against the number of training images of each class."""

from __future__ import annotations

import math
from collections.abc import Sequence

import pandas as pd
from matplotlib.artist import Artist
from matplotlib.axes import Axes
from matplotlib.colors import to_rgba
from matplotlib.figure import Figure

from ood_lab.report.figures.style import label_outer, legend_columns, panels, style

_COLUMNS = 3
_BACKGROUNDS = {"origin": "-", "replaced": "--"}


def shots_figure(rows: pd.DataFrame) -> Figure:
    """A panel of ID accuracy, and one of AUROC for every detector; a line per model and background.

    Args:
        rows: ``model, background, detector, metric, shots, value, seed_std, n_seeds``, see
            :func:`ood_lab.report.shots.shots_rows`.
    """
    panels_of = list(rows.groupby(["metric", "detector"], sort=False))
    panels_of.sort(key=lambda panel: panel[0][0] != "id_accuracy")
    footer = f"Mean of {_range(rows['n_seeds'])} seeds; bands: one standard deviation over them."
    figure, grid = panels(len(panels_of), _COLUMNS, 1.9, footer, 1.0)
    places = _places(sorted(set(rows["shots"])))
    models = list(rows["model"].unique())
    for axes, ((metric, detector), part) in zip(grid, panels_of, strict=True):
        for (model, background), line in part.groupby(["model", "background"], sort=False):
            _line(axes, line, places, models.index(model), str(background))
        axes.set_title("ID accuracy" if metric == "id_accuracy" else f"AUROC: {detector}")
        axes.set_xticks(list(places.values()), ["all" if s < 0 else str(s) for s in places])
        axes.grid(visible=False, axis="x")
    label_outer(grid, _COLUMNS, "training images per class", "in %")
    handles: dict[str, Artist] = {}
    for axes in grid:
        handles |= dict(zip(*reversed(axes.get_legend_handles_labels()), strict=True))
    figure.legend(
        list(handles.values()),
        list(handles),
        loc="outside upper center",
        ncols=legend_columns(list(handles)),
    )
    return figure


def _range(counts: pd.Series) -> str:
    low, high = int(counts.min()), int(counts.max())
    return str(low) if low == high else f"{low} to {high}"


def _places(shots: Sequence[int]) -> dict[int, float]:
    """Where each number stands: logarithmic, all images (-1) a step behind the last."""
    known = [s for s in shots if s > 0]
    places = {s: math.log2(s) for s in known}
    return places | ({s: math.log2(max(known)) + 1.0 for s in shots if s < 0})


def _line(
    axes: Axes, rows: pd.DataFrame, places: dict[int, float], model: int, background: str
) -> None:
    look = style(model)
    x = [places[s] for s in rows["shots"]]
    y = 100 * rows["value"].to_numpy(float)
    # One seed has no spread.
    half = 100 * rows["seed_std"].fillna(0.0).to_numpy(float)
    name = str(rows["model"].iloc[0])
    label = name if background == "origin" else f"{name}, backgrounds {background}"
    line = _BACKGROUNDS.get(background, ":")
    axes.plot(x, y, color=look.color, ls=line, marker=look.marker, ms=3.5, label=label, zorder=3)
    # Bands of one model share their colour: an edge in the style of the line tells them apart.
    face, edge = to_rgba(look.color, 0.12), to_rgba(look.color, 0.5)
    axes.fill_between(x, y - half, y + half, fc=face, ec=edge, lw=0.5, ls=line, zorder=2)
