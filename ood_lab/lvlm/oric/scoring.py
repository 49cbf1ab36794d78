"""The results of ORIC and of the sets that it is held against."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any, NamedTuple

import numpy as np
import pandas as pd

from ood_lab.axes import LEVELS
from ood_lab.lvlm.differences import pairwise
from ood_lab.lvlm.judged import FAILED, FOUND, PARSED, SIZES, sizes_of
from ood_lab.lvlm.parsers import NO, YES
from ood_lab.metrics.two_class import (
    OUTCOMES,
    TWO_CLASS_METRICS,
    Counts,
    clustered_draws,
    two_class_counts,
    two_class_intervals,
)

#: ``prompt`` of the mean over all wordings.
MEAN = "mean"
COLUMNS = ["model", "split", "prompt", *LEVELS, *SIZES, "n_items", "n_images", *FOUND]


class _Place(NamedTuple):
    """Where a group of answers belongs."""

    keys: Mapping[str, Any]
    rows: pd.DataFrame


def results_of(
    judged: pd.DataFrame, model: str, *, draws: int = 1000, seed: int = 0, min_count: int = 10
) -> pd.DataFrame:
    """Everything that is reported, in long form.

    The metrics of :mod:`ood_lab.metrics.two_class`, for every set (``split``): of each wording,
    their mean, and the mean at every known level of shift and every cell of the two. Intervals
    resample images. Answers that could not be matched are wrong, but neither yes nor no; failed
    requests are left out, and counted.

    Args:
        judged: see :func:`ood_lab.lvlm.judged.judge`; with ``split, item, prompt``.
        model: its name.
        draws: bootstrap resamples.
        seed: of the draws.
        min_count: levels and cells with fewer images are missing.

    Returns:
        ``model, split, prompt, semantic_level, covariate_level, n_asked, n_unparsed, n_cut,
        n_failed, n_items, n_images, metric, value, ci_low, ci_high, seed``; values are shares,
        and missing where no answer could be read.
    """
    rows: list[dict[str, Any]] = []
    for place in _places(judged, min_count):
        read = bool((place.rows["status"] == PARSED).any())
        cube = count_cube(place.rows, [])[:, 0]
        found = two_class_intervals(cube if read else cube[:0], draws, seed)
        sizes = _sizes(place.rows)
        rows += [
            {
                **place.keys,
                **sizes,
                "metric": metric,
                "value": estimate.value,
                "ci_low": estimate.low,
                "ci_high": estimate.high,
            }
            for metric, estimate in found.items()
        ]
    return pd.DataFrame(rows).assign(model=model, seed=seed).reindex(columns=COLUMNS)


def _sizes(rows: pd.DataFrame) -> dict[str, int]:
    return {
        **sizes_of(rows),
        "n_items": int(rows["item"].nunique()),
        "n_images": int(rows["pair_id"].nunique()),
    }


def _places(judged: pd.DataFrame, min_count: int) -> Iterator[_Place]:
    known = [name for name in LEVELS if name in judged]
    keys: list[list[str]] = [[name] for name in known] + ([known] if len(known) == 2 else [])
    for split, rows in judged.groupby("split", sort=False):
        yield _Place({"split": split, "prompt": MEAN}, rows)
        for prompt, part in rows.groupby("prompt", sort=True):
            yield _Place({"split": split, "prompt": str(prompt)}, part)
        for names in keys:
            for values, part in rows.groupby(names, sort=True):
                if part["pair_id"].nunique() >= min_count:
                    where = dict(zip(names, values, strict=True))
                    yield _Place({"split": split, "prompt": MEAN, **where}, part)


def count_cube(judged: pd.DataFrame, by: Sequence[str]) -> Counts:
    """Outcomes of all answers, ``[K, M, P, 6]``: K images, M groups, P wordings.

    Args:
        judged: answers; failed ones are left out.
        by: column that tells the groups apart (in their order of appearance); [] = one group.
    """
    rows = judged[judged["status"] != FAILED]
    parsed = rows["status"] == PARSED
    outcomes = two_class_counts(
        rows["truth"] == YES, parsed & (rows["parsed"] == YES), parsed & (rows["parsed"] == NO)
    )
    image, images = pd.factorize(rows["pair_id"])
    prompt, prompts = pd.factorize(rows["prompt"], sort=True)
    group, groups = pd.factorize(rows[by[0]]) if by else (np.zeros(len(rows), int), [0])
    shape = (len(images), len(groups), len(prompts), OUTCOMES)
    cube: Counts = np.zeros(shape, np.int64)
    np.add.at(cube, (image, group, prompt), outcomes)
    return cube


def differences(
    judged: pd.DataFrame, by: str, *, draws: int = 1000, seed: int = 0, first: str | None = None
) -> pd.DataFrame:
    """How groups of answers differ, with images resampled together.

    Sets of one model share images, models share questions: both are drawn together, so the test
    is paired as far as the data are. The p-values are two-sided and Holm-corrected over the pairs
    of a metric.

    Args:
        judged: the answers of all groups.
        by: ``split`` or ``model``.
        draws: bootstrap resamples.
        seed: of the draws.
        first: compare this group with each other one only; None = all pairs.

    Returns:
        ``a, b, metric, value_a, value_b, difference, ci_low, ci_high, p_value, p_holm``.
    """
    names = list(dict.fromkeys(judged.loc[judged["status"] != FAILED, by]))
    cube = count_cube(judged, [by])
    values, drawn = clustered_draws(cube, draws, seed)
    ordered = {metric: values[metric] for metric in TWO_CLASS_METRICS}
    return pairwise(names, ordered, drawn, len(cube), first)
