"""The results table in long form: one row per number, with its interval."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from functools import partial
from itertools import chain
from typing import Any

import numpy as np
import pandas as pd
from numpy.typing import ArrayLike

from ood_lab.common.random_streams import Resampling, stream
from ood_lab.metrics.id_metrics import mean_average_precision
from ood_lab.metrics.record import ID_MAP, Metric
from ood_lab.metrics.resampling.group_intervals import (
    effective_size,
    photographs,
    sample_size,
)
from ood_lab.metrics.resampling.intervals import (
    ValueAndDraws,
    bootstrap_interval,
    percentile_interval,
    wilson_interval,
)
from ood_lab.metrics.score_evaluation import Evaluation
from ood_lab.metrics.shift_metrics import (
    CellMean,
    LevelCells,
    shift_correlation,
    shift_sensitivity,
)
from ood_lab.schema.image_columns import AXES, GROUP, LEVELS
from ood_lab.schema.results import Kind, Row, estimate_row

#: ``n`` = ``n_id`` + ``n_ood``; ``shift_level``: place of the set in the declared shift order.
KIND = Kind("detection", "image", ("detector", "dataset", "shift_level", "n_id", "n_ood"))
TRENDS: dict[str, Callable[..., Any]] = {
    "correlation": shift_correlation,
    "sensitivity": shift_sensitivity,
}

#: Two points always lie on a line: their correlation is ±1 whatever they are.
_LEVELS_OF_A_CORRELATION = 3

#: Entries of the weights of images that are worked on together.
_BLOCK = 4_000_000


def results_of(evaluation: Evaluation, model: str) -> pd.DataFrame:
    """Every metric of every detector with its 95% interval, one row per number.

    - OOD set: ``auroc, fpr95_id_positive, fpr95_ood_positive, aupr_in, aupr_out`` and the headline
      ``fpr95``, which is one of the two, as ``fpr95_positive`` has it; AUPR by the trapezoid with
      ``ood``, by average precision with ``id``.
    - All OOD sets (two or more) but those of a grid: ``mean_<metric>``, the plain mean over those
      that count, see :attr:`~ood_lab.metrics.score_evaluation.Evaluation.left`; group of OOD sets:
      ``mean_<group>_<metric>``. dataset is None.
    - Two or more sets, ordered by increasing shift, or of two or more groups: ``dad`` over
      ``fpr95``.
      Of two or more groups, one of several sets: ``dad_of_means``, too.
    - Set with levels: AUROC, FPR95 and AUPR of every cell (both levels given) and of every
      level (the other level NaN), which is the mean over the level's cells that are not NaN, so
      that uneven cells do not mix one shift into the other; ``correlation_<axis>_<metric>`` and
      ``sensitivity_<axis>_<metric>`` of these means. ``all_cells_<metric>``: the mean over all
      cells; ``larger_semantic_<metric>``: over those of the larger semantic shift;
      ``all_images_<metric>``, ``larger_semantic_images_<metric>``: of their images as one set.
    - ``id_accuracy`` when ID rows have labels, with Wilson's interval; detector and dataset are
      None.
      With csID sets it is only that of ID test, ``id_accuracy_<set>`` that of each csID set and
      ``id_accuracy_full_spectrum`` that of all of them together with ID test.

    Args:
        evaluation: of one model.
        model: written to every row, as the evaluation's seed is.

    Returns:
        A table of :data:`KIND`; values are shares in [0, 1] except ``dad`` (pairs), correlations,
        and sensitivities (share per level). ``shift_level`` is 1..n (n is the largest
        shift), or the place of the set's group, else NaN;
        ``attrs["fpr95_positive"]`` is that of the evaluation.
    """
    rows = [
        *_accuracy_rows(evaluation.test_rows),
        *_csid_accuracy_rows(evaluation),
        *(
            row
            for (ood, begins), names in evaluation.comparisons.items()
            for metric in evaluation.named_metrics
            for row in _estimate_rows(
                evaluation,
                begins + metric.name,
                evaluation.mean(metric.name, names),
                dataset=ood,
            )
        ),
        *_dad_rows(evaluation),
        *(row for of_set in evaluation.levels for row in _level_rows(evaluation, of_set)),
    ]
    seed, n = evaluation.resampling.seed, evaluation.n_id
    table = _results_table(rows, model, seed, n, evaluation.unit)
    table["shift_level"] = table["dataset"].map(evaluation.shift_levels).astype("float64")
    table.attrs["fpr95_positive"] = evaluation.fpr95_positive
    return table


def levels_of(evaluation: Evaluation, model: str) -> pd.DataFrame:
    """The rows of :func:`results_of` that are about levels of shift."""
    rows = [row for of_set in evaluation.levels for row in _level_rows(evaluation, of_set)]
    seed, n = evaluation.resampling.seed, evaluation.n_id
    return _results_table(rows, model, seed, n, evaluation.unit)


def accuracy_of(id_rows: pd.DataFrame, model: str, seed: int) -> pd.DataFrame:
    """The results table of a model without OOD sets: only its ``id_accuracy``.

    Args:
        id_rows: one row per ID image; empty result without ``label``, ``pred`` or any known label.
        model: written to the row.
        seed: written to the row.
    """
    n = sample_size(id_rows)
    unit = KIND.unit if n == len(id_rows) else GROUP
    return _results_table(_accuracy_rows(id_rows), model, seed, n, unit)


def map_of(
    scores: ArrayLike, targets: ArrayLike, model: str, resampling: Resampling
) -> pd.DataFrame:
    """The results table of a multi-label head: only ``id_map``, with its bootstrap interval.

    Its bootstrap resamples images.

    Args:
        scores: see :func:`~ood_lab.metrics.id_metrics.mean_average_precision`.
        targets: see there.
        model: written to the row.
        resampling: of the bootstrap; its seed is written to the row.
    """
    n, draws = len(np.asarray(scores)), resampling.draws
    random, step = stream(resampling.seed, "mean average precision"), max(1, _BLOCK // max(1, n))
    values = []
    for first in range(0, draws, step):
        counts = random.multinomial(n, np.full(n, 1 / n), size=min(step, draws - first))
        values.append(mean_average_precision(scores, targets, counts))
    low, high = bootstrap_interval(np.concatenate([*values, []]), n)
    value = mean_average_precision(scores, targets)[0]
    ends = float(low), float(high)
    row = estimate_row(ID_MAP.name, value, *ends, detector=None, dataset=None, n_ood=0)
    return _results_table([row], model, resampling.seed, n)


def _results_table(
    rows: Iterable[Row],
    model: str,
    seed: int,
    n_id: int,
    unit: str = KIND.unit,
) -> pd.DataFrame:
    table = KIND.table(rows, model=model, seed=seed).assign(unit=unit)
    table["n_id"] = table["n_id"].astype("float64").fillna(n_id).astype("int64")
    table["n"] = table["n_id"] + table["n_ood"]
    return table.astype(dict.fromkeys([*LEVELS, "shift_level"], "float64"))


def _estimate_rows(
    evaluation: Evaluation, metric: str, mean: CellMean, **common: Any
) -> Iterator[Row]:
    """One row per detector."""
    estimates = zip(evaluation.detectors, mean.values, mean.ends.T, strict=True)
    for detector, value, (low, high) in estimates:
        yield estimate_row(metric, value, low, high, detector=detector, n_ood=mean.n_ood, **common)


def _accuracy_rows(rows: pd.DataFrame, metric: str = "id_accuracy") -> Iterator[Row]:
    if not {"label", "pred"} <= set(rows):
        return
    labelled = rows[rows["label"] >= 0]
    if len(labelled):
        right = np.asarray(labelled["label"] == labelled["pred"], np.float64)
        accuracy = float(right.mean())
        ends = wilson_interval(accuracy, effective_size(right, photographs(labelled)))
        sizes = {"n_id": sample_size(rows), "n_ood": 0}
        yield estimate_row(metric, accuracy, *ends, detector=None, dataset=None, **sizes)


def _csid_accuracy_rows(evaluation: Evaluation) -> Iterator[Row]:
    for name in evaluation.csid:
        yield from _accuracy_rows(evaluation.rows_of(name), f"id_accuracy_{name}")
    if evaluation.csid:
        yield from _accuracy_rows(evaluation.id_rows, "id_accuracy_full_spectrum")


def _dad_rows(evaluation: Evaluation) -> Iterator[Row]:
    dads: dict[str, tuple[ValueAndDraws, Iterable[str]]] = {}
    if evaluation.has_dad:
        dads["dad"] = evaluation.dad(), evaluation.shift_levels
    groups = evaluation.groups.values()
    if len(groups) >= 2 and max(map(len, groups)) > 1:
        dads["dad_of_means"] = evaluation.dad_of_means(), chain.from_iterable(groups)
    for name, ((values, draws), sets) in dads.items():
        counts = [evaluation.n_of[of_set] for of_set in sets]
        ends = bootstrap_interval(draws, min(evaluation.n_id, min(counts)))
        mean = CellMean(values, draws, ends, sum(counts))
        yield from _estimate_rows(evaluation, name, mean, dataset=None)


def _level_rows(evaluation: Evaluation, of_set: LevelCells) -> Iterator[Row]:
    if len(of_set.axes) == len(AXES):
        for cell, *levels in of_set.cells[[*LEVELS]].itertuples():
            keys = {"dataset": of_set.dataset, **dict(zip(LEVELS, levels, strict=True))}
            for metric in evaluation.named_metrics:
                of_cell = of_set.measured.cell(metric.name, cell)
                yield from _estimate_rows(evaluation, metric.name, of_cell, **keys)
    for axis in of_set.axes:
        for metric in evaluation.named_metrics:
            yield from _axis_rows(evaluation, of_set, axis, metric)
    if "semantic" in of_set.axes:
        yield from _larger_rows(evaluation, of_set)


def _larger_rows(evaluation: Evaluation, of_set: LevelCells) -> Iterator[Row]:
    """All cells, and those of the larger semantic shift: means over them, and their images."""
    cells, start = of_set.cells["semantic_level"], evaluation.larger_semantic_from
    levels = [*of_set.members("semantic")]
    start = levels[len(levels) // 2] if start is None else start
    upper = pd.to_numeric(evaluation.scores["semantic_level"]) >= start
    upper &= evaluation.scores["dataset"] == of_set.dataset
    mean_of, places = of_set.measured.mean, cells.index.to_numpy()
    parts: dict[str, Callable[[str], CellMean]] = {
        "all_images": partial(evaluation.mean, sets=[of_set.dataset]),
        "larger_semantic_images": partial(evaluation.as_set(upper).cell, group=0),
        "all_cells": partial(mean_of, members=places),
        "larger_semantic": partial(mean_of, members=places[cells >= start]),
    }
    for name, mean in parts.items():
        for metric in (of.name for of in evaluation.named_metrics if of.has_course):
            row_name = f"{name}_{metric}"
            yield from _estimate_rows(evaluation, row_name, mean(metric), dataset=of_set.dataset)


def _axis_rows(
    evaluation: Evaluation, of_set: LevelCells, axis: str, record: Metric
) -> Iterator[Row]:
    """The level means of one metric along one axis, then their correlation and sensitivity."""
    metric, measured, places = record.name, of_set.measured, of_set.cells.index
    means = {n: measured.mean(metric, cells) for n, cells in of_set.members(axis).items()}
    for level, mean in means.items():
        place = {"dataset": of_set.dataset, f"{axis}_level": level}
        yield from _estimate_rows(evaluation, metric, mean, **place)
    levels = list(means)
    if not record.has_course or len(levels) < 2:
        return
    values, draws = (np.stack([mean[k] for mean in means.values()], axis=1) for k in (0, 1))
    n_ood = np.array(measured.n_ood)[places]
    of_cells, *_ = measured.by_metric[metric]
    defined = ~np.isnan(of_cells[:, places]).all(axis=0)
    smallest = int(n_ood[defined].min(initial=evaluation.n_id))
    for name, trend in TRENDS.items():
        if name == "correlation" and len(levels) < _LEVELS_OF_A_CORRELATION:
            continue
        resampled = trend(draws.swapaxes(0, 1), levels)
        ends = percentile_interval(resampled, smallest)
        if name == "correlation":
            # Noise weakens it in every draw: near 1, all of them are below the truth.
            ends = np.full_like(ends, np.nan)
        course = CellMean(trend(values.T, levels), resampled, ends, int(n_ood.sum()))
        row_name = f"{name}_{axis}_{metric}"
        yield from _estimate_rows(evaluation, row_name, course, dataset=of_set.dataset)
