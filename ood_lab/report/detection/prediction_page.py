"""The page of predictions: how new images compare with ID, as a group and one by one."""

from __future__ import annotations

import math
import os
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
from matplotlib.figure import Figure

from ood_lab.common.english import counted, listed
from ood_lab.common.grouping import grouped
from ood_lab.metrics import wilson_interval
from ood_lab.report.detection.unusual_images import (
    EXTREMES,
    IDImages,
    said_of,
    unusual_id_images,
)
from ood_lab.report.figures.densities import draw_densities, limits_of
from ood_lab.report.figures.layout import add_legend, panels
from ood_lab.report.figures.scatter import styles_of
from ood_lab.report.figures.style import SOFT
from ood_lab.report.rendering.blocks import (
    Block,
    Folded,
    Menu,
    Picture,
    Pictures,
    PlannedFigure,
    Text,
)
from ood_lab.report.rendering.misclassified_images import Thumbnails
from ood_lab.report.rendering.p_values import p_text
from ood_lab.report.rendering.page import Page, Section
from ood_lab.report.rendering.table import Cell, Head, Table, count_cell, name_cell, number_cell
from ood_lab.report.rendering.thumbnails import LoadImage
from ood_lab.report.rendering.thumbnails import Pictures as Images
from ood_lab.report.shift.cause_sentences import cause_sentence
from ood_lab.schema.arrays import Floats

#: Rows of the table of images.
FIRST = 20
_DETECTORS = 6  # with a column of their own; more do not fit beside each other
_FEW = 10  # scores that are drawn one by one, since a density would show a shape that is not there
_SIGNIFICANT = 0.05
_SHARE = "{:.1%}".format
_ID, _NEW = "ID images", "new images"


@dataclass(frozen=True)
class Judged:
    """What was found of some images.

    Attributes:
        table: the rows that are shown, index = number of the image; of few images, all. The
            :data:`FIRST` are among them, and of every detector the :data:`EXTREMES` at both ends.
        images: all there are.
        unreadable: those that cannot be read.
        flagged: by detector, how many.
        drawn: the rows whose scores are drawn; None = those of ``table``.
        file: with everything.
    """

    table: pd.DataFrame
    images: int
    unreadable: int
    flagged: Mapping[str, int]
    drawn: pd.DataFrame | None
    file: str

    def scores(self, name: str) -> Floats:
        """Of a detector, of the drawn images that can be read."""
        rows = self.table if self.drawn is None else self.drawn
        return rows.loc[rows["error"] == "", f"{name}_score"].to_numpy(np.float64)

    @property
    def read(self) -> int:
        """Images that can be read."""
        return self.images - self.unreadable


def verdict_table(caption: str, found: Mapping[str, Mapping[str, Any]]) -> Table:
    """A row a detector: its threshold, how many images it flags, and whether that is chance."""
    columns: list[tuple[Head, str, Callable[[Mapping[str, Any]], Cell]]] = [
        (
            Head("higher than", note="ID images"),
            "group_exceeded",
            lambda of: number_cell(*_group(of), show=_SHARE),
        ),
        (Head("ID", note="images"), "held_out", lambda of: count_cell(of["held_out"])),
        (Head("alpha"), "alpha", lambda of: number_cell(_number(of["alpha"]), show="{:g}".format)),
        (
            Head("OOD if", note="score"),
            "rule",
            lambda of: Cell(_rule(of), _number(of["threshold_score"])),
        ),
        (Head("FPR", note="held-out"), "fpr", _false_positives),
        (
            Head("TPR", note="OOD"),
            "tpr",
            lambda of: number_cell(_number(of.get("tpr")), show=_SHARE),
        ),
        (Head("flagged", note="as OOD"), "flagged", _flagged),
        (
            Head("by", note="chance"),
            "flagged_by_chance",
            lambda of: number_cell(of["flagged_by_chance"], show="{:,.1f}".format),
        ),
        (
            Head("p", "ascending", note="of more"),
            "flagged_p_value",
            lambda of: Cell(p_text(of["flagged_p_value"]), of["flagged_p_value"]),
        ),
    ]
    known = [c for c in columns if any(of.get(c[1]) is not None for of in found.values())]
    heads = [Head("detector", "ascending"), *(head for head, _, _ in known)]
    rows = [[name_cell(name), *(cell(of) for _, _, cell in known)] for name, of in found.items()]
    notes = ["p of more: one-sided test of each detector, not corrected for their number."]
    return Table(caption, heads, rows, notes=notes)


