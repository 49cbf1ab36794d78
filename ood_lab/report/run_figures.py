"""The figures of a run of detectors, and of its dating."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property, partial
from pathlib import Path

import numpy as np
import pandas as pd
from matplotlib.axes import Axes
from matplotlib.figure import Figure

from ood_lab.axes import LEVELS
from ood_lab.metrics import risk_coverage, roc_curve, wilson_interval
from ood_lab.report.blocks import FigureFile, PlannedFigure
from ood_lab.report.figures.bars import Bar, draw_bars, draw_marks, name_rows
from ood_lab.report.figures.densities import draw_densities, limits_of
from ood_lab.report.figures.drawing import write_all, write_figure
from ood_lab.report.figures.heatmap import cell_panels, draw_cells, shades
from ood_lab.report.figures.layout import (
    add_legend,
    label_ends,
    new_figure,
    panels,
    short_names,
    wrapped,
)
from ood_lab.report.figures.lines import Line, curve, draw_lines, level_lines
from ood_lab.report.figures.scatter import (
    component_labels,
    components_of,
    draw_clouds,
    styles_of,
)
from ood_lab.report.figures.style import COLOURS, ID_COLOUR, SOFT, WIDTH, Style, rc, style
from ood_lab.report.protocol import MISSING, fpr95_sentence, percent, star_sentence
from ood_lab.report.view import RunView

#: Lines above this number are not told apart: the best ones stand out, the rest is grey.
_MAX_HIGHLIGHTED = 6
_TICKS = (-1000, -100, -10, -1, 0, 1, 10, 100, 1000, 10_000)
_MAX_POINTS = 400
_MAX_CLASSES = 30
_MAX_ANNOTATED = 16
_LETTER = 0.075  # inches, of the names of classes
_MATRIX = 3.2  # about its width in inches
_NEAR = 4.0  # percentage points: marks of equal DAD that are nearer would cover each other
_STEP = 7.0  # points between two such marks
_AXIS = 370.0  # about the length of the axis of DAD in points
_ALL = "all"


@dataclass(frozen=True)
class FigureInputs:
    """Tables of one run.

    Attributes:
        view: the results.
        scores: ``dataset, label, pred, <one column per detector>``, higher = more OOD.
        protocol: which FPR95 ``view`` holds.
        id_dataset: name of the ID test set in ``scores``.
        features: dataset → ``[N, D]``, the ID test set among them; may be empty.
        classes: names of the ID classes, position = label; may be empty.
    """

    view: RunView
    scores: pd.DataFrame
    protocol: str
    id_dataset: str
    features: Mapping[str, np.ndarray]
    classes: Sequence[str]

    def footer(self, *notes: str, fpr95: bool = False) -> str:
        """Stands below a figure: how to read it, and what FPR95 means where it shows one."""
        words = " ".join(note for note in notes if note)
        protocol = f"{fpr95_sentence(self.protocol)}." if fpr95 else ""
        lines = [line for line in (words, protocol) if line]
        *above, last = lines or [""]
        return "\n".join([*above, f"{last} ID test n = {self.view.n_id:,}.".strip()])

    @property
    def highlighted(self) -> list[str]:
        """The detectors drawn in colour where lines would be too many."""
        detectors = self.view.detectors
        return detectors if len(detectors) <= _MAX_HIGHLIGHTED + 1 else detectors[:_MAX_HIGHLIGHTED]

    def lines(self, points: Callable[[str], tuple[np.ndarray, np.ndarray]]) -> list[Line]:
        """A curve per detector, grey where it is not highlighted."""
        others = len(self.view.detectors) - len(self.highlighted)
        lines = []
        for place, detector in enumerate(self.view.detectors):
            known = detector in self.highlighted
            look, label = (style(place), detector) if known else (None, f"{others} others")
            lines.append(curve(*points(detector), look, label))
        return lines

    @cached_property
    def _parts(self) -> dict[str, pd.DataFrame]:
        return {str(name): part for name, part in self.scores.groupby("dataset", sort=False)}

    @property
    def test(self) -> pd.DataFrame:
        """Rows of the ID test set."""
        return self._parts[self.id_dataset]

    def scores_of(self, detector: str, dataset: str) -> np.ndarray:
        """Scores ``[N] float64`` of one dataset."""
        return self._parts[dataset][detector].to_numpy(np.float64)


def planned_figures(inputs: FigureInputs) -> Iterator[PlannedFigure]:
    """All that can be drawn, in reading order."""
    if inputs.view.sets:
        yield PlannedFigure(
            "densities",
            "Score densities",
            "The further a line lies to the right of the grey ID test set, the better.",
            partial(densities, inputs),
        )
        star = star_sentence(inputs.view.has_significance).replace("* =", "Orange:")
        best = f" {star}" if any(_best(inputs.view, ood) for ood in inputs.view.sets) else ""
        order = f", {inputs.view.order}" if inputs.view.order else ""
        caption = f"FPR95 of every detector on every OOD set{order}.{best}"
        yield PlannedFigure("fpr95_bars", "FPR95", caption, partial(fpr95_bars, inputs))
        if inputs.view.most_dad:
            yield PlannedFigure(
                "dad_fpr95",
                "DAD against mean FPR95",
                "Further down, a detector detects better; further right, it follows the declared "
                "order of shift more.",
                partial(dad_against_fpr95, inputs),
            )
        others = len(inputs.view.detectors) - len(inputs.highlighted)
        grey = f"; in grey the {others} with the lowest mean AUROC" if others else ""
        yield PlannedFigure("roc", "ROC", f"One panel per OOD set{grey}.", partial(roc, inputs))
    if (inputs.view.table["metric"] == "aurc").any():  # the predictions mean something
        yield PlannedFigure(
            "risk_coverage",
            "Risk and coverage",
            "Share of failures among the images that are kept when those with the highest scores "
            "are rejected: wrong predictions on ID, and all OOD images. Dotted: the best order.",
            partial(risk_curves, inputs),
        )
    for ood in inputs.view.level_sets:
        yield PlannedFigure(
            f"levels_{ood}",
            f"By level of shift: {ood}",
            "AUROC and FPR95 of every level, along each axis of shift.",
            partial(levels, inputs, ood),
        )
        yield PlannedFigure(
            f"heatmap_{ood}",
            f"Semantic × covariate level: {ood}",
            "AUROC of every cell, one panel per detector.",
            partial(heatmap, inputs, ood),
        )
    yield PlannedFigure(
        "features",
        "Features",
        "Principal components of the features of all sets together.",
        partial(feature_scatter, inputs),
    )
    yield PlannedFigure(
        "confusion",
        "ID classes",
        "Classification of the ID test set.",
        partial(confusion, inputs),
    )


def write_figures(
    folder: Path | str,
    results: pd.DataFrame,
    scores: pd.DataFrame,
    *,
    protocol: str = "openood",
    significance: pd.DataFrame | None = None,
    features: Mapping[str, np.ndarray] | None = None,
    classes: Sequence[str] = (),
    id_dataset: str = "test",
) -> list[FigureFile]:
    """Writes every figure the tables allow to ``folder`` as PNG (200 dpi) and SVG.

    One that cannot be drawn is left out with a warning.

    Args:
        folder: made if missing.
        results: long results table of one model and seed.
        scores: scores table, higher = more OOD.
        protocol: which FPR95 the results hold; stands below every figure.
        significance: see :func:`ood_lab.report.detection.detection_blocks`.
        features: dataset → ``[N, D]`` for the scatter of features.
        classes: names of the ID classes, position = label.
        id_dataset: the ID test set in ``scores`` and ``features``.

    Returns:
        The files in reading order.
    """
    folder = Path(folder)
    folder.mkdir(parents=True, exist_ok=True)
    view = RunView(results, significance)
    inputs = FigureInputs(view, scores, protocol, id_dataset, features or {}, classes)
    return write_all(folder, list(planned_figures(inputs)))


def write_dating_figure(folder: Path | str, dating: pd.DataFrame) -> FigureFile | None:
    """Writes ``dating.png`` and ``dating.svg``: recall of every class, by category.

    Args:
        folder: made if missing.
        dating: the dating table of one run.

    Returns:
        The files; None where no image of the ID test set has a label.
    """
    with rc():
        figure = recall_by_category(dating)
        if figure is None:
            return None
        caption = "Share of the images of a class that are given that class, with 95% intervals."
        return write_figure(Path(folder), "dating", "Recall of every class", caption, figure)


def densities(inputs: FigureInputs) -> Figure:
    """One panel per detector, in the order of the table; ID filled, OOD sets as lines."""
    view, test = inputs.view, inputs.id_dataset
    note = "Scores in ID interquartile ranges from the ID median (asinh scale), higher = more OOD."
    footer, labels = inputs.footer(note), ("score", "density")
    titles = [_density_title(view, detector) for detector in view.detectors]
    figure, grid = panels(titles, footer, height=1.25, extra=1.1, labels=labels)
    names = {test: "ID test", **{name: name for name in view.sets}}
    styles = styles_of(list(names), test)
    for axes, detector in zip(grid, view.detectors, strict=True):
        id_scores = inputs.scores_of(detector, test)
        parts = {n: normalise(inputs.scores_of(detector, n), id_scores) for n in names}
        limits = limits_of(list(parts.values()), outside=0.005, margin=0.08)
        draw_densities(axes, parts, styles, limits, labels=names, filled=test)
        _asinh_ticks(axes, *limits)
    add_legend(figure, grid[:1])
    return figure


def _density_title(view: RunView, detector: str) -> str:
    dad = view.get("dad", detector).value
    rank = "" if math.isnan(dad) else f"DAD {dad:.0f}, "
    return f"{detector} ({rank}AUROC {percent(view.mean('auroc', detector).value)})"


def normalise(scores: np.ndarray, id_scores: np.ndarray) -> np.ndarray:
    """``asinh((s - median_ID) / IQR_ID)``: monotone, the same scale for every detector.

    Detectors differ by orders of magnitude and some have very long tails; asinh is linear
    near the ID scores and logarithmic far away.
    """
    low, middle, high = np.quantile(id_scores, (0.25, 0.5, 0.75))
    scale = (high - low) or id_scores.std() or 1.0
    return np.arcsinh((scores - middle) / scale)


def _asinh_ticks(axes: Axes, low: float, high: float) -> None:
    """Ticks in ID interquartile ranges, none so close that their labels touch."""
    kept: list[float] = []
    for tick in sorted(_TICKS, key=abs):
        place = math.asinh(tick)
        free = all(abs(place - math.asinh(k)) > 0.17 * (high - low) for k in kept)
        if low < place < high and free:
            kept.append(tick)
    axes.set_xticks([math.asinh(k) for k in kept], [f"{k:,}".replace("-", "−") for k in kept])


def fpr95_bars(inputs: FigureInputs) -> Figure:
    """One column of bars per OOD set, in shift order; detectors sorted by mean AUROC."""
    view = inputs.view
    names = len(max(view.detectors, key=len))
    letters = int((WIDTH - 0.08 * names) / len(view.sets) / 0.085)
    titles = [wrapped(name, max(letters, 8)) for name in view.sets]
    lines = max(title.count("\n") for title in titles)
    figure, grid = panels(
        titles,
        inputs.footer(fpr95=True),
        height=0.19 * len(view.detectors),
        columns=len(view.sets),
        extra=0.9 + 0.13 * lines,
        sharey=True,
    )
    for axes, ood in zip(grid, view.sets, strict=True):
        best = _best(view, ood)
        cells = {d: view.get("fpr95", d, ood) for d in view.detectors}
        bars = [
            Bar(
                100 * cell.value,
                100 * cell.low,
                100 * cell.high,
                text="" if math.isnan(cell.value) else percent(cell.value),
                colour=COLOURS[int(detector in best)],
                bold=detector in best,
            )
            for detector, cell in cells.items()
        ]
        draw_bars(axes, bars)
        name_rows(axes, view.detectors)
        axes.set_xlim(0, 110 + 6 * len(view.sets))  # room for the numbers
        axes.set_xticks([0, 50, 100])
    order = f", OOD sets {view.order}" if view.order else ""
    known = any(view.get("fpr95", d, s).has_interval for d in view.detectors for s in view.sets)
    grid[len(grid) // 2].set_xlabel(
        f"FPR95 in %{order}{', with 95% intervals' if known else ''}",
        x=0.5 if len(grid) % 2 else 0.0,  # of two in the middle, between them
    )
    return figure


def _best(view: RunView, ood: str) -> set[str]:
    return view.best("fpr95", ood, {d: view.get("fpr95", d, ood).value for d in view.detectors})


def dad_against_fpr95(inputs: FigureInputs) -> Figure:
    """One mark per detector, named at the right; marks of equal DAD and FPR95 side by side."""
    view, most = inputs.view, inputs.view.most_dad
    places = {
        name: place
        for place, name in enumerate(view.detectors)
        if not math.isnan(view.mean("fpr95", name).value)
    }
    dads = [view.get("dad", name) for name in places]
    fpr95 = [100 * view.mean("fpr95", name).value for name in places]
    shifts = side_by_side([d.value for d in dads], fpr95, _STEP / (_AXIS / (most + 1)))
    aside = "DAD is a whole number: marks that would cover each other stand side by side."
    notes = [
        "Thick lines: 95% intervals of DAD." if any(dad.has_interval for dad in dads) else "",
        aside if any(shifts) else "",
    ]
    height = max(3.2, 0.155 * len(places) + 1.4)
    figure, (axes,) = panels(
        [""],
        inputs.footer(*notes, fpr95=True),
        height=height,
        extra=0.0,
        labels=(
            f"DAD (of {most}; larger = follows the shift order more)",
            "mean FPR95 in % (smaller = better)",
        ),
    )
    axes.set(xlim=(-0.5, most + 0.5), ylim=(-3, 103))
    axes.set_xticks(np.unique(np.linspace(0, most, 11).round()))
    right = axes.get_xlim()[1]
    ends = {}
    for (name, place), dad, y, shift in zip(places.items(), dads, fpr95, shifts, strict=True):
        colour, _, marker = style(place)
        if dad.has_interval:
            axes.plot([dad.low, dad.high], [y, y], color=colour, lw=2.5, alpha=0.25, zorder=1)
        x = dad.value + shift
        axes.plot([x, right], [y, y], color=colour, lw=0.4, zorder=2)
        axes.plot(x, y, marker, color=colour, ms=6, mec="white", mew=0.5, zorder=3, clip_on=False)
        ends[name] = (right, y, colour)
    markers = {name: style(place).marker for name, place in places.items()}
    label_ends(axes, ends, markers=markers, leader=(0.0, 0.04))
    return figure


def side_by_side(dads: Sequence[float], fpr95: Sequence[float], step: float) -> list[float]:
    """What to add to each DAD so that marks of equal DAD and nearly equal FPR95 are all seen.

    Args:
        dads: whole numbers.
        fpr95: in percent.
        step: between two marks; less where there is no room for it.
    """
    shifts = [0.0] * len(dads)
    for dad in set(dads):
        same = sorted((i for i, d in enumerate(dads) if d == dad), key=lambda i: fpr95[i])
        groups: list[list[int]] = []
        for i in same:
            if groups and fpr95[i] - fpr95[groups[-1][-1]] < _NEAR:
                groups[-1].append(i)
            else:
                groups.append([i])
        for group in groups:
            apart = min(step, 0.8 / len(group))
            for place, i in enumerate(sorted(group)):
                shifts[i] = apart * (place - (len(group) - 1) / 2)
    return shifts


def roc(inputs: FigureInputs) -> Figure:
    """One panel per OOD set, one line per detector."""
    sets, test = inputs.view.sets, inputs.id_dataset
    figure, grid = panels(
        sets,
        inputs.footer("Dotted: where FPR95 is read.", fpr95=True),
        height=2.15 if len(sets) > 2 else 2.6,
        columns=2 if len(sets) in (2, 4) else 3,
        extra=1.1,
        labels=("ID rejected in %", "OOD caught in %"),
        sharex=True,
        sharey=True,
    )
    for axes, ood in zip(grid, sets, strict=True):

        def points(detector: str, ood: str = ood) -> tuple[np.ndarray, np.ndarray]:
            scores = (inputs.scores_of(detector, name) for name in (test, ood))
            return roc_curve(*scores)[:2]

        draw_lines(axes, inputs.lines(points))
        # The operating point of FPR95 lies on this line.
        line = axes.axhline if inputs.protocol == "openood" else axes.axvline
        line(95 if inputs.protocol == "openood" else 5, color=SOFT, lw=0.6, ls=(0, (1, 2)))
        ticks = [0, 25, 50, 75, 100]
        axes.set(xlim=(-1, 101), ylim=(-1, 101), xticks=ticks, yticks=ticks, box_aspect=1)
        axes.grid(visible=True)
    add_legend(figure, grid)
    return figure


def risk_curves(inputs: FigureInputs) -> Figure:
    """Failures among what is kept: one panel for ID errors, one per OOD set."""
    view = inputs.view
    labelled = inputs.test[inputs.test["label"] >= 0]
    wrong = (labelled["label"] != labelled["pred"]).to_numpy(np.float64)
    places = [None, *view.sets]
    figure, grid = panels(
        ["ID errors", *(f"ID + {ood}" for ood in view.sets)],
        inputs.footer("Lower is better."),
        height=2.15 if len(places) > 2 else 2.6,
        columns=2 if len(places) in (2, 4) else 3,
        extra=1.1,
        labels=("images kept in %", "failures among them in %"),
        sharex=True,
    )
    for axes, ood in zip(grid, places, strict=True):
        outside = 0 if ood is None else len(inputs.scores_of(view.detectors[0], ood))
        failures = np.append(wrong, np.ones(outside))

        def points(
            detector: str, ood: str | None = ood, failures: np.ndarray = failures
        ) -> tuple[np.ndarray, np.ndarray]:
            scores = labelled[detector].to_numpy(np.float64)
            if ood is not None:
                scores = np.append(scores, inputs.scores_of(detector, ood))
            return risk_coverage(scores, failures)

        draw_lines(axes, inputs.lines(points))
        # Every failure is rejected first: its score says so.
        ranks = np.argsort(np.argsort(failures, kind="stable"))
        best = curve(*risk_coverage(ranks, failures), None)
        axes.plot(best.x, best.y, color=SOFT, lw=0.8, ls=(0, (1, 2)))
        axes.set(xlim=(-1, 101), ylim=(0, None), xticks=[0, 25, 50, 75, 100])
        axes.grid(visible=True)
    add_legend(figure, grid)
    return figure


def levels(inputs: FigureInputs, ood: str) -> Figure | None:
    """One line per detector with its 95% band; None where no axis has two levels."""
    rows = inputs.view.table
    rows = rows[rows["ood"] == ood]
    # With few images FPR95 has no upper end: such a band would cover the panel, and say nothing.
    open_ended = (rows["metric"] == "fpr95") & (rows["ci_high"] >= 1)
    ends = {name: rows[name].mask(open_ended) for name in ("ci_low", "ci_high")}
    rows = rows.assign(**ends)
    bands = (
        "Bands: 95% intervals, where they have two ends." if rows["ci_low"].notna().any() else ""
    )
    note = "A level is the mean over the levels of the other axis."
    return level_lines(
        rows,
        {"auroc": "AUROC", "fpr95": "FPR95"},
        {name: name for name in inputs.view.detectors},
        inputs.footer(bands, note, fpr95=True),
        by="detector",
        highlighted=inputs.highlighted,
    )


def heatmap(inputs: FigureInputs, ood: str) -> Figure | None:
    """One panel per detector and one of the number of images; None without a grid, or values."""
    rows = inputs.view.table
    rows = rows[(rows["ood"] == ood) & (rows["metric"] == "auroc")]
    rows = rows[rows[list(LEVELS)].notna().all(axis=1)]
    few = f"{MISSING} where the OOD images are too few." if rows["value"].isna().any() else ""
    maps = {name: rows[rows["detector"] == name] for name in inputs.view.detectors}
    colours, scale = shades(50, 100), f"AUROC in % ({ood})"
    counted = "number of OOD images"
    return cell_panels(maps, "n_ood", inputs.footer(few), colours, scale, counted)


def feature_scatter(inputs: FigureInputs) -> Figure | None:
    """One panel per OOD set over the ID test set; None without features of both."""
    test = inputs.id_dataset
    sets = [name for name in inputs.view.sets if name in inputs.features]
    if not sets or test not in inputs.features:
        return None
    rng = np.random.default_rng(0)
    parts = {name: np.asarray(inputs.features[name]) for name in [test, *sets]}
    clouds, shares = components_of(
        {n: rows[np.sort(rng.permutation(len(rows))[:_MAX_POINTS])] for n, rows in parts.items()}
    )
    figure, grid = panels(
        sets,
        inputs.footer(
            "Grey: ID test. Lines hold the middle half of a set, large marks are means. "
            f"Up to {_MAX_POINTS} images of each set."
        ),
        height=2.0 if len(sets) > 1 else 3.4,
        columns=2 if len(sets) in (2, 4) else 3,
        extra=0.7,
        labels=component_labels(shares),
        sharex=True,
        sharey=True,
    )
    for axes, name in zip(grid, sets, strict=True):
        looks = {test: Style(ID_COLOUR, "-", "o"), name: Style(COLOURS[1], "-", "s")}
        draw_clouds(axes, {n: clouds[n] for n in looks}, looks, units=False)
    return figure


def confusion_counts(labels: np.ndarray, predictions: np.ndarray, n: int) -> np.ndarray:
    """Counts ``[C, C]``, row = label, column = prediction."""
    return np.bincount(labels * n + predictions, minlength=n * n).reshape(n, n)


def confusion(inputs: FigureInputs) -> Figure | None:
    """Confusion matrix in % of the label beside the accuracy of each class.

    None without ID labels. Of more than 30 classes the 30 with the lowest accuracy are shown.
    """
    test = inputs.test[inputs.test["label"] >= 0]
    if test.empty:
        return None
    labels, predictions = test["label"].to_numpy(int), test["pred"].to_numpy(int)
    n = max(labels.max(), predictions.max(), len(inputs.classes) - 1) + 1
    counts = confusion_counts(labels, predictions, n)
    every = [inputs.classes[i] if i < len(inputs.classes) else str(i) for i in range(n)]
    shown = _shown(counts)
    names = [short_names(every)[i] for i in shown]
    longest = max(map(len, names))
    upright = longest * _LETTER > _MATRIX / len(shown)
    height = 0.2 * max(len(shown), 6) + (_LETTER * longest if upright else 0.1) + 0.9
    figure = new_figure(height, inputs.footer("Matrix: % of the ID test images of a class (row)."))
    left, right = figure.subplots(1, 2, width_ratios=(1.6, 1))
    rows = counts[shown]
    share = 100 * rows[:, shown] / np.maximum(rows.sum(axis=1, keepdims=True), 1)
    few = len(shown) <= _MAX_ANNOTATED
    texts = [[f"{v:.0f}" if few and v >= 0.5 else "" for v in row] for row in share]
    draw_cells(left, share, shades(0, 100, "Blues"), (names, names), texts)
    left.tick_params(labelsize=6.5)
    left.tick_params(axis="x", rotation=90 if upright else 0)
    left.set(xlabel="predicted class", ylabel="class")
    draw_bars(
        right, [_accuracy(int(counts[i, i]), int(counts[i].sum())) for i in shown], text_at=104
    )
    name_rows(right, [""] * len(shown))
    right.set(xlim=(0, 160), xticks=[0, 50, 100], xlabel="accuracy in %, with 95% intervals")
    if len(shown) < n:
        left.set_title(f"the {len(shown)} classes with the lowest accuracy, of {n}", fontsize=7)
    return figure


def _accuracy(correct: int, total: int) -> Bar:
    if not total:
        return Bar(math.nan, text="n=0")
    share = correct / total
    low, high = wilson_interval(share, total)
    return Bar(100 * share, 100 * low, 100 * high, f"{100 * share:.1f}  n={total}")


def _shown(counts: np.ndarray) -> np.ndarray:
    if len(counts) <= _MAX_CLASSES:
        return np.arange(len(counts))
    totals = counts.sum(axis=1)
    accuracy = np.where(totals > 0, counts.diagonal() / np.maximum(totals, 1), np.inf)
    return np.sort(np.argsort(accuracy, kind="stable")[:_MAX_CLASSES])


def recall_by_category(dating: pd.DataFrame) -> Figure | None:
    """One row per class of the finest level, one mark a category; None without labelled images.

    Of more than 30 classes the 30 with the lowest recall are shown.
    """
    rows = dating[(dating["level"] == dating["level"].iloc[-1]) & (dating["metric"] == "recall")]
    overall = rows[rows["subset"] == _ALL].set_index("name")
    if not overall["n"].sum():
        return None
    total = len(overall)
    lowest = set(overall.sort_values("value", kind="stable").index[:_MAX_CLASSES])
    names = [name for name in overall.index if name in lowest]
    subsets = list(rows.loc[rows["subset"] != _ALL, "subset"].unique()) or [_ALL]
    title = f"the {len(names)} classes with the lowest recall, of {total}"
    figure, (axes,) = panels(
        [title if total > len(names) else ""],
        f"Recall, not precision: the divisor counts labels. n = {int(overall['n'].sum()):,}.",
        height=(0.12 + 0.13 * len(subsets)) * max(len(names), 4),
        extra=1.0,
        labels=("recall in %, with 95% intervals", ""),
    )
    cells = rows.set_index(["subset", "name"])
    marks = {s: [_recall(cells.loc[(s, name)]) for name in names] for s in [_ALL, *subsets]}
    if subsets != [_ALL]:
        shares = [0.0 if math.isnan(bar.value) else bar.value for bar in marks[_ALL]]
        behind = [Bar(share, colour="#E9EDF1") for share in shares]
        draw_bars(axes, behind, label=_ALL)
    for place, subset in enumerate(subsets):
        offset = 0.7 * ((place + 0.5) / len(subsets) - 0.5)
        label = subset if subsets != [_ALL] else ""
        draw_marks(axes, marks[subset], style(place), label=label, offset=offset, text_at=102)
    short = dict(zip(overall.index, short_names(list(map(str, overall.index)), 28), strict=True))
    name_rows(axes, [short[name] for name in names])
    axes.set(xlim=(-2, 118), xticks=range(0, 101, 20))
    add_legend(figure, [axes])
    return figure


def _recall(cell: pd.Series) -> Bar:
    value, low, high = (100 * float(cell[name]) for name in ("value", "ci_low", "ci_high"))
    number = "" if math.isnan(value) else f"{value:.1f}  "
    return Bar(value, low, high, f"{number}n={int(cell['n'])}")
