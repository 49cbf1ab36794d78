"""What differs: statistics of images as scores that tell a dataset from ID test."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import pandas as pd
import scipy  # loads scipy.stats when it is used

from ood_lab.common.random_streams import Resampling
from ood_lab.metrics.resampling.significance import delong, delong_p_values, holm
from ood_lab.metrics.score_evaluation import FEWEST_OF_A_VERDICT, Evaluation
from ood_lab.schema.arrays import Floats, Ints
from ood_lab.schema.image_columns import MADE_OF
from ood_lab.schema.image_statistics import PIXELS
from ood_lab.schema.results import Kind

#: ``statistic``: of the image, ``auroc`` above 50% where the dataset has more of it; ``median`` of
#: the dataset and ``median_id`` of ID test; ``p_holm``: over the statistics of the dataset.
#: ``matched_auroc``: of ``detector`` among images alike in ``statistic``, see :func:`matched_rows`.
CAUSE = Kind(
    "cause", "image", ("dataset", "statistic", "median", "median_id", "p_holm", "detector")
)
_COLUMNS = [
    *("dataset", "statistic", "value", "ci_low", "ci_high", "n", "median", "median_id", "p_holm")
]
#: Distance of an AUROC from 50% below which a significant difference is not called a cause.
FAINT = 0.1
#: Standard deviations that matched images may differ by (Austin 2011, doi 10.1002/pst.433).
CALIPER = 0.2


def causes_of(
    images: pd.DataFrame, statistics: Sequence[str], resampling: Resampling
) -> pd.DataFrame:
    """How well each statistic tells each dataset from ID test, the best first.

    Statistics of the pixels come before those of the files: a network gets the pixels. Of AUROCs
    that are the same in whole percent, such as 100%, the one with the larger difference of the
    medians, in pooled standard deviations, is first.

    The AUROC has the 95% interval of every AUROC of the package (:class:`Evaluation`). ``p_holm``
    tests it against 50%, two-sided, Holm-corrected over the statistics of a dataset: by the rank
    test of Mann and Whitney or, where images show one photograph, by DeLong's variance of sums
    over photographs. A statistic that is not known of all images, or always the same, is skipped.

    Args:
        images: ``dataset, <statistics>`` and, where known, ``path`` and ``made_of``.
        statistics: columns of numbers.
        resampling: of the bootstrap.

    Returns:
        ``dataset, statistic, value, ci_low, ci_high, n, median, median_id, p_holm``.
    """
    usable = [s for s in statistics if images[s].notna().all() and images[s].nunique() > 1]
    if not usable or set(images["dataset"]) <= {"test"}:
        return pd.DataFrame(columns=_COLUMNS)
    evaluation = Evaluation.of_numbers(images, usable, resampling)
    rows = []
    for name in evaluation.ood_names:
        of_set, aurocs = evaluation.rows_of(name), evaluation.mean("auroc", [name])
        outside = evaluation.matrix(of_set)
        causes = pd.DataFrame(
            {
                "dataset": name,
                "statistic": usable,
                "value": aurocs.values,
                "ci_low": aurocs.ends[0],
                "ci_high": aurocs.ends[1],
                "n": len(outside),
                "median": np.median(outside, axis=0),
                "median_id": np.median(evaluation.id_matrix, axis=0),
                "p_holm": holm(_p_values(evaluation, of_set, outside)),
            }
        )
        spread = np.sqrt((evaluation.id_matrix.var(axis=0) + outside.var(axis=0)) / 2)
        keys = {
            "of_file": ~causes["statistic"].isin(PIXELS),
            "strength": -(causes["value"] - 0.5).abs().round(2),
            "gap": -(causes["median"] - causes["median_id"]).abs() / np.maximum(spread, 1e-12),
        }
        order = pd.DataFrame(keys).sort_values(list(keys), kind="stable").index
        rows.append(causes.loc[order])
    return pd.concat(rows, ignore_index=True)


def _p_values(evaluation: Evaluation, rows: pd.DataFrame, outside: Floats) -> Floats:
    """Two-sided p-values of AUROC = 50%, ``[S]``; 1 where there are too few images."""
    inside = evaluation.id_matrix
    if min(len(inside), len(outside)) < 2:
        return np.ones(inside.shape[1])
    if (made_of := evaluation.made_of(rows)) is None:
        p = scipy.stats.mannwhitneyu(inside, outside, axis=0).pvalue
        return np.nan_to_num(p, nan=1.0)  # a statistic that is the same in both
    # Against a score that is the same for all images, whose AUROC is 50% without any variance.
    level = [np.column_stack([of, np.zeros(len(of))]) for of in (inside, outside)]
    values, covariance = delong(level[0], level[1], made_of)
    return delong_p_values(values, covariance)[:-1, -1]


def named_causes(causes: pd.DataFrame) -> pd.DataFrame:
    """The rows of significant differences that are not faint (AUROC from 40% to 60%)."""
    strength = (causes["value"].astype(float) - 0.5).abs()
    return causes[(causes["p_holm"].astype(float) < 0.05) & (strength >= FAINT)]


def strongest_first(causes: pd.DataFrame) -> pd.DataFrame:
    """The rows whose AUROC is the farthest from 50% first."""
    order = (causes["value"] - 0.5).abs().sort_values(ascending=False, kind="stable").index
    return causes.loc[order]


def matched_rows(inside: Floats, outside: Floats) -> tuple[Ints, Ints]:
    """Rows of images that are alike in a statistic, in pairs, as many as there can be.

    One to one, at most 0.2 standard deviations (pooled over both groups) apart (Austin 2011).
    """
    caliper = CALIPER * np.sqrt((inside.var() + outside.var()) / 2)
    a, b = np.argsort(inside, kind="stable"), np.argsort(outside, kind="stable")
    pairs = []
    i = j = 0
    while i < len(a) and j < len(b):
        gap = inside[a[i]] - outside[b[j]]
        if abs(gap) <= caliper:
            pairs.append((a[i], b[j]))
        i, j = i + (gap <= caliper), j + (gap >= -caliper)
    rows = np.array(pairs, dtype=np.int64).reshape(-1, 2)
    return rows[:, 0], rows[:, 1]


def matched_aurocs(
    causes: pd.DataFrame,
    images: pd.DataFrame,
    scores: pd.DataFrame,
    detector: str,
    resampling: Resampling,
) -> pd.DataFrame:
    """AUROC of a detector among images alike in the first cause, of every dataset with a cause.

    NaN where fewer than ten pairs are alike: nothing tells the object from the statistic then.

    Args:
        causes: see :func:`causes_of`.
        images: its images; ``index`` names an image of a dataset.
        scores: ``dataset, index`` and the scores of the detector.
        detector: its name.
        resampling: of the bootstrap.

    Returns:
        ``dataset, statistic, detector, value, ci_low, ci_high, n``; n counts the images.
    """
    rows = []
    keys = ["dataset", "index"]
    joined = images.drop(columns=detector, errors="ignore").merge(
        scores[[*keys, detector]], on=keys, validate="one_to_one"
    )
    first = named_causes(causes).drop_duplicates("dataset")
    for name, statistic in zip(first["dataset"], first["statistic"], strict=True):
        inside, outside = (joined[joined["dataset"] == of] for of in ("test", name))
        i, j = matched_rows(inside[statistic].to_numpy(float), outside[statistic].to_numpy(float))
        value = low = high = np.nan
        if len(i) >= FEWEST_OF_A_VERDICT:
            pairs = pd.concat([inside.iloc[i], outside.iloc[j]], ignore_index=True)
            alike = Evaluation.of_numbers(pairs, [detector], resampling).mean("auroc", [name])
            value, (low, high) = float(alike.values[0]), alike.ends[:, 0].tolist()
        rows.append((name, statistic, detector, 2 * len(i), value, low, high))
    columns = ["dataset", "statistic", "detector", "n", "value", "ci_low", "ci_high"]
    return pd.DataFrame(rows, columns=columns)


def cause_results(
    images: pd.DataFrame,
    scores: pd.DataFrame,
    detector: str | None,
    *,
    model: str,
    resampling: Resampling,
) -> pd.DataFrame:
    """:func:`causes_of` and :func:`matched_aurocs` as rows of :data:`CAUSE`.

    Args:
        images: ``dataset, index, path, made_of`` and the statistics, of ID test and the OOD sets.
        scores: see :func:`matched_aurocs`.
        detector: the recommended one; None = there is none.
        model: name of the network.
        resampling: of the bootstrap; its seed is that of the run.
    """
    keys = ("dataset", "index", "path", MADE_OF)
    statistics = [str(name) for name in images if name not in keys]
    causes = causes_of(images, statistics, resampling)
    parts = [causes.assign(metric="auroc")]
    if detector is not None:
        alike = matched_aurocs(causes, images, scores, detector, resampling)
        parts.append(alike.assign(metric="matched_auroc"))
    rows = pd.concat([part for part in parts if len(part)] or parts[:1], ignore_index=True)
    return CAUSE.table(rows, model=model, seed=resampling.seed)