def _false_positives(of: Mapping[str, Any]) -> Cell:
    ends = (_number(of.get("fpr_ci_low")), _number(of.get("fpr_ci_high")))
    return number_cell(_number(of.get("fpr")), *ends, show=_SHARE)


def _group(of: Mapping[str, Any]) -> tuple[float, float, float]:
    """The share of ID images that new ones exceed, with its interval."""
    keys = ("group_exceeded", "group_ci_low", "group_ci_high")
    return tuple(_number(of[key]) for key in keys)  # type: ignore[return-value]


def _flagged(of: Mapping[str, Any]) -> Cell:
    return Cell(f"{of['flagged']:,} ({of['share_flagged']:.1%})", of["flagged"])


def _number(value: float | None) -> float:
    return math.nan if value is None else value


def _rule(of: Mapping[str, Any]) -> str:
    """``> 0.58``, ``>= 0.58``, or ``never``."""
    if of["threshold_score"] is None:
        return "never"
    return (
        str(of["rule"]).removeprefix("score ").replace("threshold", f"{of['threshold_score']:.4g}")
    )


def write_predictions_page(
    file: Path,
    judged: Judged,
    id_scores: Mapping[str, Floats],
    summary: Sequence[Block],
    manifest: Mapping[str, Any],
    load_image: LoadImage,
    command: str,
    own: IDImages | None = None,
) -> Path:
    """Writes the page.

    Args:
        file: of the page.
        judged: what was found.
        id_scores: of the held-out ID images, by detector.
        summary: what the terminal shows, too.
        manifest: of the run.
        load_image: ``("images", number of the image)`` → the image.
        command: that repeats the run.
        own: the ID images; None = the detectors were read from files, without them.
    """
    table = judged.table
    read = table[table["error"] == ""]
    drawn = read if judged.drawn is None else judged.drawn[judged.drawn["error"] == ""]
    some = "" if judged.drawn is None else f" Drawn: {counted(len(drawn), 'image')} at equal steps."
    images = Images(lambda of, row: own.image(row) if own and of == "id" else load_image(of, row))
    store = Thumbnails(images)
    strips = [Folded(name, _extremes(read, name, store)) for name in id_scores]
    of_id = (
        [Folded(name, [unusual_id_images(own, name, store)]) for name in id_scores] if own else []
    )
    figure = PlannedFigure(
        "predictions",
        "Scores compared with those of ID images",
        "Higher = more OOD. Images right of the dashed line are flagged." + some,
        partial(_densities, drawn, id_scores, manifest["detectors"]),
    )
    broken = judged.unreadable
    page = Page(
        title=f"Predictions for {counted(judged.images, 'image')}",
        sentence=f"Images: {manifest['images']['source']}",
        warnings=[
            *manifest["images"]["passed_over"],
            *([f"{counted(broken, 'image')} cannot be read."] if broken else []),
        ],
        summary=[
            *summary,
            Text(command, "command"),
        ],
        sections=[
            Section("Most and least unusual images", [Menu("detector", strips)]),
            *(
                [Section("Unusual ones among your ID images", [Menu("detector", of_id)])]
                if own
                else []
            ),
            Section("Scores", [figure]),
            Section("Images", [_first_rows(judged, list(id_scores))]),
        ],
        thumbnails=store.uris,
        definitions=[
            ("p-value", "share of ID images that score as high, itself counted as one"),
            ("held-out", "the detector was not fitted on the ID images that p-values compare with"),
            (
                "leave-one-out, 10-fold",
                "the detector is fitted on all ID images; each is scored by a fit without it, or "
                "without its tenth",
            ),
            (
                "higher than ID images",
                "share of ID images that a new image exceeds in the mean (AUROC); 50% = alike",
            ),
            ("p of group", "one-sided rank test (Mann and Whitney) of new against ID scores"),
            ("flagged as OOD", "the p-value is at most alpha, or the score reaches the threshold"),
            ("by chance", "flagged images expected if all are ID: alpha, or the FPR, times images"),
            (
                "p of more",
                "probability of at least as many flagged images if all are ID; it accounts for the "
                "number of ID images",
            ),
            ("FPR", "fraction of the held-out ID images that are flagged, with its 95% interval"),
            ("TPR", "fraction of the given OOD images that are flagged"),
            (
                "than all ID images",
                "the image is beyond the range of the ID images in this statistic of its pixels; "
                "of n ID images, one more like them is beyond it with probability 2 / (n + 1)",
            ),
            ("score", "of the detector, higher = more OOD; comparable only within a detector"),
        ],
        manifest=manifest,
        downloads=[
            "predictions.csv",
            *(["id_images.csv"] if own else []),
            "manifest.json",
            "config.yaml",
        ],
    ).write(file)
    images.warn(page.name)
    return page


