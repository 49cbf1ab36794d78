"""Distance of every image from ID train: split by a CLIP, or in the network's own features."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from itertools import product
from typing import Any

import numpy as np
import pandas as pd
import torch
from rich.progress import track

from ood_lab.common.random_streams import Resampling
from ood_lab.common.tensor_file import Tensors
from ood_lab.data.datamodules.base import OODDataModule
from ood_lab.evaluation.shift.shift_rulers import shift_in_units
from ood_lab.metrics import (
    Evaluation,
    levels_of,
)
from ood_lab.metrics.resampling.group_intervals import photographs
from ood_lab.report.shift.distance_page import MeasuredDistances
from ood_lab.schema.arrays import Floats
from ood_lab.schema.image_columns import AXES, LEVELS, MADE_OF, Axis
from ood_lab.schema.results import Names
from ood_lab.schema.run_record import Facts
from ood_lab.shift import Decomposition, ShiftMeter, shift_results, summarise_degrees, undecomposed

#: What a degree says, by its column.
SPLIT = {"semantic": "in semantic shift", "covariate": "in covariate shift"}
#: Of a network, whose features nothing splits.
UNSPLIT = {"distance": "in the features of the network", "covariate": "in image statistics"}


@dataclass(frozen=True)
class Distances(MeasuredDistances):
    """Distance of every image from ID train; its summary is that of :func:`summarised`.

    Attributes:
        rulers: shift of every OOD set in units of ID data: a
            :class:`~ood_lab.shift.RulerReading`.
        levels: of the images of all OOD sets, see :class:`~ood_lab.tasks.shift_levels.ShiftLevels`;
            empty where nothing was divided.
    """

    rulers: pd.DataFrame = field(default_factory=pd.DataFrame)
    levels: pd.DataFrame = field(default_factory=pd.DataFrame)

    @classmethod
    def of(
        cls,
        data: OODDataModule,
        degrees: pd.DataFrame,
        marks: pd.DataFrame,
        axes: Names,
        facts: Facts,
        *,
        resampling: Resampling,
    ) -> Distances:
        """Summarises distances, and reads them on the rulers.

        Args:
            data: set up.
            degrees: of all images.
            marks: of the rulers, see
                :func:`~ood_lab.evaluation.shift.shift_rulers.mark_distances`.
            axes: column of ``degrees`` → its words.
            facts: ``k``, and ``by``; gets ``rulers``.
            resampling: of the bootstrap.
        """
        summary = summarised(degrees, resampling=resampling, axes=list(axes))
        values, rulers = shift_in_units(
            data, degrees, marks, list(axes), facts["k"], resampling=resampling
        )
        return cls(degrees, summary, axes, {**facts, "rulers": rulers}, rulers=values)

    def results(self, seed: int) -> pd.DataFrame:
        """The shift of every set as results; ``seed`` is that of the bootstrap."""
        return shift_results(self.summary, str(self.facts["by"]), seed, self.rulers)

    def level_results(
        self, evaluation: Evaluation, ood_names: Sequence[str], model: str, **metrics: Any
    ) -> pd.DataFrame | None:
        """The results of all OOD images together by level; None where nothing was divided.

        ``metrics`` are the settings of the evaluation.
        """
        if not len(self.levels):
            return None
        of_pool = Evaluation(
            pooled(evaluation.scores, ood_names, self.levels),
            evaluation.detectors,
            seed=evaluation.resampling.seed,
            csid=evaluation.csid,
            **metrics,
        )
        return levels_of(of_pool, model)


def own_distances(
    data: OODDataModule,
    features: Tensors,
    covariate: Mapping[str, Floats],
    k: int,
    device: torch.device,
) -> pd.DataFrame:
    """``distance`` and ``covariate`` of every image but those of train.

    The cosine distance of its features to those of its k-th nearest training image (arXiv
    2204.06507), which does not tell meaning from looks, and that of its statistics, see
    :class:`~ood_lab.shift.StatisticsDistance`.
    """
    width = next(iter(features.values())).shape[1]
    whole = undecomposed(width, {}, k)
    degrees = measured_degrees(data, features, [whole], k, device, AXES[:1])
    of_statistics = np.concatenate([covariate[name] for name in degrees["dataset"].unique()])
    return degrees.rename(columns={"semantic": "distance"}).assign(covariate=of_statistics)


def measured_degrees(
    data: OODDataModule,
    features: Tensors,
    decompositions: Sequence[Decomposition],
    k: int | None,
    device: torch.device,
    axes: Sequence[Axis] = AXES,
) -> pd.DataFrame:
    """Shift degrees of every set but train, by every decomposition; searched on ``device``."""
    parts = {}
    for name in [name for name in features if name != "train"]:
        about = data.splits[name].table.filter(items=["path", "label", MADE_OF])
        parts[name] = about.reset_index(names="index")
        parts[name].insert(0, "dataset", name)
    ways = [*product(decompositions, axes)]
    for decomposition, axis in track(ways, "Measuring", transient=True):
        # One part of the ID set at a time: large pools leave no room for both.
        meter = ShiftMeter(decomposition, features["train"], k, device)
        suffix = "" if decomposition is decompositions[0] else f"_{decomposition.name}"
        for name, part in parts.items():
            part[f"{axis}{suffix}"] = meter.on_axis(axis, features[name]).double().numpy()
    return pd.concat(parts.values(), ignore_index=True)


def summarised(
    degrees: pd.DataFrame, resampling: Resampling, axes: Sequence[str] = AXES
) -> pd.DataFrame:
    """Mean and median of every set on every axis, and its comparison with ID test.

    In addition to :func:`summarise_degrees`, with 95% intervals (``_low``, ``_high``), and NaN
    for ID test:

    - ``frac_above_id_q95``: share of the images that are farther from ID than 95% of the ID test
      images, 5% where there is no shift (1 - FPR95 of the distance with ID positive);
    - ``distance_auroc``: share of the pairs with an ID test image in which the image of the set is
      farther, 50% where there is no shift (the AUROC of the distance).
    """
    evaluation = Evaluation.of_numbers(degrees, axes, resampling)
    of_sets = evaluation.sets.by_metric
    groups = {str(name): rows for name, rows in degrees.groupby("dataset")}
    made_of = {name: of for name, rows in groups.items() if (of := photographs(rows)) is not None}
    parts = []
    for place, axis in enumerate(axes):
        sets = {name: rows[axis].to_numpy() for name, rows in groups.items()}
        part = summarise_degrees(sets, resampling=resampling, made_of=made_of).assign(axis=axis)
        (kept, low, high), (auroc, *ends) = (
            [numbers[place] for numbers in (values, *limits)]
            for values, _, limits in (of_sets[metric] for metric in ("fpr95", "auroc"))
        )
        compared = {
            "frac_above_id_q95": 1 - kept,
            "frac_above_id_q95_low": 1 - high,
            "frac_above_id_q95_high": 1 - low,
            "distance_auroc": auroc,
            "distance_auroc_low": ends[0],
            "distance_auroc_high": ends[1],
        }
        parts.append(part.join(pd.DataFrame(compared, evaluation.ood_names), on="dataset"))
    return pd.concat(parts, ignore_index=True)


#: What all OOD images together are called.
POOL = "all_ood"


def pooled(scores: pd.DataFrame, ood_names: Sequence[str], levels: pd.DataFrame) -> pd.DataFrame:
    """The scores with all OOD images as one set, which has the measured levels.

    Args:
        scores: see :class:`~ood_lab.metrics.Evaluation`.
        ood_names: its OOD sets.
        levels: ``dataset, index, semantic_level, covariate_level``.
    """
    keys = ["dataset", "index"]
    outside = scores["dataset"].isin(list(ood_names))
    plain = scores.drop(columns=[level for level in LEVELS if level in scores])
    ood = plain[outside].merge(levels[[*keys, *LEVELS]], on=keys, validate="one_to_one")
    return pd.concat([plain[~outside], ood.assign(dataset=POOL)], ignore_index=True)
