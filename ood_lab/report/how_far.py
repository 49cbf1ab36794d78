"""What a page shows of distances: pictures, a map of the sets, and what one detector misses."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from functools import partial
from typing import Any

import numpy as np
import pandas as pd
from matplotlib.figure import Figure

from ood_lab.axes import AXES
from ood_lab.metrics import wilson_interval
from ood_lab.report.blocks import Block, Folded, Picture, Pictures, PlannedFigure, Text
from ood_lab.report.figures.densities import draw_densities, limits_of
from ood_lab.report.figures.layout import add_legend, panels
from ood_lab.report.figures.scatter import styles_of
from ood_lab.report.figures.style import COLOURS, GREY
from ood_lab.report.mistakes import Thumbnails
from ood_lab.report.page import Section
from ood_lab.report.shift_figures import ShiftInputs, build_shift_figures, label_of
from ood_lab.report.shift_tables import ID_TEST, summary_tables
from ood_lab.words import ordinal

#: Share of ID that is kept where an OOD image counts as missed.
_KEPT = 0.95
_ID_SHOWN = 3
_DRAWN = 3000


@dataclass(frozen=True)
class Measured:
    """How far the images are from ID.

    Attributes:
        degrees: one row per image: ``dataset, index`` and the columns of ``axes``.
        summary: see :func:`ood_lab.report.shift_tables.summary_tables`.
        axes: column of ``degrees`` → its words.
        detector: whose misses are looked at; None = nobody's.
        facts: ``by`` and ``k``; ``unsplit`` where meaning and looks are not told apart.
    """

    degrees: pd.DataFrame
    summary: pd.DataFrame
    axes: Mapping[str, str]
    detector: str | None
    facts: Mapping[str, Any]

    @property
    def footer(self) -> str:
        """How it was measured."""
        k, by = self.facts["k"], self.facts["by"]
        return f"Cosine distance to the {ordinal(k)} nearest ID image, features of {by}."


def sections_of(
    measured: Measured, scores: pd.DataFrame, id_dataset: str, store: Thumbnails
) -> tuple[list[Section], list[Section]]:
    """What stands above the results, and what below."""
    where: list[Block] = []
    if measured.facts["unsplit"]:
        where.append(
            Text(
                "These distances are those of the network's own features: they do not tell meaning "
                "from looks. A CLIP that knows such images does: clip=vit_b32 clip.download=true.",
                "warning",
            )
        )
        where.append(
            PlannedFigure(
                "distance",
                "Distance from ID",
                "The further right a line lies of the grey ID test set, the farther the set.",
                partial(distance_densities, measured),
            )
        )
        below: list[Section] = []
    else:
        inputs = ShiftInputs(measured.degrees, measured.summary, measured.footer)
        scatter, *others = build_shift_figures(inputs)
        where.append(scatter)
        tables: list[Block] = [Folded(t.caption, [t]) for t in summary_tables(measured.summary)]
        below = [Section("Distances", [*tables, *others])]
    where += _misses(measured, scores, id_dataset)
    words = next(iter(measured.axes.values()))
    compared: list[Block] = [Text(f"By distance {words}."), *_pictures(measured, store)]
    return [Section("What was compared", compared), Section("Where the sets lie", where)], below


def _pictures(measured: Measured, store: Thumbnails) -> Iterator[Pictures]:
    """Some ID test images, and of every set the nearest, the median and the farthest."""
    (axis, *_) = measured.axes
    for name, rows in measured.degrees.groupby("dataset", sort=False):
        ordered = rows.sort_values(axis, ignore_index=True)
        places = {"nearest": 0, "median": len(ordered) // 2, "farthest": len(ordered) - 1}
        if name == ID_TEST:
            steps = np.linspace(0, len(ordered) - 1, _ID_SHOWN).astype(int)
            places = dict(zip(places, steps, strict=True))
        shown = ordered.iloc[list(places.values())].to_dict("records")
        items = [
            Picture(f"{words} · {row[axis]:.3f}", store.number(str(name), int(row["index"])))
            for words, row in zip(places, shown, strict=True)
        ]
        yield Pictures(items, label_of(str(name)), few=True)


def _misses(measured: Measured, scores: pd.DataFrame, id_dataset: str) -> Iterator[Block]:
    """What the detector misses, by distance."""
    if measured.detector is None:
        return
    rows = missed(measured, scores, id_dataset)
    yield Text(miss_sentence(rows, measured.detector, measured.axes))
    if not measured.facts["unsplit"]:
        yield PlannedFigure(
            "miss_map",
            f"What {measured.detector} misses",
            f"OOD images that score below {_KEPT:.0%} of ID test are missed.",
            partial(miss_map, rows, measured),
        )


def missed(measured: Measured, scores: pd.DataFrame, id_dataset: str) -> pd.DataFrame:
    """The OOD images with their degrees, and whether the detector misses them.

    Missed is what scores at or below the 95% quantile of ID test, so that 95% of ID are kept.
    """
    name = str(measured.detector)
    threshold = scores.loc[scores["dataset"] == id_dataset, name].quantile(_KEPT)
    known = scores[["dataset", "index", name]]
    ood = measured.degrees[measured.degrees["dataset"] != ID_TEST]
    rows = ood.merge(known, on=["dataset", "index"])
    return rows.assign(missed=rows[name] <= threshold)


def miss_sentence(rows: pd.DataFrame, detector: str, axes: Mapping[str, str]) -> str:
    """Does the measured distance say what is missed? By the axis along which it says most.

    Args:
        rows: see :func:`missed`.
        detector: its name.
        axes: column → words.
    """
    ends = {}
    for axis in axes:
        order = np.argsort(rows[axis].to_numpy(), kind="stable")
        part = max(len(order) // 5, 1)
        shares = [rows["missed"].to_numpy()[of] for of in (order[:part], order[-part:])]
        ends[axis] = [(int(of.sum()), len(of)) for of in shares]
    axis = max(ends, key=lambda a: abs(_share(ends[a][0]) - _share(ends[a][1])))
    near, far = ends[axis]
    told = (
        f"Of the fifth of the OOD images nearest {axes[axis]}, {detector} misses {_percent(near)}, "
        f"of the farthest fifth {_percent(far)} (where it keeps 95% of ID)."
    )
    (low, high), (least, most) = (_interval(each) for each in (near, far))
    if low > most:
        return f"{told} What is farther is noticed more surely."
    if high < least:
        return f"{told} What is farther is missed more often: distance does not predict its misses."
    return f"{told} The measured distance does not predict what it misses."


def _share(of: tuple[int, int]) -> float:
    return of[0] / of[1]


def _interval(of: tuple[int, int]) -> tuple[float, float]:
    low, high = wilson_interval(_share(of), of[1])
    return float(low), float(high)


def _percent(of: tuple[int, int]) -> str:
    low, high = _interval(of)
    return f"{100 * _share(of):.0f}% [{100 * low:.0f}, {100 * high:.0f}]"


def miss_map(rows: pd.DataFrame, measured: Measured) -> Figure:
    """OOD images in the plane of both distances, coloured by whether they are missed."""
    note = f"{measured.footer} {int(rows['missed'].sum()):,} of {len(rows):,} are missed."
    labels = tuple(f"{axis} shift" for axis in AXES)
    figure, (axes,) = panels([""], note, height=4.2, extra=0.4, labels=(labels[0], labels[1]))
    shown = rows.sample(min(len(rows), _DRAWN), random_state=0)
    looks = (
        (False, "noticed", GREY),
        (True, "missed", COLOURS[1]),
    )
    for is_missed, label, colour in looks:
        part = shown[shown["missed"] == is_missed]
        axes.scatter(
            part["semantic"],
            part["covariate"],
            s=9 if is_missed else 6,
            color=colour,
            lw=0,
            alpha=0.8 if is_missed else 0.4,
            label=label,
            rasterized=True,
        )
    add_legend(figure, [axes])
    return figure


def distance_densities(measured: Measured) -> Figure:
    """The density of every set along the one distance that was measured."""
    (axis,) = measured.axes
    values = {
        str(name): rows[axis].to_numpy(np.float64)
        for name, rows in measured.degrees.groupby("dataset", sort=False)
    }
    labels = ("distance", "density")
    figure, (axes,) = panels([""], measured.footer, height=3.0, extra=0.4, labels=labels)
    names = {name: label_of(name) for name in values}
    limits = limits_of(list(values.values()))
    draw_densities(
        axes, values, styles_of(list(values), ID_TEST), limits, labels=names, filled=ID_TEST
    )
    add_legend(figure, [axes])
    return figure