def verdict_sentences(n: int, manifest: Mapping[str, Any]) -> list[str]:
    """What was found of n images that can be read, a number a sentence."""
    detectors: Mapping[str, Mapping[str, Any]] = manifest["detectors"]
    groups = [
        f"{of['group_exceeded']:.1%}{_interval(of)} by {name} (p = {_p(of['group_p_value'])})"
        for name, of in detectors.items()
    ]
    lines = [
        "In the mean, a new image is more unusual than this share of the ID images (50% = alike; "
        f"one-sided rank test): {_first(groups)}."
    ]
    flags = [
        f"{name} flags {of['flagged']:,} ({of['share_flagged']:.0%})"
        for name, of in detectors.items()
    ]
    lines.append(f"Of {counted(n, 'image')}, {_first(flags)} as OOD.")
    if alphas := sorted({of["alpha"] for of in detectors.values() if of["alpha"] is not None}):
        by_chance = [f"{alpha * n:,.1f} (alpha {alpha:g} × {n:,})" for alpha in alphas]
        lines.append(f"Expected by chance, if all were ID: at most {listed(by_chance, 'or')}.")
    lines += _thresholds(n, manifest)
    more = {name: of for name, of in detectors.items() if of["flagged_p_value"] <= _SIGNIFICANT}
    if more:
        tests = [f"{name} (p = {_p(of['flagged_p_value'])})" for name, of in more.items()]
        lines.append(f"Significantly more than by chance (one-sided test): {_first(tests)}.")
    else:
        (least, of), *_ = sorted(detectors.items(), key=lambda item: item[1]["flagged_p_value"])
        who = "This is not" if len(detectors) == 1 else "No number is"
        smallest = f"p = {_p(of['flagged_p_value'])}"
        smallest += "" if len(detectors) == 1 else f" of {least} is the smallest"
        lines.append(f"{who} significantly more than by chance (one-sided test, {smallest}).")
    group = [name for name, of in detectors.items() if of["group_p_value"] <= _SIGNIFICANT]
    if only := [name for name in group if name not in more]:
        lines.append(
            f"By {_first(only)}, the images differ from ID as a group, though hardly one is so "
            "unusual that it is flagged."
        )
    if only := [name for name in more if name not in group]:
        lines.append(
            f"By {_first(only)}, single images differ from ID, though the group as a whole does "
            "not."
        )
    causes = pd.DataFrame(manifest.get("causes", ()))
    if len(causes):
        of_group = cause_sentence(causes, "images", "As a group, the images are", "your ID images")
        lines += [of_group] if of_group else []
    lines += _calibration(detectors)
    if manifest.get("id_accuracy") is not None:
        accuracy, labelled = manifest["id_accuracy"], manifest["id_accuracy_n"]
        low, high = wilson_interval(accuracy, labelled)
        lines.append(
            f"ID accuracy of the network: {accuracy:.1%} [{low:.1%}, {high:.1%}] on "
            f"{counted(labelled, 'held-out ID image')}."
        )
    return lines


def _interval(of: Mapping[str, Any]) -> str:
    if of["group_ci_low"] is None:
        return ""
    return f" [{of['group_ci_low']:.1%}, {of['group_ci_high']:.1%}]"


def _calibration(detectors: Mapping[str, Mapping[str, Any]]) -> Iterator[str]:
    """Which ID images new ones are compared with."""
    ways = grouped(((of["calibration"], of["held_out"]), name) for name, of in detectors.items())
    for (way, n), names in ways.items():
        of_all = "" if len(ways) == 1 else f" of {_first(names)}"
        how = (
            "which the fit did not see"
            if way == "held-out"
            else f"each scored by a fit without it ({way}); the fit used is of all"
        )
        yield f"p-values{of_all} are ranks among {counted(n, 'ID image')}, {how}."


