"""DAD and FPR95 of the methods of several runs (arXiv:2412.12683, figure 6)."""

from __future__ import annotations

import math
from collections.abc import Sequence
from itertools import pairwise
from typing import NamedTuple

import numpy as np
from matplotlib.figure import Figure
from matplotlib.ticker import AutoLocator

from ood_lab.report.figures.bars import Bar, bar_columns
from ood_lab.report.figures.layout import wrapped
from ood_lab.report.figures.style import COLOURS, SOFT
from ood_lab.report.leaderboard.long_table import MEAN, Leaderboard
from ood_lab.report.leaderboard.wide_table import row_names
from ood_lab.report.rendering.metric_definitions import fpr95_sentence, percent


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
    found = []
    for run, detector, dad in zip(dads["run"], dads["detector"], dads["value"], strict=True):
        of_sets = [cells[run, detector, "fpr95", ood] for ood in columns]
        values, halves = map(list, zip(*of_sets, strict=True))
        found.append(Method(names[run, detector], float(dad), values, halves))
    return sorted(found, key=lambda method: (-method.dad, float(np.mean(method.fpr95))))


def dad_figure(board: Leaderboard) -> Figure:
    """A row per method; DAD, and a column of FPR95 per OOD set of the order; lines part groups."""
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
