"""What differs, on a page: a panel of causes, examples and values for each dataset."""

from __future__ import annotations

from collections.abc import Iterator
from functools import partial

import numpy as np
import pandas as pd
from matplotlib.figure import Figure

from ood_lab.metrics import named_causes, strongest_first
from ood_lab.report.figures.bars import Bar, draw_bars, name_rows
from ood_lab.report.figures.densities import draw_histograms, limits_of
from ood_lab.report.figures.layout import add_legend, panels
from ood_lab.report.figures.style import COLOURS, GREY
from ood_lab.report.rendering.blocks import Block, Folded, Pictures, PlannedFigure, Text
from ood_lab.report.rendering.prose import differs, sentences
from ood_lab.report.rendering.thumbnails import Thumbnails
from ood_lab.report.shift.shift_figures import label_of
from ood_lab.report.verdict import WORDS
from ood_lab.schema.image_statistics import value_text
from ood_lab.schema.results import ID_TEST

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
            *map(Text, sentences(WORDS, "cause", causes_of_set, name)),
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
    draw_histograms(right, values, np.linspace(*limits_of(list(values.values())), _BINS + 1))
    right.set_yticks([])
    add_legend(figure, [right])
    return figure


def _examples(cause: pd.Series, images: pd.DataFrame, name: str, store: Thumbnails) -> Pictures:
    """The least, the median and the most shifted image of a dataset in its first cause."""
    statistic = str(cause["statistic"])
    rows = images[images["dataset"] == name]
    ordered = rows.sort_values(statistic, ascending=bool(cause["value"] > 0.5), kind="stable")
    words = ("least", "median", "most")
    items = store.examples(ordered, words, lambda row: value_text(statistic, row[statistic]))
    return Pictures(items, f"{statistic}: {differs(cause)}", few=True)