def _thresholds(n: int, manifest: Mapping[str, Any]) -> list[str]:
    """What is known of thresholds that are given or made of OOD images."""
    given = {name: of for name, of in manifest["detectors"].items() if of["alpha"] is None}
    if not given:
        return []
    lines = []
    if source := manifest.get("threshold_from"):
        sets, images = list(source["ood"]), sum(source["ood"].values())
        which = f"{'dataset' if len(sets) == 1 else 'datasets'} {listed(sets)}"
        reached = [f"{of['tpr']:.1%} by {name}" for name, of in given.items()]
        lines.append(
            f"TPR of at least {source['tpr']:g} on {counted(images, 'image')} of the OOD {which}: "
            f"{_first(reached)}."
        )
    rates = [
        f"{name} {of['fpr']:.1%} [{of['fpr_ci_low']:.1%}, {of['fpr_ci_high']:.1%}] "
        f"(n = {of['held_out']:,})"
        for name, of in given.items()
    ]
    lines.append(f"FPR on held-out ID images at this threshold: {_first(rates)}.")
    chance = [f"{of['flagged_by_chance']:,.1f} by {name}" for name, of in given.items()]
    lines.append(f"Expected by chance, if all were ID (FPR × {n:,}): {_first(chance)}.")
    return lines


def _first(texts: Sequence[str]) -> str:
    """The first detectors; a table has the others."""
    more = len(texts) - _DETECTORS
    return listed([*texts[:_DETECTORS], *([f"{more} more in the table"] if more > 0 else [])])


def _p(value: float) -> str:
    return f"{value:.2g}" if value >= 1e-4 else f"{value:.0e}"


def _extremes(read: pd.DataFrame, name: str, store: Thumbnails) -> list[Pictures]:
    """The highest scores of a detector, and the lowest of the other images."""
    ordered = read.sort_values(f"{name}_score", ascending=False, kind="stable")
    half = min(EXTREMES, (len(ordered) + 1) // 2)
    parts = {
        "Most unusual": ordered.head(half),
        "Least unusual": ordered.tail(min(EXTREMES, len(ordered) - half))[::-1],
    }

    none = "no class" if read["predicted"].ne("").any() else ""  # else the network names none

    def picture(row: int, at: pd.Series) -> Picture:
        return Picture(said_of(at, at["predicted"] or none, name), store.number("images", row))

    return [
        Pictures([picture(int(row), at) for row, at in rows.iterrows()], heading)  # type: ignore[call-overload]
        for heading, rows in parts.items()
    ]


def _densities(
    read: pd.DataFrame, id_scores: Mapping[str, Floats], found: Mapping[str, Mapping[str, Any]]
) -> Figure:
    """A panel a detector: held-out ID as an area, the images as a line, or as ticks where few."""
    figure, grid = panels(list(id_scores), "", height=1.5, extra=0.9, labels=("score", "density"))
    styles = styles_of([_ID, _NEW], _ID)
    for axes, (name, known) in zip(grid, id_scores.items(), strict=True):
        values = {_ID: known, _NEW: read[f"{name}_score"].to_numpy(np.float64)}
        limits = limits_of(list(values.values()), outside=0.005)
        drawn = values if len(read) >= _FEW else {_ID: known}
        labels = {key: key for key in values}
        draw_densities(axes, drawn, styles, limits, labels=labels, filled=_ID)
        if len(read) < _FEW:
            heights = np.full(len(read), axes.get_ylim()[1] / 20)
            axes.vlines(values[_NEW], 0, heights, color=styles[_NEW].color, lw=1.5, label=_NEW)
        if found[name]["threshold_score"] is not None:
            axes.axvline(found[name]["threshold_score"], color=SOFT, ls="--", lw=0.8)
    add_legend(figure, grid[:1])
    return figure


def _first_rows(judged: Judged, names: list[str]) -> Table:
    shown = names[:_DETECTORS]
    heads = [Head("image", "ascending"), Head("class", "ascending")]
    heads += [Head(f"p ({name})", "ascending") for name in shown]
    table = judged.table
    folder = os.path.commonpath([os.path.dirname(path) for path in table["path"]])
    rows = []
    for row in table.head(FIRST).to_dict("records"):
        cells = [name_cell(os.path.relpath(row["path"], folder))]
        if row["error"]:
            rows.append([*cells, name_cell(row["error"]), *(Cell("") for _ in shown)])
            continue
        cells.append(name_cell(row["predicted"]))
        for name in shown:
            p = float(row[f"{name}_p_value"])
            cells.append(Cell(f"{p:.3g}{' (OOD)' if row[f'{name}_is_ood'] else ''}", p))
        rows.append(cells)
    more = len(names) > len(shown)
    notes = [f"Of {len(names)} detectors, the first {len(shown)}."] if more else []
    n = judged.images
    first = f"The first {FIRST} of {n:,} images" if n > FIRST else "The images"
    return Table(f"{first} in {folder}; {judged.file} has everything", heads, rows, notes=notes)
