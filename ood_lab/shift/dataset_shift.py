"""Shift of whole sets: mean and median degree with intervals, and their order."""

from __future__ import annotations

import zlib
from collections.abc import Mapping
from typing import Any

import numpy as np
import pandas as pd
from numpy.typing import ArrayLike

from ood_lab.common.random_streams import RandomStream, Resampling
from ood_lab.metrics import bootstrap_p_values, holm, percentile_interval
from ood_lab.metrics.resampling.group_intervals import PhotographGroups
from ood_lab.schema.arrays import Floats
from ood_lab.schema.results import Kind

#: ``encoder``: the network whose features measure; ``order``: place of the set by its mean;
#: ``p_next``: see :func:`summarise_degrees`.
KIND = Kind("shift", "image", ("dataset", "encoder", "axis", "order", "p_next"))
#: Numbers that are resampled in one numpy call.
_BATCH = 4_000_000


def summarise_degrees(
    degrees: Mapping[str, ArrayLike],
    *,
    resampling: Resampling,
    made_of: Mapping[str, ArrayLike] | None = None,
) -> pd.DataFrame:
    """Mean and median shift degree of sets on one axis, in the order of their means.

    Intervals are 95% bootstrap percentile intervals over images. ``p_next`` compares the mean of a
    set with that of the next one (two-sided, from the same draws) with Holm's correction over the
    neighbours; ``differs_from_next`` is ``p_next < 0.05``.

    Args:
        degrees: name -> D_sem (or D_cov) of the images of a set, ``[n]``.
        resampling: of the bootstrap; a set's draws do not depend on the other sets.
        made_of: the photograph of each image, of sets that hold copies: these are resampled
            together, and ``n`` counts photographs.

    Returns:
        One row per set: ``dataset, n, mean, mean_low, mean_high, median, median_low, median_high,
        order, p_next, differs_from_next``; the last two are missing for the last set.

    """
    sets = {name: np.asarray(of_set, np.float64) for name, of_set in degrees.items()}
    rows, means = [], []
    for name, values in sorted(sets.items(), key=lambda item: item[1].mean()):
        # Sets of one size must not share their draws: their rows do not belong together.
        seed, n = (resampling.seed, zlib.crc32(name.encode())), len(values)
        if made_of and name in made_of:
            copies = PhotographGroups.of([made_of[name]])
            n = copies.n[0]
            of_mean, of_median = _copied_draws(values, copies, resampling.draws, seed)
        else:
            of_mean, of_median = (
                draws_of(values, resampling.draws, np.random.default_rng((*seed, place)))
                for place, draws_of in enumerate((_mean_draws, median_draws))
            )
        means.append(of_mean)
        row: dict[str, object] = {"dataset": name, "n": n}
        for metric, value, draws in (
            ("mean", values.mean(), of_mean),
            ("median", np.median(values), of_median),
        ):
            low, high = percentile_interval(draws, n)
            row |= {
                metric: float(value),
                f"{metric}_low": float(low),
                f"{metric}_high": float(high),
            }
        rows.append(row)
    table = pd.DataFrame(rows)
    table["order"] = np.arange(1, len(rows) + 1)
    p = bootstrap_p_values(table["mean"], np.stack(means))
    table["p_next"] = [*holm(np.diagonal(p, offset=1)), np.nan]
    differs = (table["p_next"] < 0.05).astype("boolean")
    table["differs_from_next"] = differs.mask(table["p_next"].isna())
    return table


def shift_results(
    summary: pd.DataFrame, encoder: str, seed: int, rulers: pd.DataFrame | None = None
) -> pd.DataFrame:
    """A results table of a summary: four metrics of every set and axis.

    Args:
        summary: see :func:`ood_lab.evaluation.shift.image_distances.summarised`.
        encoder: the CLIP or classifier whose features measure.
        seed: of the bootstrap.
        rulers: values of :func:`ood_lab.shift.read_ruler`, each a row more.
    """
    rows: list[dict[Any, Any]] = [
        {
            **{key: row[key] for key in ("dataset", "axis", "n", "order")},
            "metric": metric,
            "value": row[metric],
            "ci_low": row[f"{metric}_low"],
            "ci_high": row[f"{metric}_high"],
            "p_next": row["p_next"] if metric == "mean" else None,
        }
        for row in summary.to_dict("records")
        for metric in ("mean", "median", "frac_above_id_q95", "distance_auroc")
        if not np.isnan(row[metric])
    ]
    if rulers is not None:
        columns = ["dataset", "axis", "metric", "value", "ci_low", "ci_high", "n"]
        measured = rulers.loc[rulers["value"].notna(), columns]
        rows += measured.merge(summary[["dataset", "axis", "order"]]).to_dict("records")
    return KIND.table([row | {"encoder": encoder} for row in rows], model=None, seed=seed)


def _mean_draws(values: Floats, draws: int, rng: RandomStream) -> Floats:
    """Means of resamples, ``[draws]``."""
    size = max(1, _BATCH // len(values))
    parts = [
        values[rng.integers(0, len(values), (min(size, draws - first), len(values)))].mean(axis=1)
        for first in range(0, draws, size)
    ]
    return np.concatenate(parts)


def median_draws(values: Floats, draws: int, rng: RandomStream) -> Floats:
    """Medians of resamples, ``[draws]``, without drawing the resamples.

    A resample is ``x[floor(n U)]`` of the sorted values with n uniform U, so its order statistics
    are those of U: the r-th is Beta(r, n - r + 1), and the next one, given it, leaves a
    Beta(1, n - r) share of the rest below.
    """
    ordered, n = np.sort(values), len(values)
    r = (n + 1) // 2
    lower = rng.beta(r, n - r + 1, draws)
    upper = lower if n % 2 else lower + (1 - lower) * rng.beta(1, n - r, draws)
    places = [np.minimum((n * u).astype(np.int64), n - 1) for u in (lower, upper)]
    return (ordered[places[0]] + ordered[places[1]]) / 2


def _copied_draws(
    values: Floats, copies: PhotographGroups, draws: int, seed: tuple[int, int]
) -> tuple[Floats, Floats]:
    """Means and medians of resampled photographs, ``[draws]`` each."""
    rng = np.random.default_rng((*seed, 0))
    order = np.argsort(values)
    ordered, n = values[order], len(values)
    statistics = np.empty((2, draws))
    for b in range(draws):
        count = copies.resample(rng)[order]
        middle = np.searchsorted(count.cumsum(), [(n + 1) // 2, n // 2 + 1])
        statistics[:, b] = count @ ordered / n, ordered[middle].mean()
    return statistics[0], statistics[1]
