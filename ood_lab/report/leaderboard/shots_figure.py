"""ID accuracy and AUROC against the number of training images of each class."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence

import pandas as pd
from matplotlib.figure import Figure

from ood_lab.report.figures.layout import add_legend, panels
from ood_lab.report.figures.lines import Line, draw_lines
from ood_lab.report.figures.style import SOFT, style

_BACKGROUNDS = {"origin": "-", "replaced": "--"}


def shots_figure(rows: pd.DataFrame, best: Mapping[str, tuple[str, float]] | None = None) -> Figure:
    """A panel of ID accuracy, and one of AUROC for every detector; a line per model and background.

    Args:
        rows: ``model, background, detector, metric, shots, value, seed_std, n_seeds``, see
            :func:`ood_lab.report.leaderboard.shots_page.shots_rows`.
        best: metric → name and value that a dashed line shows.
    """
    maps = list(rows.groupby(["metric", "detector"], sort=False))
    maps.sort(key=lambda each: each[0][0] != "id_accuracy")
    titles = ["ID accuracy" if m == "id_accuracy" else f"AUROC: {d}" for (m, d), _ in maps]
    footer = f"Mean of {_range(rows['n_seeds'])} seeds; bands: one standard deviation over them."
    footer = footer if (rows["n_seeds"] > 1).any() else "One seed: no spread is known."
    labels = ("training images per class", "in %")
    figure, grid = panels(titles, footer, height=1.9, extra=1.0, labels=labels)
    places = _places(sorted(set(rows["shots"])))
    models = list(rows["model"].unique())
    for axes, ((metric, _), part) in zip(grid, maps, strict=True):
        groups = part.groupby(["model", "background"], sort=False)
        lines = [
            _line(line, places, models.index(name), str(back)) for (name, back), line in groups
        ]
        draw_lines(axes, lines, edged=True)
        if found := (best or {}).get(str(metric)):
            label = f"best {'model' if metric == 'id_accuracy' else 'detector'}: {found[0]}"
            axes.axhline(100 * found[1], color=SOFT, ls="--", lw=1.0, label=label)
        axes.set_xticks(list(places.values()), ["all" if s < 0 else str(s) for s in places])
    add_legend(figure, grid)
    return figure


def _range(counts: pd.Series) -> str:
    low, high = int(counts.min()), int(counts.max())
    return str(low) if low == high else f"{low} to {high}"


def _places(shots: Sequence[int]) -> dict[int, float]:
    """Position of each number: logarithmic, all images (-1) a step behind the last."""
    known = [s for s in shots if s > 0]
    places = {s: math.log2(s) for s in known}
    return places | ({s: math.log2(max(known)) + 1.0 for s in shots if s < 0})


def _line(rows: pd.DataFrame, places: dict[int, float], model: int, background: str) -> Line:
    x = rows["shots"].map(places).to_numpy(float)
    y = 100 * rows["value"].to_numpy(float)
    # One seed has no spread.
    half = 100 * rows["seed_std"].fillna(0.0).to_numpy(float)
    name = str(rows["model"].iloc[0])
    label = name if background == "origin" else f"{name}, backgrounds {background}"
    look = style(model)._replace(line=_BACKGROUNDS.get(background, ":"))
    return Line(x, y, look, label, y - half, y + half)
