"""How analyses of questions about objects are shown."""

from __future__ import annotations

import math
from collections.abc import Iterator
from functools import partial
from pathlib import Path

import numpy as np
import pandas as pd
from matplotlib.figure import Figure

from ood_lab.common.files import read_table
from ood_lab.lvlm.benchmarks.oric.set_analyses import (
    ANNOTATED,
    TIER_SHARES,
    TIERS,
    of_whole_sets,
)
from ood_lab.lvlm.pages.benchmark_page import captioned, title_of
from ood_lab.report.figures.bars import bar_panels
from ood_lab.report.figures.layout import add_legend, panels
from ood_lab.report.figures.lines import draw_lines, lines_of
from ood_lab.report.rendering.blocks import PlannedFigure
from ood_lab.report.rendering.metric_definitions import percent
from ood_lab.report.rendering.table import (
    Column,
    Group,
    Head,
    Table,
    name_cell,
    number_cell,
    table_of,
)
from ood_lab.schema.results import Names, Row

#: Panels of the figure of sizes.
_SIZES = {"size": "Present objects by size", "seen": "Share of them that is seen"}
_TRUTH = {"yes": "present: share seen", "no": "absent: share not seen"}


def context_curves(curve: pd.DataFrame, sets: Names, footer: str) -> Figure:
    """Accuracy against P(object | context), a panel for present and one for absent objects.

    Args:
        curve: see :func:`ood_lab.lvlm.benchmarks.oric.set_analyses.curve_of`.
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
        first, *rest = lines_of(part, "p_context", "split", {"all": "all questions", **sets})
        thin = [line._replace(width=0.8) for line in rest]
        draw_lines(axes, [first._replace(width=1.8), *thin])
    grid[0].set_ylim(-3, 103)
    add_legend(figure, grid)
    return figure


#: What is called what there is but for the questions.
_ALL_OBJECTS = {ANNOTATED: "all annotated objects"}
_LABELS = {"yes": "present", "no": "absent"}
#: Of each analysis: its group of columns, what its columns are, factor and digits of a value.
_GROUPS = {
    "tier_share": ("edges as chosen", "key", 100, 1),
    "coco_tier_share": ("COCO's edges", "key", 100, 1),
    "clip_score": ("CLIPScore", "label", 1, 1),
    "p_context": ("P(object | context)", "label", 1, 3),
    "min_distance": ("least distance", "clip", 1, 3),
}
#: Analyses that have a figure, and what their bars are divided by.
_FIGURES = {"clip_score": "label", "p_context": "label", "min_distance": "clip"}


def context_words(curve: pd.DataFrame) -> str:
    """What the answers of all sets say of expected and unexpected objects, and how surely.

    Args:
        curve: see :func:`ood_lab.lvlm.benchmarks.oric.set_analyses.curve_of`.
    """
    sentences = ["Bins have equally many questions."]
    for truth, words in (("yes", "Of objects that are there"), ("no", "Of absent objects")):
        rows = curve[(curve["split"] == "all") & (curve["truth"] == truth)].sort_values("p_context")
        if len(rows) < 2:
            continue
        # An absent object that is seen is a wrong answer.
        low, high = (_seen(row, truth) for row in rows.iloc[[0, -1]].to_dict("records"))
        if math.isnan(low[1]) or math.isnan(high[1]):
            verdict = "there are no intervals to tell them apart"
        elif low[2] < high[1]:
            verdict = "expected ones are seen more often"
        elif high[2] < low[1]:
            verdict = "expected ones are seen less often"
        else:
            verdict = "the intervals overlap"
        least, most = (
            percent(value) + ("" if math.isnan(a) else f" [{percent(a)}, {percent(b)}]")
            for value, a, b in (low, high)
        )
        sentences.append(
            f"{words}, {least}% are seen where they are least expected and {most}% where they are "
            f"most expected: {verdict}."
        )
    return " ".join(sentences)


def _seen(row: Row, truth: str) -> tuple[float, float, float]:
    """Share of "yes", and its interval."""
    value, low, high = (float(row[name]) for name in ("accuracy", "ci_low", "ci_high"))
    return (value, low, high) if truth == "yes" else (1 - value, 1 - high, 1 - low)


def analysis_figures(
    results: pd.DataFrame, tiers: pd.DataFrame | None, sets: Names, footer: str
) -> Iterator[PlannedFigure]:
    """Sizes of objects, and every analysis that has a figure.

    Args:
        results: see :func:`analyses_in`.
        tiers: see :func:`ood_lab.lvlm.benchmarks.oric.set_analyses.by_tier`; None = no answers.
        sets: key in the rows → name.
        footer: text below.
    """
    for analysis, column in TIER_SHARES.items():
        shares = results[results["analysis"] == analysis]
        if not len(shares):
            continue
        parts = [shares.rename(columns={"key": "tier"}).assign(metric="size")]
        if tiers is not None and len(seen := tiers[tiers["edges"] == column]):
            parts.append(seen.rename(columns={"accuracy": "value"}).assign(metric="seen"))
        names, by = {**sets, **_ALL_OBJECTS}, ("tier", {tier: tier for tier in TIERS})
        draw = partial(bar_panels, pd.concat(parts), _SIZES, names, footer, series=by)
        yield captioned(f"{column}s", draw)
    for name, series in _FIGURES.items():
        rows = of_whole_sets(results[results["analysis"] == name])
        if len(rows):
            rows = rows.assign(series=rows[series].replace(_LABELS).astype(str))
            by = ("series", {label: label for label in rows["series"].unique()})
            title = {name: title_of(name)}
            draw = partial(
                bar_panels, rows, title, sets, footer, panel="analysis", series=by, factor=1.0
            )
            yield captioned(name, draw)


def analyses_in(folder: Path) -> pd.DataFrame | None:
    """What the run that built the questions has found out about them, if anything."""
    file = folder / "analyses.csv"
    results = read_table(file) if file.is_file() else None
    return results if results is not None and len(results) else None


def analysis_tables(results: pd.DataFrame, sets: Names) -> Iterator[Table]:
    """What is known of the sets without an answer.

    Args:
        results: see :func:`analyses_in`.
        sets: key in the rows → name.
    """
    is_size = results["analysis"].isin(TIER_SHARES)
    captions = {
        "Sizes of the objects that are there, % of each set": results[is_size],
        "Images and objects, before anyone answers": of_whole_sets(results[~is_size]),
    }
    for caption, rows in captions.items():
        if len(rows):
            yield _analysis_table(caption, rows, {**sets, **_ALL_OBJECTS})


def _analysis_table(caption: str, rows: pd.DataFrame, sets: Names) -> Table:
    """One row per set, and a group of columns for each analysis."""
    splits = [split for split in sets if (rows["split"] == split).any()]
    names = [name_cell(sets[split], place) for place, split in enumerate(splits)]
    columns = [Column(Head("questions", "ascending"), names)]
    for analysis, part in rows.groupby("analysis", sort=False):
        title, by, factor, digits = _GROUPS[str(analysis)]
        group, show = Group(title), f"{{:.{digits}f}}".format
        for key, cells in part.groupby(by, sort=False):
            results = cells.set_index("split")[["value", "ci_low", "ci_high"]] * factor
            item = results.reindex(splits).to_numpy()
            shown = [number_cell(value, low, high, show) for value, low, high in item]
            columns.append(Column(Head(_LABELS.get(str(key), str(key)), group=group), shown))
    return table_of(caption, columns, spreads=True)
