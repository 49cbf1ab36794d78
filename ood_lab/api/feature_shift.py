"""Shift of datasets in units of held-out classes, from only features."""

from __future__ import annotations

from typing import Any

import pandas as pd
import torch.nn.functional as F
from torch import Tensor

from ood_lab.evaluation.shift.shift_rulers import neighbour_of, ruler_note, why_no_class
from ood_lab.features.bank import Banks, FeatureBank
from ood_lab.schema.shift_axes import CLASS_UNITS
from ood_lab.shift import Ruler, Sample, ShiftMeter, read_ruler, undecomposed


def shift_of(
    train: FeatureBank, test: FeatureBank, ood: Banks, *, draws: int, seed: int
) -> tuple[pd.DataFrame, dict[str, Any]]:
    """Shift of datasets from ID, 1 = a class held out of ``train``.

    The cosine distance to the k-th nearest training image in the features that were given, k of
    :func:`~ood_lab.neighbours.neighbour_count`, 10 at most.

    Returns:
        ``dataset, axis, metric, value, ci_low, ci_high, n`` (see
        :func:`~ood_lab.shift.read_ruler`), and what a verdict says of it.
    """
    k = neighbour_of(train)
    banks = {"train": train, "test": test, **ood}
    unit = {name: F.normalize(b.features.float(), dim=1) for name, b in banks.items()}
    decomposition = undecomposed(unit["train"].shape[1], {}, k)
    meter = ShiftMeter(decomposition, unit["train"], k)

    def sample(distances: Tensor, bank: FeatureBank) -> Sample:
        groups = None if bank.groups is None else bank.groups.numpy().astype(object)
        return Sample(distances.double().cpu().numpy(), groups)

    missing = why_no_class(train.labels, test.labels, k)
    marks = [sample(meter.on_axis("semantic", unit["test"]), test)]
    if missing is None:
        labelled, shown = train.labels >= 0, test.labels >= 0
        meter_of_others = ShiftMeter(decomposition, unit["train"][labelled], k)
        classes = test.labels[shown], train.labels[labelled]
        of_test = test.rows(shown)
        held_out = meter_of_others.on_axis("semantic", unit["test"][shown], classes=classes)
        marks.append(sample(held_out, of_test))
        marks[0] = sample(meter.on_axis("semantic", unit["test"][shown]), of_test)
    ruler = Ruler(CLASS_UNITS, "distance", marks, missing)
    datasets = {
        name: sample(meter.on_axis("semantic", unit[name]), bank) for name, bank in ood.items()
    }
    reading = read_ruler(ruler, datasets, draws=draws, seed=seed)
    note = None if reading.reason else ruler_note(CLASS_UNITS, "distance", train.labels, k)
    of_ruler = {"metric": CLASS_UNITS, "reason": reading.reason, "note": note}
    columns = ["dataset", "axis", "metric", "value", "ci_low", "ci_high", "n"]
    return reading.values[columns], {"rulers": [of_ruler]}
