"""The marks of the two rulers of shift: ID test without its classes, and ID test corrupted."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import pandas as pd
import torch
from numpy.typing import NDArray
from torch import Tensor

from ood_lab.common.english import counted
from ood_lab.common.random_streams import Resampling, stream
from ood_lab.common.tensor_file import Tensors
from ood_lab.data.datamodules.base import OODDataModule
from ood_lab.data.dataset import ImageDataset
from ood_lab.data.transforms.corruptions import CORRUPTIONS, PLAN, SEVERITIES, CorruptedImages
from ood_lab.features.bank import FeatureBank
from ood_lab.features.image_groups import group_count
from ood_lab.metrics.resampling.group_intervals import photographs
from ood_lab.neighbours import neighbour_count
from ood_lab.schema.arrays import Floats
from ood_lab.schema.image_columns import MADE_OF, SEVERAL
from ood_lab.schema.run_record import Facts
from ood_lab.shift import (
    CLASS_UNITS,
    SEVERITY,
    Decomposition,
    Ruler,
    Sample,
    ShiftMeter,
    read_ruler,
)

#: ID test images that are corrupted, at most.
IMAGES = 200
#: Name of the corrupted ID test images, which are no dataset of the user's.
CORRUPTED = "test, corrupted"
#: The neighbour that distances are measured to, at most, where no matrix says one.
LARGEST = 10
#: Said where the features are those of the network itself.
TRAINED_ON = (
    "In the network's own features the held-out class was trained on, so its distance is "
    "no novel class's."
)


def corrupted_test(test: ImageDataset) -> CorruptedImages:
    """At most 200 ID test images at severities 1 to 5, image i under corruption i modulo 15.

    The images do not depend on the seed of a run: all runs on these data share their features.
    """
    return CorruptedImages(CORRUPTED, [test], _plan(len(test)))


def _plan(n: int) -> pd.DataFrame:
    chosen = np.sort(stream(0, CORRUPTED).permutation(n)[:IMAGES])
    kinds = list(CORRUPTIONS)
    rows = [
        (0, int(row), kinds[place % len(kinds)], severity)
        for severity in SEVERITIES
        for place, row in enumerate(chosen)
    ]
    return pd.DataFrame(rows, columns=list(PLAN))


def mark_distances(
    data: OODDataModule,
    features: Tensors,
    decomposition: Decomposition,
    k: int,
    device: torch.device,
    corrupted: Floats | None = None,
) -> pd.DataFrame:
    """Distances of the images that make the marks of the rulers.

    Args:
        data: set up.
        features: of ``train``, ``test`` and, without ``corrupted``, :data:`CORRUPTED`, ``[n, D]``.
        decomposition: splits them.
        k: neighbour.
        device: where to search.
        corrupted: covariate distances of the corrupted images, where the features do not tell.

    Returns:
        One row per image: ``metric`` (of the ruler), ``mark`` (1, or the severity), ``index`` and
        ``path`` (of the ID test image), ``corruption`` and ``distance``.
    """
    test, train = data.splits["test"], data.splits["train"]

    def meter(bank: Tensor) -> ShiftMeter:
        return ShiftMeter(decomposition, bank, k, device)

    if corrupted is None:
        distances = meter(features["train"]).on_axis("covariate", features[CORRUPTED])
        corrupted = distances.double().numpy()
    plan = _plan(len(test)).rename(columns={"severity": "mark", "row": "index"})
    parts = [plan.assign(metric=SEVERITY, distance=corrupted)]
    if why_no_class(train.labels, test.labels, k) is None:
        labelled, rows = train.labels >= 0, torch.nonzero(test.labels >= 0).flatten()
        of_train = features["train"] if bool(labelled.all()) else features["train"][labelled]
        classes = test.labels[rows], train.labels[labelled]
        distances = meter(of_train).on_axis("semantic", features["test"][rows], classes=classes)
        left_out = {"index": rows.numpy(), "distance": distances.double().numpy()}
        parts.append(pd.DataFrame(left_out).assign(metric=CLASS_UNITS, mark=1, corruption=""))
    table = pd.concat(parts, ignore_index=True)
    about = [column for column in ("path", MADE_OF) if column in test.table]
    table[about] = test.table[about].to_numpy(object)[table["index"]]
    return table[["metric", "mark", "index", *about, "corruption", "distance"]]


def shift_in_units(
    data: OODDataModule,
    degrees: pd.DataFrame,
    marks: pd.DataFrame,
    axes: Sequence[str],
    k: int,
    *,
    resampling: Resampling,
) -> tuple[pd.DataFrame, list[Facts]]:
    """Shift of every OOD dataset in units of ID data, by both rulers.

    Args:
        data: set up.
        degrees: distances of all images, see
            :class:`~ood_lab.evaluation.shift.image_distances.Distances`.
        marks: see :func:`mark_distances`.
        axes: columns of ``degrees``: semantic or distance, and covariate.
        k: neighbour.
        resampling: of the bootstrap.

    Returns:
        Values of all datasets, see :class:`~ood_lab.shift.RulerReading`, and for every ruler a dict
        ``metric, axis, marks`` (medians), ``reason`` (why there is none, or None) and ``note`` (how
        to read it, or None).
    """
    values, facts = [], []
    of_train, of_test = (data.splits[name].labels for name in ("train", "test"))
    missing = {CLASS_UNITS: why_no_class(of_train, of_test, k), SEVERITY: None}
    by_dataset = {str(name): rows for name, rows in degrees.groupby("dataset", sort=False)}
    test = by_dataset.pop("test")
    for metric, axis in ((CLASS_UNITS, axes[0]), (SEVERITY, axes[-1])):
        samples = {
            name: Sample(rows[axis].to_numpy(np.float64), photographs(rows))
            for name, rows in by_dataset.items()
        }
        of_ruler = [rows for _, rows in marks[marks["metric"] == metric].groupby("mark")]
        named = [(test, axis), *((rows, "distance") for rows in of_ruler)]
        scale = [
            Sample(rows[column].to_numpy(np.float64), _photographs(rows)) for rows, column in named
        ]
        reading = read_ruler(Ruler(metric, axis, scale, missing[metric]), samples, resampling)
        values.append(reading.values)
        facts.append(
            {
                "metric": metric,
                "axis": axis,
                "marks": reading.marks,
                "reason": reading.reason,
                "note": None if reading.reason else ruler_note(metric, axis, of_train, k),
            }
        )
    return pd.concat(values, ignore_index=True), facts


def _photographs(rows: pd.DataFrame) -> NDArray[np.object_]:
    made_of = photographs(rows)
    return rows["path"].to_numpy(object) if made_of is None else made_of


def neighbour_of(train: FeatureBank | ImageDataset, largest: int = LARGEST) -> int:
    """The k of :func:`~ood_lab.neighbours.neighbour_count` for ID train."""
    labels = train.labels
    return neighbour_count(group_count(train), len(labels[labels >= 0].unique()), largest)


def ruler_note(metric: str, axis: str, train: Tensor, k: int) -> str | None:
    """How to read a ruler, in sentences; None where there is nothing to say.

    Args:
        metric: of the ruler.
        axis: that it measures.
        train: labels of ID train.
        k: neighbour.
    """
    sizes = train[train >= 0].bincount()
    smallest = int(sizes[sizes > 0].min()) if len(sizes) else k
    notes = [TRAINED_ON] if axis == "distance" else []
    if smallest < k and metric == CLASS_UNITS:
        notes.append(
            f"The smallest class has {counted(smallest, 'training image')}, fewer than k = {k}: "
            "distances of its images reach other classes."
        )
    return " ".join(notes) or None


def why_no_class(train: Tensor, test: Tensor, k: int) -> str | None:
    """Why no class can be left out; None where one can.

    Args:
        train: labels of ID train.
        test: labels of ID test.
        k: neighbour.
    """
    labels, shown = train[train >= 0], test[test >= 0].unique()
    if bool((train == SEVERAL).any()):
        return "ID images may have several classes, so that no class can be left out"
    if not len(shown) or not len(labels):
        return "the ID images have no labels, so that no class can be left out"
    if len(labels.unique()) < 2:
        return "the ID training images are of one class, so that none can be left out"
    most = max(int((labels == label).sum()) for label in shown)
    if len(labels) - most < k:
        return (
            f"without the largest class there are {len(labels) - most} training images, fewer than "
            f"the k={k} neighbours"
        )
    return None
