"""What is recorded of any run over images, whatever is scored."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from ood_lab.data.datamodules.base import OODDataModule
from ood_lab.evaluation.id_accuracy import Chance
from ood_lab.features.bank import FeatureBank
from ood_lab.models import Backbone
from ood_lab.schema.run_record import RunRecord


def run_title(model: str, head: Mapping[str, Any] | None, data: OODDataModule, seed: int) -> str:
    """The network, a ``head`` that was fitted here, the data and the seed of the weights."""
    fitted = f" ({head['kind'].replace('_', ' ')} head fitted on ID train)" if head else ""
    return f"{model}{fitted} on {data.title}, seed {seed}"


def note_run(
    record: RunRecord,
    data: OODDataModule,
    backbone: Backbone,
    test: FeatureBank,
    accuracy: float | None,
    made: dict[str, Any] | None,
) -> None:
    """Records network and data of a run.

    Args:
        record: of the run.
        data: of all sets.
        backbone: the network.
        test: the bank of ID test, or what is left of it without its features.
        accuracy: see :func:`~ood_lab.evaluation.id_accuracy.check_id_accuracy`.
        made: settings of the OOD sets that are made of ID test; None without such.
    """
    record.head, record.multilabel = str(backbone.kind), backbone.multilabel
    record.classes = list(data.classes)
    record.synthetic_ood = made
    record.split_off = {name: len(data.splits[name]) for name in data.split_off}
    record.id_accuracy = accuracy
    record.id_chance = Chance.of(test.labels, len(data.classes)).share
    record.shift_order = list(data.shift_order)
    record.ood_groups = {group: list(names) for group, names in data.ood_groups.items()}
    record.csid = list(data.csid_names)
    record.backbone = test.record
    record.transform_overrides = dict(backbone.transform_overrides or {})
    record.data = {name: split.identity for name, split in data.splits.items()}
