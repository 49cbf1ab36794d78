"""Figures of OODBench's statistics: draws with what was found, and errors that models share."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from functools import partial
from typing import Any, NamedTuple

import numpy as np
import pandas as pd
from matplotlib.figure import Figure

from ood_lab.common.grouping import distinct
from ood_lab.lvlm.pages.benchmark_page import captioned, title_of
from ood_lab.lvlm.statistics.degradation import METRICS
from ood_lab.lvlm.statistics.statistic_tables import Draws
from ood_lab.report.figures.bars import Bar, draw_bars, name_rows
from ood_lab.report.figures.densities import draw_histograms
from ood_lab.report.figures.heatmap import draw_cells, shades
from ood_lab.report.figures.layout import (
    COLOURS,
    INK,
    SOFT,
    WIDTH,
    Style,
    add_legend,
    panels,
    short_names,
    wrapped,
)
from ood_lab.report.figures.lines import Line, draw_lines, lines_of
from ood_lab.report.rendering.blocks import Folded, PlannedFigure
from ood_lab.report.rendering.metric_definitions import p_text
from ood_lab.schema.arrays import Floats, Reals, positions
from ood_lab.schema.results import Tables

_METRICS = {name: name for name in METRICS} | {"f1": "F1", "mcc": "MCC"}
_HARD = {
    "variance": ("E3: variance of degradations, points²", 1e4),
    "pearson": ("E4: Pearson's r with all hard pairs", 1.0),
    "spearman": ("E4: Spearman's ρ with all hard pairs", 1.0),
}
_BINS = 40
_LINES = ("-", "--", ":")


class Panel(NamedTuple):
    """Resamples, and the position of a number among them.

    Attributes:
        draws: label → ``[B]``.
        lines: label → position of a vertical line, or of two; the first is the number itself.
    """

    draws: Draws
    lines: Mapping[str, float | tuple[float, float]]


def statistics_figures(
    tables: Tables, draws: pd.DataFrame, ood: str
) -> Iterator[PlannedFigure | Folded]:
    """The figures that there are numbers for.

    Args:
        tables: by the name of their file.
        draws: see :attr:`~ood_lab.lvlm.statistics.statistic_tables.Findings.draws`.
        ood: what the OOD split is called.
    """
    for name, draw in (("degradation", degradation_draws), ("tost", tost_draws)):
        if len(tables.get(name, ())):
            first, *rest = (
                captioned(
                    f"{name}_{metric}",
                    partial(draw, tables[name], draws, metric, ood),
                    name,
                    metric=words,
                )
                for metric, words in _METRICS.items()
            )
            yield first
            yield Folded(f"{title_of(name)}, other metrics", rest, page_only=True)
    if len(tables["wrong_by"]) > 2:
        yield captioned(
            "errors", partial(error_bars, tables["wrong_by"], tables["errors"], ood), ood=ood
        )
        yield captioned("errors_together", partial(error_cells, tables["errors_together"], ood))
    if "samples" in tables:
        yield captioned("drops", partial(drop_lines, tables["samples"], ood))
    for name, of_draws in (("hard", hard_draws), ("mmd", mmd_draws)):
        if name in tables:
            yield captioned(name, partial(of_draws, tables[name], draws))


def degradation_draws(table: pd.DataFrame, draws: pd.DataFrame, metric: str, ood: str) -> Figure:
    """A panel per model: draws of ID minus OOD, by chance and as found, in points.

    Args:
        table: ``model, metric, value, low, high, p``.
        draws: see :func:`statistics_figures`.
        metric: the one to show.
        ood: what the OOD split is called.
    """
    words = {"by chance": "permuted", "resampled": "resampled"}
    parts = {}
    for name, row, results in _of_models("degradation", table, draws, metric):
        shown = {label: 100 * results[key] for label, key in words.items()}
        title = f"{name}: {100 * row['value']:.1f}, p {p_text(row['p'])}"
        parts[title] = Panel(shown, {"found": 100 * row["value"]})
    label = f"{_METRICS[metric]} on ID minus {ood}, points"
    footer = "resamples. p: share by chance at least as large as found, one-sided."
    return _histograms(parts, label, footer, alike=True)


def tost_draws(table: pd.DataFrame, draws: pd.DataFrame, metric: str, ood: str) -> Figure:
    """A panel per model: its degradation minus the open models' mean, resampled, in points.

    Args:
        table: ``model, metric, delta, low, high, eta, equivalent``.
        draws: see :func:`statistics_figures`.
        metric: to be drawn.
        ood: name of the OOD split.
    """
    parts = {}
    for name, row, results in _of_models("tost", table, draws, metric):
        delta, low, high, eta = (100 * row[key] for key in ("delta", "low", "high", "eta"))
        lines = {"found": delta, "90% interval": (low, high), "± eta": (-eta, eta)}
        verdict = "equivalent" if row["equivalent"] else "not equivalent"
        parts[f"{name}: {delta:+.1f}, {verdict}"] = Panel(
            {"resampled": 100 * results["difference"]}, lines
        )
    label = f"degradation of {_METRICS[metric]} ({ood}) minus the open models' mean, points"
    footer = "resamples. Equivalent: the 90% interval is within ± eta."
    return _histograms(parts, label, footer, alike=True)


def drop_lines(table: pd.DataFrame, ood: str) -> Figure:
    """The accuracy that every model loses on hard and on OOD pairs, by the loss on hard ones.

    Args:
        table: ``model, samples, drop, low, high``.
        ood: name of the OOD split.
    """
    rows = table[table["samples"] != "id"].sort_values("drop")
    models = rows.loc[rows["samples"] == "hard", "model"].tolist()
    words = dict.fromkeys(["hard", *rows["samples"]], ood) | {"hard": "hard"}
    rows = rows.rename(columns={"drop": "value", "low": "ci_low", "high": "ci_high"})
    rows = rows.assign(place=positions(models, rows["model"]))
    lines: list[Line] = []
    for line, colour in zip(lines_of(rows, "place", "samples", words), COLOURS, strict=False):
        lines.append(line)
        if (trend := exponential_trend(line.x, line.y)) is not None:
            lines.append(Line(line.x, trend, Style(colour, ":", ""), f"{line.label}: trend"))
    labels = ("", "accuracy lost from ID, points")
    footer = "95% intervals. Trends: a exp(b x), least squares of the logarithm."
    figure, (axes,) = panels([""], footer, height=2.6, extra=0.8, width=4.8, labels=labels)
    draw_lines(axes, lines)
    names = [wrapped(name, 12) for name in short_names(models)]
    axes.set_xticks(range(len(models)), names, fontsize=6)
    axes.axhline(0, color=SOFT, lw=0.6)
    add_legend(figure, [axes])
    return figure


def exponential_trend(x: Reals, y: Reals) -> Floats | None:
    """``a exp(b x)`` at x, from least squares of ``log y`` on the positive y; None of fewer than 3.

    Args:
        x: ``[N]``.
        y: ``[N]``.
    """
    kept = y > 0
    if kept.sum() < 3:
        return None
    slope, level = np.polyfit(x[kept], np.log(y[kept]), 1)
    return np.asarray(np.exp(level + slope * x))


def hard_draws(table: pd.DataFrame, draws: pd.DataFrame) -> Figure:
    """E3 and E4: what subsets of the hard pairs give, with the value of the OOD pairs."""
    values = table[table["test"] == "E3, E4"].set_index("quantity")["value"].astype(float)
    results = _of(draws, "hard")
    parts = {
        f"{title}: p {p_text(values[f'{name}_p'])}": Panel(
            {"subsets of the hard pairs": factor * results[name]},
            {"OOD pairs": factor * values[name]},
        )
        for name, (title, factor) in _HARD.items()
    }
    footer = (
        f"subsets of {int(values['pairs']):,} hard pairs. p: share of them at most "
        "as large as that of the OOD pairs."
    )
    return _histograms(parts, "", footer)


def mmd_draws(table: pd.DataFrame, draws: pd.DataFrame) -> Figure:
    """MMD² of train and val, resampled, compared with parts of train and shuffled sets."""
    results, values = _of(draws, "mmd"), table.set_index("quantity")["value"]
    words = {
        "resampled": "resampled",
        "parts of train": "parts",
        "train and val shuffled": "permuted",
    }
    lines = {
        "MMD²": values["at_sizes"],
        "threshold: 95% of the parts": values["threshold"],
        "upper end of the interval": values["high"],
    }
    panel = Panel({label: results[key] for label, key in words.items()}, lines)
    sizes = " and ".join(f"{size:,}" for size in values["sizes"])
    verdict = "equivalent" if values["equivalent"] else "not equivalent"
    footer = f"resamples, all of {sizes} pairs. Verdict: {verdict}."
    return _histograms({"": panel}, "class-conditional MMD²", footer, columns=1)


def error_bars(counts: pd.DataFrame, models: pd.DataFrame, ood: str) -> Figure:
    """How many models get a question wrong, and each model's errors.

    Args:
        counts: see :func:`~ood_lab.lvlm.statistics.model_tables.wrong_counts`.
        models: see :func:`~ood_lab.lvlm.statistics.model_tables.model_errors`.
        ood: what the OOD split is called.
    """
    most = max(len(counts), len(models))
    titles = ["wrong by so many models, % of questions", "wrong by each model, %"]
    n = int(counts["questions"].sum())
    figure, (first, second) = panels(
        titles, f"{n:,} questions of {ood}.", columns=2, height=0.26 * most + 0.5, extra=0.6
    )
    numbers = [f"{k:,}" if k else "none" for k in counts["models"]]
    names = [wrapped(name, 18) for name in short_names(list(models["model"]))]
    for axes, rows, table in ((first, numbers, counts), (second, names, models)):
        draw_bars(axes, [Bar(100 * s, text=f"{100 * s:.1f}") for s in table["share"]])
        name_rows(axes, rows)
        axes.set_xlim(0, 122)
        axes.set_xticks([0, 50, 100])
    return figure


def error_cells(table: pd.DataFrame, ood: str) -> Figure:
    """See :func:`~ood_lab.lvlm.statistics.model_tables.errors_together`."""
    models = distinct(table["model"])
    own = np.eye(len(models), dtype=bool)  # of what a model gets wrong, it gets wrong all
    by_models = table.set_index(["model", "other"]).unstack()
    share, chance = (
        np.where(own, np.nan, 100 * by_models[name].loc[models, models])
        for name in ("share", "chance")
    )
    size = 0.42 * len(models)
    figure, (axes,) = panels(
        [""],
        f"Wrong answers to questions of {ood}, %.",
        height=size + 0.8,
        extra=0.5,
        width=min(WIDTH, 0.75 * len(models) + 2.6),
        labels=("gets wrong, too", "of what it gets wrong"),
    )
    names = [wrapped(name, 12) for name in short_names(models)]
    texts, notes = (
        [["" if np.isnan(v) else f"{v:.0f}" for v in row] for row in values]
        for values in (share, chance)
    )
    draw_cells(axes, shades(0, 100).of(share), (names, names), texts, notes)
    return figure


def _of(draws: pd.DataFrame, table: str, **keys: str) -> dict[str, np.ndarray]:
    """The draws of a statistic by what they are of."""
    rows = draws[draws["table"] == table]
    for column, key in keys.items():
        rows = rows[rows[column] == key]
    return {str(name): part.to_numpy(float) for name, part in rows.groupby("draws")["value"]}


def _of_models(
    name: str, table: pd.DataFrame, draws: pd.DataFrame, metric: str
) -> Iterator[tuple[str, dict[Any, Any], dict[str, np.ndarray]]]:
    """Of each model its short name, its row of the table, and the draws behind it."""
    rows = table[table["metric"] == metric].to_dict("records")
    for short, row in zip(short_names([str(r["model"]) for r in rows]), rows, strict=True):
        yield short, row, _of(draws, name, model=row["model"], metric=metric)


def _histograms(
    parts: Mapping[str, Panel],
    label: str,
    footer: str,
    *,
    alike: bool = False,
    columns: int = 3,
) -> Figure:
    """A panel of histograms per title; ``alike``: all on one axis.

    The number of draws comes before the footer.
    """
    count = max(len(values) for panel in parts.values() for values in panel.draws.values())
    columns = 2 if alike and len(parts) in (2, 4) else columns
    width = 4.8 if columns == 1 else WIDTH
    figure, grid = panels(
        list(parts),
        f"{count:,} {footer}",
        columns=columns,
        height=1.3 if columns > 1 else 2.2,
        extra=0.7,
        width=width,
        labels=(label, "fraction of resamples"),
        sharex=alike,
    )
    for axes, panel in zip(grid, parts.values(), strict=True):
        draw_histograms(axes, panel.draws, _edges(parts.values() if alike else [panel]))
        for (words, x), dash in zip(panel.lines.items(), _LINES, strict=False):
            look: Any = {"color": INK if dash == "-" else SOFT, "ls": dash, "lw": 1.0}
            for number, at in enumerate(np.atleast_1d(x)):  # the legend names both once
                axes.axvline(float(at), label="" if number else words, **look)
    add_legend(figure, grid)
    return figure


def _edges(parts: Iterable[Panel]) -> Floats:
    """Bins from the least to the largest of all that is drawn, with a margin."""
    items = [item for part in parts for item in (*part.draws.values(), *part.lines.values())]
    values = np.concatenate([np.atleast_1d(item) for item in items])
    low, high = np.nanmin(values), np.nanmax(values)
    room = 0.05 * (high - low) or 0.5
    return np.linspace(low - room, high + room, _BINS + 1)
