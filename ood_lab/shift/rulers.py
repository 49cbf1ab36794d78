"""Shift in units of ID data: held-out classes, and severities of common corruptions."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
import pandas as pd
from numpy.typing import ArrayLike, NDArray

from ood_lab.common.random_streams import RandomStream, Resampling, stream
from ood_lab.metrics import percentile_interval
from ood_lab.metrics.resampling.group_intervals import PhotographGroups
from ood_lab.schema.arrays import Floats
from ood_lab.schema.image_columns import CLASS_UNITS, RATIO, SEVERITY
from ood_lab.shift.dataset_shift import median_draws

#: Bounds a unit of 0 from below: distances are float32 in [0, 2].
_LEAST = 1e-12


@dataclass(frozen=True, eq=False)
class Sample:
    """The images of a dataset, or of a mark of a ruler.

    Attributes:
        distances: of the images to the training images, ``[n] float64``.
        photographs: that the images show, ``[n]``, where some share one or belong to another
            sample too; None = each image is independent of all others.
    """

    distances: Floats
    photographs: NDArray[Any] | None = None

    @property
    def n(self) -> int:
        """Number of photographs, which are resampled."""
        return len(self.distances if self.photographs is None else set(self.photographs))


def class_units(median: ArrayLike, marks: Floats) -> Floats:
    """``(m - m_0) / (m_1 - m_0)``: 0 = ID test, 1 = a held-out class, without bounds.

    Args:
        median: m of a dataset, ``[...]``.
        marks: medians ``m_0, m_1`` of ID test and of the class left out, ``[2, ...]``.
    """
    return (np.asarray(median) - marks[0]) / np.maximum(marks[1] - marks[0], _LEAST)


def severity(median: ArrayLike, marks: Floats) -> Floats:
    r"""Severity of corruption at which ID images are as far: 0 = ID test, linear between marks.

    The marks are made isotonic first, by their running maximum :math:`r_j = \max_{i \le j} m_i`:

    .. math::
        \sum_{j=0}^{4} \min(\max(\frac{m - r_j}{r_{j+1} - r_j}, 0), 1) \cdot \max(m / r_5, 1)

    So it is 0 at and below ID test, and beyond severity 5 five times the multiple of severity 5's
    distance: 10.5 reads "> 5 (2.1x)".

    Args:
        median: m of a dataset, ``[...]``.
        marks: medians at severity 0 (ID test) to 5, ``[6, ...]``.
    """
    rungs = np.maximum.accumulate(marks, axis=0)
    steps = (np.asarray(median) - rungs[:-1]) / np.maximum(np.diff(rungs, axis=0), _LEAST)
    beyond = np.asarray(median) / np.maximum(rungs[-1], _LEAST)
    return steps.clip(0, 1).sum(axis=0) * np.maximum(beyond, 1)


def ratio(median: ArrayLike, marks: Floats) -> Floats:
    """``m / m_0``: 1 = ID test; not finite where its median is 0."""
    with np.errstate(divide="ignore", invalid="ignore"):
        return np.divide(median, marks[0])


_SCALES: dict[str, Callable[[ArrayLike, Floats], Floats]] = {
    CLASS_UNITS: class_units,
    SEVERITY: severity,
    RATIO: ratio,
}
_NO_RISE = {
    CLASS_UNITS: "a held-out class is not significantly more shifted than the ID test images",
    SEVERITY: "corruption of severity 5 does not move the ID test images significantly farther",
}


@dataclass(frozen=True, eq=False)
class Ruler:
    """A scale whose marks are samples of ID images.

    Attributes:
        metric: :data:`CLASS_UNITS` or :data:`SEVERITY`.
        axis: on which the distances are measured.
        marks: samples at 0 (ID test), 1, ...; ID test only, where ``missing``.
        missing: why there are no others; None = there are.
    """

    metric: str
    axis: str
    marks: list[Sample]
    missing: str | None = None


@dataclass(frozen=True)
class RulerReading:
    """Datasets read off a ruler.

    Attributes:
        values: one row per dataset: ``dataset, axis, metric, value, ci_low, ci_high, multiple, n,
            reason``. ``multiple`` is that of severity 5's distance, where the value is beyond 5;
            ``reason`` says why ``metric`` is :data:`RATIO`.
        marks: medians of the ruler's marks; as :func:`severity` reads them, so isotonic.
        reason: why there is no ruler; None = there is one.
    """

    values: pd.DataFrame
    marks: list[float]
    reason: str | None


def read_ruler(
    ruler: Ruler, datasets: Mapping[str, Sample], resampling: Resampling
) -> RulerReading:
    """The medians of datasets in units of a ruler, see :func:`class_units` and :func:`severity`.

    95% bootstrap intervals resample the images of the dataset, of ID test and of the other marks.
    Photographs are drawn together: those of the marks, and of datasets that are made of them.
    Without a ruler (marks are missing, or the interval of the last one's distance from ID test
    holds 0) the values are ratios to ID test, see :func:`ratio`. A value of one image has no
    interval, one that is not finite is NaN.

    Args:
        ruler: the scale.
        datasets: by name.
        resampling: of the bootstrap; draws of a dataset that shares no photograph do not depend on
            others.
    """
    draws, seed = resampling.draws, resampling.seed
    together = {name: of for name, of in datasets.items() if of.photographs is not None}
    samples = [*ruler.marks, *together.values()]
    medians = _median_draws_together(
        samples, draws, stream(seed, f"ruler {ruler.metric} {ruler.axis}")
    )
    marks = np.array([np.median(mark.distances) for mark in ruler.marks])
    mark_draws, of_together = np.split(medians, [len(marks)])
    drawn_of = dict(zip(together, of_together, strict=True))
    n = min(mark.n for mark in ruler.marks)
    reason = ruler.missing or _why_flat(ruler, marks, mark_draws, n)
    metric = RATIO if reason else ruler.metric
    rows = []
    for name, of in datasets.items():
        if name not in drawn_of:
            rng = stream(seed, f"ruler {ruler.axis}, dataset {name}")
            drawn_of[name] = median_draws(of.distances, draws, rng)
        rows.append(
            {
                "dataset": name,
                "axis": ruler.axis,
                "metric": metric,
                **_on_scale(metric, of, marks, drawn_of[name], mark_draws, min(n, of.n)),
                "n": of.n,
                "reason": reason,
            }
        )
    return RulerReading(pd.DataFrame(rows), np.maximum.accumulate(marks).tolist(), reason)


def _on_scale(
    metric: str, of: Sample, marks: Floats, draws: Floats, mark_draws: Floats, n: int
) -> dict[str, float]:
    value = float(_SCALES[metric](np.median(of.distances), marks))
    if not math.isfinite(value):
        return dict.fromkeys(("value", "ci_low", "ci_high", "multiple"), math.nan)
    scaled = _SCALES[metric](draws, mark_draws)
    ends = percentile_interval(np.where(np.isfinite(scaled), scaled, np.nan), n)
    low, high = (float(end) if n > 1 else math.nan for end in ends)
    multiple = value / 5 if metric == SEVERITY and value > 5 else math.nan
    return {"value": value, "ci_low": low, "ci_high": high, "multiple": multiple}


def _why_flat(ruler: Ruler, marks: Floats, draws: Floats, n: int) -> str | None:
    """Why the last mark does not differ from the first; None where it does."""
    if n < 2:
        return "a single image does not say how uncertain a unit is"
    low, _ = percentile_interval(draws[-1] - draws[0], n)
    return None if marks[-1] - marks[0] > _LEAST and low > 0 else _NO_RISE[ruler.metric]


def _median_draws_together(samples: list[Sample], draws: int, rng: RandomStream) -> Floats:
    """Medians of resamples in which photographs have one count in all samples, ``[S, B]``."""
    sizes = np.array([len(of.distances) for of in samples])
    # Images without a photograph are drawn on their own.
    names = [
        np.array([f"\0{number} {row}" for row in range(n)], object)
        if of.photographs is None
        else of.photographs
        for number, (of, n) in enumerate(zip(samples, sizes, strict=True))
    ]
    copies = PhotographGroups.of(names)
    values = np.concatenate([of.distances for of in samples])
    order = np.lexsort((values, np.repeat(np.arange(len(sizes)), sizes)))
    ordered = values[order]
    # A resample has the size of its sample, so that the ranks in the middle are known.
    middle = np.cumsum(sizes) - sizes + np.stack([(sizes + 1) // 2, sizes // 2 + 1])
    medians = np.empty((len(samples), draws))
    for b in range(draws):
        run = copies.resample(rng)[order].cumsum()
        medians[:, b] = ordered[run.searchsorted(middle)].mean(axis=0)
    return medians
