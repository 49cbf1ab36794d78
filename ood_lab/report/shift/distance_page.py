"""What a page shows of distances: pictures, causes, a map of the sets."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from functools import partial

import numpy as np
import pandas as pd
from matplotlib.figure import Figure

from ood_lab.common.english import ordinal
from ood_lab.metrics import (
    named_causes,
    strongest_first,
)
from ood_lab.report.figures.bars import Bar, draw_bars, name_rows
from ood_lab.report.figures.densities import draw_densities, draw_histograms, limits_of
from ood_lab.report.figures.layout import COLOURS, GREY, add_legend, panels
from ood_lab.report.figures.scatter import styles_of
from ood_lab.report.rendering.blocks import (
    Block,
    Folded,
    Pictures,
    PlannedFigure,
    Section,
    Text,
)
from ood_lab.report.rendering.prose import differs, sentences
from ood_lab.report.rendering.thumbnails import Thumbnails
from ood_lab.report.shift.shift_figures import (
    ShiftInputs,
    build_shift_figures,
    draw_ruler,
    label_of,
)
from ood_lab.report.shift.shift_tables import summary_tables
from ood_lab.report.verdict import WORDS as VERDICT_WORDS
from ood_lab.report.verdict import Verdict
from ood_lab.schema.image_statistics import value_text
from ood_lab.schema.results import ID_TEST, Names
from ood_lab.schema.run_record import Facts

_ENDS = ("nearest", "median", "farthest")


@dataclass(frozen=True)
class MeasuredDistances:
    """Shift of the images from ID.

    Attributes:
        degrees: one row per image: ``dataset, index`` and the columns of ``axes``.
        summary: see :func:`ood_lab.report.shift.shift_tables.summary_tables`.
        axes: column of ``degrees`` → its words.
        facts: ``by``, ``k`` and ``rulers``; ``unsplit`` where nothing separates the two shifts.
        images: statistics of every image, which causes rest on.
    """

    degrees: pd.DataFrame
    summary: pd.DataFrame
    axes: Names
    facts: Facts
    images: pd.DataFrame | None = None

    @property
    def footer(self) -> str:
        """How it was measured."""
        k, by = self.facts["k"], self.facts["by"]
        more = " Covariate: image statistics, see What differs." if self.facts["unsplit"] else ""
        return f"Cosine distance to the {ordinal(k)} nearest ID image, features of {by}.{more}"


def sections_of(
    measured: MeasuredDistances,
    verdict: Verdict,
    store: Thumbnails,
) -> tuple[PlannedFigure, list[Section], list[Section]]:
    """The map of the datasets, what is above the results, and what is below them."""
    below: list[Section] = []
    if measured.facts["unsplit"]:
        shift_map = PlannedFigure(
            "distance",
            "Distance from ID",
            "The further right a line is of the grey ID test images, the larger the shift.",
            partial(distance_densities, measured),
        )
    else:
        inputs = ShiftInputs(
            measured.degrees, measured.summary, measured.footer, measured.facts["rulers"]
        )
        shift_map, *figures = build_shift_figures(inputs)
        tables: list[Block] = [Folded(t.caption, [t]) for t in summary_tables(measured.summary)]
        below = [Section("Distances", [*tables, *figures])]
    words = next(iter(measured.axes.values()))
    compared: list[Block] = [Text(f"Ordered by distance {words}."), *_pictures(measured, store)]
    above = [Section("Example images", compared)]
    if measured.images is not None and len(verdict.causes):
        differences = list(cause_blocks(verdict.causes, measured.images, store))
        above.insert(0, Section("What differs", differences))
    return shift_map, above, below


def _pictures(measured: MeasuredDistances, store: Thumbnails) -> Iterator[Pictures]:
    """Some ID test images, and of every set the nearest, the median and the farthest."""
    (axis, *_) = measured.axes
    for name, rows in measured.degrees.groupby("dataset", sort=False):
        ordered = rows.sort_values(axis, ignore_index=True)
        items = store.examples(ordered, _ENDS, lambda row: f"{row[axis]:.3f}")
        yield Pictures(items, label_of(str(name)), few=True)


def distance_densities(measured: MeasuredDistances) -> Figure:
    """The density of every set along each distance."""
    titles = [f"distance {words}" for words in measured.axes.values()]
    labels = ("distance", "density")
    figure, grid = panels(titles, measured.footer, height=3.0, extra=0.6, columns=1, labels=labels)
    for axes, axis in zip(grid, measured.axes, strict=True):
        values = {
            str(name): rows[axis].to_numpy(np.float64)
            for name, rows in measured.degrees.groupby("dataset", sort=False)
        }
        names = {name: label_of(name) for name in values}
        limits = limits_of(list(values.values()))
        styles = styles_of(list(values), ID_TEST)
        draw_densities(axes, values, styles, limits, labels=names, filled=ID_TEST)
        for ruler in measured.facts["rulers"]:
            if ruler["axis"] == axis:
                draw_ruler(axes, ruler, upright=False)
                axes.set_title(axes.get_title(), fontsize=7, pad=26)  # above the second scale
    add_legend(figure, grid)
    return figure


#: Bars and bins of a panel, and datasets whose panels are open.
_BARS, _BINS, _OPEN = 8, 20, 4


def cause_blocks(causes: pd.DataFrame, images: pd.DataFrame, store: Thumbnails) -> Iterator[Block]:
    """A fold for every dataset, the one with the strongest cause first.

    Args:
        causes: rows of kind ``cause``, see :func:`ood_lab.metrics.causes_of`.
        images: ``dataset, index`` and the statistics of every image.
        store: small pictures.
    """
    aurocs = causes[causes["metric"] == "auroc"]
    first = strongest_first(aurocs.drop_duplicates("dataset"))
    for place, name in enumerate(first["dataset"].astype(str)):
        of_set = aurocs[aurocs["dataset"] == name].reset_index(drop=True)
        statistic = str(of_set.loc[0, "statistic"])
        causes_of_set = named_causes(of_set).to_dict("records")
        blocks: list[Block] = [
            *map(Text, sentences(VERDICT_WORDS, "cause", causes_of_set, name)),
            PlannedFigure(
                f"causes_{place + 1}",
                f"{label_of(name)}: what differs",
                "Left: how well a statistic of the image tells the dataset from ID test (50% = not "
                f"at all), with 95% intervals; grey = not significant or faint. Right: {statistic} "
                "of both.",
                partial(cause_figure, of_set, images, name),
            ),
            _examples(of_set.iloc[0], images, name, store),
        ]
        yield Folded(label_of(name), blocks, open=place < _OPEN)


def cause_figure(causes: pd.DataFrame, images: pd.DataFrame, name: str) -> Figure:
    """Bars of the first causes of a dataset, and histograms of the first one.

    Args:
        causes: rows of ``auroc`` of the dataset, the first cause first.
        images: see :func:`cause_blocks`.
        name: of the dataset.
    """
    shown = strongest_first(causes).head(_BARS)
    statistic = str(causes.loc[0, "statistic"])
    footer = "Intervals are bootstrap intervals; significance is Holm-corrected over statistics."
    titles = ["AUROC (%)", statistic]
    figure, (left, right) = panels(titles, footer, height=0.22 * len(shown) + 0.5, extra=0.4)
    statistics = set(named_causes(shown).index)
    bars = []
    for index, row in shown.iterrows():
        bar = Bar.of(row.to_dict())
        if bar.value < 50:
            bar = Bar(100 - bar.value, 100 - bar.high, 100 - bar.low)
        colour = COLOURS[0] if index in statistics else GREY
        bars.append(bar._replace(text=f"{bar.value:.0f}", colour=colour))
    draw_bars(left, bars)
    name_rows(left, [differs(row) for _, row in shown.iterrows()])
    left.set_xlim(0, 115)
    left.axvline(50, color=GREY, lw=0.8)
    values = {
        label_of(of): images.loc[images["dataset"] == of, statistic].to_numpy(np.float64)
        for of in (ID_TEST, name)
    }
    low, high = limits_of(list(values.values()))
    draw_histograms(right, values, np.linspace(low, high, _BINS + 1))
    right.set_yticks([])
    add_legend(figure, [right])
    return figure


def _examples(cause: pd.Series, images: pd.DataFrame, name: str, store: Thumbnails) -> Pictures:
    """The least, the median and the most shifted image of a dataset in its first cause."""
    statistic = str(cause["statistic"])
    rows = images[images["dataset"] == name]
    ordered = rows.sort_values(statistic, ascending=bool(cause["value"] > 0.5), kind="stable")
    words = ("least", "median", "most")
    items = store.examples(ordered, words, lambda row: value_text(row[statistic], statistic))
    return Pictures(items, f"{statistic}: {differs(cause)}", few=True)
