"""Figures of OODBench's page: what its splits are made of, how sure models are of it."""

from __future__ import annotations

import math
from collections.abc import Iterator
from functools import partial

import numpy as np
import pandas as pd
from matplotlib.figure import Figure

from ood_lab.lvlm.benchmarks.oodbench.division import UNCUT
from ood_lab.lvlm.benchmarks.oodbench.split_contents import BY
from ood_lab.lvlm.pages.figure_captions import captioned
from ood_lab.report.figures.bars import Bar, draw_bars, name_rows
from ood_lab.report.figures.densities import draw_histograms
from ood_lab.report.figures.layout import add_legend, panels, wrapped
from ood_lab.report.figures.style import COLOURS, SOFT
from ood_lab.report.rendering.blocks import Folded, PlannedFigure
from ood_lab.schema.results import Names

_BINS = np.linspace(0.0, 1.0, 21)
_MOST = 11
_ALL = "all categories"
#: Rows of a figure of categories or places.
_ROWS = 40


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
    """Histograms of ``p_c`` (appendix H): all categories together, then those with the most pairs.

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


def distribution_figures(table: pd.DataFrame, splits: Names, title: str) -> Iterator[PlannedFigure]:
    """Of every data set its categories, fields and places, and the data sets.

    Uncut splits, as figure 8 has them, have figures of their own.

    Args:
        table: see :func:`~ood_lab.lvlm.benchmarks.oodbench.split_contents.distribution_of`.
        splits: split and what it is called.
        title: of the run.
    """
    kinds = table["split"].isin(UNCUT).map({True: "uncut", False: ""})
    for (dataset, by, kind), rows in table.groupby(["dataset", "by", kinds], sort=False):
        if rows["value"].nunique() < 2:
            continue
        words = BY[str(by)]
        plural = {"category": "categories"}.get(str(by), f"{words}s")
        shown = {split: name for split, name in splits.items() if (rows["split"] == split).any()}
        name = "_".join(filter(None, ("of", plural.replace(" ", "_"), str(dataset), str(kind))))
        of = f"{plural.capitalize()} of the {f'{kind} splits'.strip()}"
        of = f"{of}, {dataset}" if dataset else of
        draw = partial(pair_counts, rows, shown, f"{title}.", plural)
        yield captioned(name, draw, "distribution", of=of, by=words)


def pair_counts(rows: pd.DataFrame, splits: Names, footer: str, plural: str) -> Figure:
    """Pairs of each value, a panel per split; the most frequent of all splits first.

    Categories with a known field are grouped by field.

    Args:
        rows: ``split, value, field, pairs``.
        splits: split and what it is called.
        footer: text below.
        plural: what the values are.
    """
    order = rows.groupby("value", sort=False)["pairs"].sum().sort_values(ascending=False)
    names = list(order.index[:_ROWS])
    fields = rows.drop_duplicates("value").set_index("value")["field"].fillna("")
    sums = order.groupby(fields).sum()
    names.sort(key=lambda name: (-sums[fields[name]], fields[name]))
    firsts = {fields[name]: row for row, name in reversed([*enumerate(names)]) if fields[name]}
    labels = [wrapped(name, 24) for name in names]
    for field, row in firsts.items():
        labels[row] = f"{field}:  {labels[row]}"
    counts = rows.pivot_table(index="value", columns="split", values="pairs", fill_value=0)
    if left := len(order) - len(names):
        footer += f" {left:,} further {plural} have {int(order.iloc[_ROWS:].sum()):,} pairs."
    titles = [f"{words}, {int(counts[split].sum()):,} pairs" for split, words in splits.items()]
    figure, grid = panels(
        titles, footer, columns=len(titles), height=0.145 * len(names) + 0.5, extra=0.3, sharey=True
    )
    most = float(counts.loc[names].to_numpy().max())
    for place, (axes, split) in enumerate(zip(grid, splits, strict=True)):
        values = [int(counts.loc[name, split]) for name in names]
        # The numbers stand behind all bars: what bars leave free depends on their length.
        colour = COLOURS[place % len(COLOURS)]
        bars = [Bar(value, text=f"{value:,}", colour=colour) for value in values]
        draw_bars(axes, bars, text_at=1.03 * most)
        name_rows(axes, labels)
        for row in firsts.values():
            axes.axhline(row - 0.5, color=SOFT, lw=0.4)
        axes.set_xlim(0, 1.2 * most)
    return figure
