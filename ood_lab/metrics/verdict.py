"""The verdict as rows of results: which detectors may be the best, and whether one detects at all.

It rests on all images, and on the numbers of the tables.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence

import numpy as np
import pandas as pd

from ood_lab.common.grouping import grouped
from ood_lab.metrics.best_set import (
    ALPHA,
    JointEstimate,
    drawn_means,
    mean_aurocs,
)
from ood_lab.metrics.resampling.intervals import Ends
from ood_lab.metrics.score_evaluation import Evaluation
from ood_lab.schema.arrays import Bools, Floats, Ints
from ood_lab.schema.results import Kind, Row, estimate_row

#: ``n`` = ``n_id`` + ``n_ood``.
VERDICT = Kind("verdict", "image", ("detector", "dataset", "n_id", "n_ood"))
#: The detector that others are compared with (arXiv 1610.02136).
BASELINE = "msp"
#: AUROC of a score that knows nothing.
CHANCE = 0.5


def verdict_of(evaluation: Evaluation, model: str, costs: Mapping[str, int]) -> pd.DataFrame:
    """The verdict on the detectors, one row per number.

    It is about the datasets of :attr:`Evaluation.mean_sets`. Of every detector, all of them shares:

    - ``mean_auroc, mean_fpr95``: over these datasets, with simultaneous 95% intervals.
    - ``best_set``: 1 where it may be the best, see :class:`~.best_set.JointEstimate`.
    - ``detects``: 1 where the lower end of its mean AUROC is above 50%; ``inverted``: 1 where the
      upper end is below.
    - ``ranking``: a number for each ranking of all images, of detectors that share theirs. These
      count once in the set of the best.
    - ``behind``: by how much its mean AUROC is behind that of the recommended detector.

    Of the whole:

    - ``detects``, without a detector: 1 where any detector does.
    - ``recommended``: 1, of the cheapest detector in the set of the best that detects, and of
      these the one with the highest AUROC. Without one that detects there is no such row.
    - ``resolution``: the median difference of AUROC from the recommended detector that would be
      significant.

    Of the recommended detector, or the first in AUROC, on every ``dataset``: ``auroc`` and
    ``fpr95`` of the tables, ``above_chance``: 1 where the lower end of AUROC is above 50%, and
    ``lead_of_other``: by how much the AUROC of another ``detector`` is significantly higher. Of a
    dataset that does not count: ``too_few`` and ``flagged``, the number of its images.

    Args:
        evaluation: of all detectors; its draws are used.
        model: written to every row.
        costs: rank of what a detector costs to run, by name.
    """

    def sized(row: Row) -> Row:
        names = [row["dataset"]] if "dataset" in row else evaluation.mean_sets
        n_id, n_ood = evaluation.n_id, sum(evaluation.n_of[name] for name in names)
        return {**row, "n": n_id + n_ood, "n_id": n_id, "n_ood": n_ood}

    rows = map(sized, _verdict_rows(evaluation, costs))
    return VERDICT.table(rows, model=model, seed=evaluation.resampling.seed).assign(
        unit=evaluation.unit
    )


def _verdict_rows(evaluation: Evaluation, costs: Mapping[str, int]) -> Iterator[Row]:
    """The rows without the numbers of images."""
    counted = evaluation.mean_sets
    aurocs = mean_aurocs(evaluation, counted)
    ends = aurocs.ends_beyond(evaluation.mean("auroc", counted).ends)
    detects = ends[0] > CHANCE
    ranks = np.array([costs[name] for name in evaluation.detectors])
    named = _recommended(aurocs.best(), detects, aurocs.values, ranks)
    yield from _detector_rows(evaluation, counted, aurocs, ends, named)
    for name, ranking in _shared_rankings(evaluation).items():
        yield estimate_row("ranking", ranking, detector=name)
    yield estimate_row("detects", detects.any())
    if detects[named]:
        yield estimate_row("recommended", 1, detector=evaluation.detectors[named])
    yield estimate_row("resolution", _resolution(aurocs, named))
    for name, why in evaluation.left.items():
        yield estimate_row(why, evaluation.n_of[name], dataset=name)
    for name in evaluation.whole_sets:
        yield from _table_rows(evaluation, name, named)
    for name in counted:
        yield from _dataset_rows(evaluation, name, named, ALPHA / len(counted))


def _detector_rows(
    evaluation: Evaluation, sets: Sequence[str], aurocs: JointEstimate, ends: Ends, named: int
) -> Iterator[Row]:
    """The means of every detector over these datasets together."""
    fpr95 = drawn_means(evaluation, "fpr95", sets)
    fpr95_ends = fpr95.ends_beyond(evaluation.mean("fpr95", sets).ends)
    columns = {
        "mean_auroc": (aurocs.values, *ends),
        "mean_fpr95": (fpr95.values, *fpr95_ends),
        "best_set": (aurocs.best(),),
        "detects": (ends[0] > CHANCE,),
        "inverted": (ends[1] < CHANCE,),
        "behind": aurocs.behind(named),
    }
    for metric, numbers in columns.items():
        for name, *of_one in zip(evaluation.detectors, *numbers, strict=True):
            yield estimate_row(metric, *of_one, detector=name)


def _table_rows(evaluation: Evaluation, ood: str, named: int) -> Iterator[Row]:
    """The numbers of the tables of one detector on one dataset."""
    detector = evaluation.detectors[named]
    for metric in ("auroc", "fpr95"):
        of_set = evaluation.mean(metric, [ood])
        low, high = of_set.ends[:, named]
        value = of_set.values[named]
        yield estimate_row(metric, value, low, high, detector=detector, dataset=ood)


def _dataset_rows(evaluation: Evaluation, ood: str, named: int, alpha: float) -> Iterator[Row]:
    """Whether one detector is above chance on a dataset, and whether another one is better."""
    names = evaluation.detectors
    above = evaluation.mean("auroc", [ood]).ends[0, named] > CHANCE
    yield estimate_row("above_chance", above, detector=names[named], dataset=ood)
    behind, low, high = mean_aurocs(evaluation, [ood]).behind(named, alpha)
    first = int(np.argmin(np.nan_to_num(behind)))
    if high[first] < 0:
        lead = -np.array([behind, high, low])[:, first]
        yield estimate_row("lead_of_other", *lead, detector=names[first], dataset=ood)


def _shared_rankings(evaluation: Evaluation) -> dict[str, int]:
    """Numbers of the rankings of all images that several detectors share, by detector."""
    ranks = evaluation.scores[evaluation.detectors].rank(method="dense")
    alike = grouped((ranks[name].to_numpy().tobytes(), name) for name in evaluation.detectors)
    shared = [names for names in alike.values() if len(names) > 1]
    return {name: number for number, names in enumerate(shared, 1) for name in names}


def _recommended(best: Bools, detects: Bools, values: Floats, costs: Ints) -> int:
    """Of the best that detect the cheapest, and of these the one with the highest value."""
    both = best & detects
    among = both if both.any() else detects if detects.any() else best
    return int(np.lexsort(np.stack([-np.nan_to_num(values), costs, ~among]))[0])


def _resolution(joint: JointEstimate, place: int) -> float:
    differences, low, _ = joint.behind(place)
    return float(np.median(np.delete(differences - low, place))) if len(differences) > 1 else np.nan
