"""Pairwise tests of all detectors on every OOD set, and which detectors count as best."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np
import pandas as pd

from ood_lab.metrics.best_set import JointEstimate, drawn_means, mean_aurocs, turned
from ood_lab.metrics.record import FPR95, metric_of
from ood_lab.metrics.resampling.significance import (
    best_group,
    bootstrap_p_values,
    delong,
    delong_p_values,
    holm,
)
from ood_lab.metrics.score_evaluation import Evaluation
from ood_lab.metrics.verdict import CHANCE
from ood_lab.schema.arrays import Floats

#: By dataset, or None for a mean over several, and metric.
Joint = dict[tuple[str | None, str], JointEstimate]


def significance_of(evaluation: Evaluation) -> pd.DataFrame:
    """Two-sided tests between all pairs of detectors on the same samples.

    DeLong's test for the AUROC, the paired bootstrap for FPR95, AUPR, DAD and means over sets;
    p-values corrected by Holm over the pairs of one set and metric.

    Returns:
        ``dataset, metric, detector_a, detector_b, value_a, value_b, difference, test, p_value,
        p_holm``; ``dataset`` is None for ``dad``.
    """
    columns = ["dataset", "metric", "detector_a", "detector_b", "value_a", "value_b", "difference"]
    rows = [
        row
        for ood, metric, values, p_values in _tests(evaluation)
        for row in _pair_rows(evaluation.detectors, ood, metric, values, p_values)
    ]
    return pd.DataFrame(rows, columns=[*columns, "test", "p_value", "p_holm"])


def best_detectors(evaluation: Evaluation, alpha: float = 0.05) -> pd.DataFrame:
    """The detectors that are best, or not significantly worse than the best, on each set.

    Of an AUROC and of a mean over datasets it is the set of the best, see
    :class:`~ood_lab.metrics.best_set.JointEstimate`. None is best on datasets where the highest
    AUROC is not above chance.

    Returns:
        ``dataset, metric, detector, value, best``; ``dataset`` is None for means. Of metrics that
        rank.
    """
    rows = []
    joint = _joint_estimates(evaluation)
    detected = _detected(evaluation, joint)
    for ood, metric, values, p_values in _tests(evaluation):
        record = metric_of(metric)
        if not record.ranks:
            continue
        higher = record.better == "higher"
        best = (
            joint[ood, metric].best(alpha)
            if (ood, metric) in joint
            else best_group(values, p_values, higher_is_better=higher, alpha=alpha)
        )
        above = detected.get(ood or metric, True)
        rows += [
            {"dataset": ood, "metric": metric, "detector": d, "value": v, "best": above and bool(b)}
            for d, v, b in zip(evaluation.detectors, values, best, strict=True)
        ]
    return pd.DataFrame(rows, columns=["dataset", "metric", "detector", "value", "best"])


def _joint_estimates(evaluation: Evaluation) -> Joint:
    """Every AUROC, and every mean over datasets that is ranked, higher = better."""
    joint: Joint = {(o, "auroc"): mean_aurocs(evaluation, [o]) for o in evaluation.ood_names}
    for mean, names in evaluation.means.items():
        for metric in _tested(evaluation):
            if metric == "auroc":
                joint[None, f"{mean}_{metric}"] = mean_aurocs(evaluation, names)
                continue
            means = drawn_means(evaluation, metric, names)
            lower = metric_of(metric).better == "lower"
            joint[None, f"{mean}_{metric}"] = turned(means) if lower else means
    return joint


def _detected(evaluation: Evaluation, joint: Joint) -> dict[str, bool]:
    """Whether any detector is significantly above chance, by dataset or metric of a mean."""
    low, _ = evaluation.sets.ends["auroc"]
    values = evaluation.sets.values["auroc"]
    lower = np.where(np.isnan(low), values, low)  # of one image nothing is significant
    above_chance = [bool((of_set > CHANCE).any()) for of_set in lower.T]
    detected = dict(zip(evaluation.ood_names, above_chance, strict=True))
    for mean in evaluation.means:
        aurocs = joint[None, f"{mean}_auroc"]
        above = bool((aurocs.ends()[0] > CHANCE).any()) or not aurocs.known
        detected |= {f"{mean}_{metric}": above for metric in _tested(evaluation)}
    return detected


def _tests(evaluation: Evaluation) -> Iterator[tuple[str | None, str, Floats, Floats]]:
    """Set, metric, values ``[D]`` and unadjusted p-values ``[D, D]``."""
    sets = evaluation.sets
    for group, ood in enumerate(evaluation.ood_names):
        for metric in _tested(evaluation):
            values, draws = sets.values[metric][:, group], sets.draws[metric][:, group]
            if metric == "auroc" and min(evaluation.n_id, sets.n_ood[group]) > 1:
                rows = evaluation.rows_of(ood)
                made_of = evaluation.made_of(rows)
                aurocs, covariance = delong(
                    evaluation.id_matrix,
                    evaluation.matrix(rows),
                    (made_of[0], made_of[1]) if made_of else None,
                )
                yield ood, metric, values, delong_p_values(aurocs, covariance)
            else:
                yield ood, metric, values, bootstrap_p_values(values, draws)
    for mean, names in evaluation.means.items():
        for metric in _tested(evaluation):
            # The draws of the sets share the ID images.
            values, draws = evaluation.mean(metric, names)
            yield None, f"{mean}_{metric}", values, bootstrap_p_values(values, draws)
    if evaluation.has_dad:
        values, draws = evaluation.dad()
        yield None, "dad", values, bootstrap_p_values(values, draws)


def _tested(evaluation: Evaluation) -> list[str]:
    """The headline FPR95 and the other metrics that detectors are tested by."""
    names = [metric.name for metric in evaluation.metrics if metric.tested]
    return [*names[:1], FPR95.name, *names[1:]]


def _pair_rows(
    detectors: list[str], ood: str | None, metric: str, values: Floats, p_values: Floats
) -> list[dict[str, Any]]:
    first, second = np.triu_indices(len(detectors), k=1)
    raw = p_values[first, second]
    return [
        {
            "dataset": ood,
            "metric": metric,
            "detector_a": detectors[a],
            "detector_b": detectors[b],
            "value_a": values[a],
            "value_b": values[b],
            "difference": values[a] - values[b],
            "test": "delong" if metric == "auroc" else "bootstrap",
            "p_value": p,
            "p_holm": adjusted,
        }
        for a, b, p, adjusted in zip(first, second, raw, holm(raw), strict=True)
    ]
