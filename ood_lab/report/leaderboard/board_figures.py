"""Figures of a leaderboard: DAD and FPR95 of methods, and what more training images bring."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from itertools import pairwise
from typing import NamedTuple

import numpy as np
import pandas as pd
from matplotlib.figure import Figure
from matplotlib.ticker import AutoLocator

from ood_lab.report.figures.bars import Bar, bar_columns
from ood_lab.report.figures.layout import add_legend, panels, wrapped
from ood_lab.report.figures.lines import Line, draw_lines
from ood_lab.report.figures.style import COLOURS, SOFT, style
from ood_lab.report.leaderboard.long_table import MEAN, Leaderboard
from ood_lab.report.leaderboard.wide_table import row_names
from ood_lab.report.rendering.metric_definitions import fpr95_sentence, percent

_BACKGROUNDS = {"origin": "-", "replaced": "--"}


class Method(NamedTuple):
    """A row of the figure: its DAD, and FPR95 with half of its interval on every set in order."""

    name: str
    dad: float
    fpr95: list[float]
    halves: list[float]


def kind_of(board: Leaderboard) -> tuple[str, Sequence[str]]:
    """The paper's DAD, and what FPR95 is of: the sets, or where sets form groups, their means."""
    if "dad_of_means" in board.dads:
        return "dad_of_means", [f"{MEAN} {group}" for group in board.groups]
    return "dad", board.shift_order


def methods_by_dad(board: Leaderboard) -> list[Method]:
    """The methods with a DAD: the largest DAD first, and of equal ones the lowest mean FPR95."""
    kind, columns = kind_of(board)
    rows = board.rows
    keys = zip(rows["run"], rows["detector"], rows["metric"], rows["dataset"], strict=True)
    cells = dict(
        zip(keys, zip(rows["value"], rows["sampling_half_width"], strict=True), strict=True)
    )
    dads = rows[(rows["metric"] == kind) & rows["value"].notna()]
    names = row_names(board)
    methods = []
    for run, detector, dad in zip(dads["run"], dads["detector"], dads["value"], strict=True):
        of_sets = [cells[run, detector, "fpr95", ood] for ood in columns]
        values, halves = ([cell[k] for cell in of_sets] for k in (0, 1))
        methods.append(Method(names[run, detector], float(dad), values, halves))
    return sorted(methods, key=lambda method: (-method.dad, float(np.mean(method.fpr95))))


def dad_figure(board: Leaderboard) -> Figure:
    """A row per method; DAD, and a column of FPR95 per OOD set of the order; lines part groups.

    As in figure 6 of arXiv:2412.12683.
    """
    methods = methods_by_dad(board)
    kind, columns = kind_of(board)
    footer = (
        "Sorted by DAD, then by mean FPR95; columns by increasing shift; lines: 95% intervals.\n"
        f"{fpr95_sentence(board.fpr95_positive)}."
    )
    dads = [Bar(m.dad, text=f"{m.dad:g}", colour=COLOURS[1]) for m in methods]
    bars = {f"DAD ({board.dads[kind]})": dads}
    for place, name in enumerate(columns):
        bars[wrapped(name, 12)] = [_bar(m.fpr95[place], m.halves[place]) for m in methods]
    figure, grid = bar_columns(bars, [method.name for method in methods], footer)
    grid[0].set_xlim(0, 1.4 * math.comb(len(columns), 2))
    grid[0].xaxis.set_major_locator(AutoLocator())
    for row, (one, other) in enumerate(pairwise(methods)):
        for axes in grid if one.dad != other.dad else ():
            axes.axhline(row + 0.5, color=SOFT, lw=0.6)
    grid[1 + len(columns) // 2].set_xlabel("FPR95 in %")
    return figure


def _bar(value: float, half: float) -> Bar:
    low, high = 100 * max(value - half, 0.0), 100 * min(value + half, 1.0)
    return Bar(100 * value, low, high, text=percent(value))


def shots_figure(rows: pd.DataFrame, best: Mapping[str, tuple[str, float]] | None = None) -> Figure:
    """A panel of ID accuracy, and one of AUROC for every detector; a line per model and background.

    As in figure 7 of arXiv:2412.12683.

    Args:
        rows: ``model, background, detector, metric, shots, value, seed_std, n_seeds``, see
            :func:`ood_lab.report.leaderboard.shots_page.shots_rows`.
        best: metric → name and value that a dashed line shows.
    """
    maps = list(rows.groupby(["metric", "detector"], sort=False))
    maps.sort(key=lambda item: item[0][0] != "id_accuracy")
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
        if highest := (best or {}).get(str(metric)):
            label = f"best {'model' if metric == 'id_accuracy' else 'detector'}: {highest[0]}"
            axes.axhline(100 * highest[1], color=SOFT, ls="--", lw=1.0, label=label)
        axes.set_xticks(list(places.values()), ["all" if s < 0 else str(s) for s in places])
    add_legend(figure, grid)
    return figure


def _range(counts: pd.Series) -> str:
    low, high = int(counts.min()), int(counts.max())
    return str(low) if low == high else f"{low} to {high}"


def _places(shots: Sequence[int]) -> dict[int, float]:
    """Position of each number: logarithmic, all images (-1) a step behind the last."""
    places = {s: math.log2(s) for s in shots if s > 0}
    return places | ({s: max(places.values()) + 1.0 for s in shots if s < 0})


def _line(rows: pd.DataFrame, places: dict[int, float], model: int, background: str) -> Line:
    x = rows["shots"].map(places).to_numpy(float)
    y = 100 * rows["value"].to_numpy(float)
    # One seed has no spread.
    half = 100 * rows["seed_std"].fillna(0.0).to_numpy(float)
    name = str(rows["model"].iloc[0])
    label = name if background == "origin" else f"{name}, backgrounds {background}"
    look = style(model)._replace(line=_BACKGROUNDS.get(background, ":"))
    return Line(x, y, look, label, y - half, y + half)
