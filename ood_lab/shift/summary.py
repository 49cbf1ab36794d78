"""Shift of whole sets: mean and median degree with intervals, and their order."""

from __future__ import annotations

import zlib
from collections.abc import Mapping

import numpy as np
import pandas as pd
from numpy.typing import ArrayLike

from ood_lab.metrics import bootstrap_p_values, holm, percentile_interval
from ood_lab.metrics.ood import Floats
from ood_lab.results import Kind

#: ``order``: place of the set by its mean; ``p_next``: see :func:`summarise_degrees`.
KIND = Kind("shift", "image", ("set", "axis", "order", "p_next"))
#: Numbers that are resampled in one numpy call.
_BATCH = 4_000_000


def summarise_degrees(
    degrees: Mapping[str, ArrayLike], *, draws: int = 1000, seed: int = 0
) -> pd.DataFrame:
    """Mean and median shift degree of sets on one axis, in the order of their means.

    Intervals are 95% bootstrap percentile intervals over images. ``p_next`` compares the mean of a
    set with that of the next one (two-sided, from the same draws) with Holm's correction over the
    neighbours; ``differs_from_next`` is ``p_next < 0.05``.

    Args:
        degrees: name -> D_sem (or D_cov) of the images of a set, ``[n]``.
        draws: of the bootstrap.
        seed: of the bootstrap; a set's draws do not depend on the other sets.

    Returns:
        One row per set: ``set, n, mean, mean_low, mean_high, median, median_low, median_high,
        order, p_next, differs_from_next``; the last two are missing for the last set.

    Raises:
        ValueError: no set, an empty one, or a NaN degree.
    """
    values = {name: _checked(name, of_set) for name, of_set in degrees.items()}
    if not values:
        raise ValueError("degrees: expected at least one set")
    names = sorted(values, key=lambda name: values[name].mean())
    # Sets of one size must not share their draws: rows of different sets do not belong together.
    seeds = {name: (seed, zlib.crc32(name.encode())) for name in names}
    mean_draws = {name: _mean_draws(values[name], draws, seeds[name]) for name in names}
    rows = [_row(name, values[name], mean_draws[name], seeds[name]) for name in names]
    table = pd.DataFrame(rows)
    table["order"] = np.arange(1, len(names) + 1)
    p = bootstrap_p_values(table["mean"], np.stack([mean_draws[name] for name in names]))
    table["p_next"] = [*holm(np.diagonal(p, offset=1)), np.nan]
    differs = (table["p_next"] < 0.05).astype("boolean")
    table["differs_from_next"] = differs.mask(table["p_next"].isna())
    return table


def shift_results(summary: pd.DataFrame, model: str, seed: int) -> pd.DataFrame:
    """A results table of a summary: ``mean`` and ``median`` of every set and axis.

    Args:
        summary: of :func:`summarise_degrees`, with ``axis``.
        model: the CLIP.
        seed: of the bootstrap.
    """
    rows = [
        {
            **{key: row[key] for key in ("set", "axis", "n", "order")},
            "metric": metric,
            "value": row[metric],
            "ci_low": row[f"{metric}_low"],
            "ci_high": row[f"{metric}_high"],
            "p_next": row["p_next"] if metric == "mean" else None,
        }
        for row in summary.to_dict("records")
        for metric in ("mean", "median")
    ]
    return KIND.table(rows, model=model, seed=seed)


def _row(name: str, values: Floats, mean_draws: Floats, seed: tuple[int, int]) -> dict[str, object]:
    n = len(values)
    mean = percentile_interval(mean_draws, n)
    median = percentile_interval(_median_draws(values, len(mean_draws), seed), n)
    return {
        "set": name,
        "n": n,
        "mean": float(values.mean()),
        "mean_low": float(mean[0]),
        "mean_high": float(mean[1]),
        "median": float(np.median(values)),
        "median_low": float(median[0]),
        "median_high": float(median[1]),
    }


def _mean_draws(values: Floats, draws: int, seed: tuple[int, int]) -> Floats:
    """Means of resamples, ``[draws]``."""
    rng = np.random.default_rng((*seed, 0))
    size = max(1, _BATCH // len(values))
    parts = [
        values[rng.integers(0, len(values), (min(size, draws - first), len(values)))].mean(axis=1)
        for first in range(0, draws, size)
    ]
    return np.concatenate(parts)


def _median_draws(values: Floats, draws: int, seed: tuple[int, int]) -> Floats:
    """Medians of resamples, ``[draws]``, without drawing the resamples.

    A resample is ``x[floor(n U)]`` of the sorted values with n uniform U, so its order statistics
    are those of U: the r-th is Beta(r, n - r + 1), and the next one, given it, leaves a
    Beta(1, n - r) share of the rest below.
    """
    rng = np.random.default_rng((*seed, 1))
    ordered, n = np.sort(values), len(values)
    r = (n + 1) // 2
    lower = rng.beta(r, n - r + 1, draws)
    upper = lower if n % 2 else lower + (1 - lower) * rng.beta(1, n - r, draws)
    places = [np.minimum((n * u).astype(np.int64), n - 1) for u in (lower, upper)]
    return (ordered[places[0]] + ordered[places[1]]) / 2


def _checked(name: str, degrees: ArrayLike) -> Floats:
    values = np.asarray(degrees, dtype=np.float64)
    if values.ndim != 1 or not len(values) or np.isnan(values).any():
        raise ValueError(
            f"set '{name}': expected shift degrees [n] without NaN, got {values.shape} with "
            f"{int(np.isnan(values).sum())} NaN"
        )
    return values
