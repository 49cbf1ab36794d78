"""What the manifest says of any run over images, whatever is scored."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from ood_lab.data.datamodules.base import OODDataModule
from ood_lab.evaluation.id_accuracy import Chance
from ood_lab.features.bank import FeatureBank
from ood_lab.models import Backbone


def run_title(model: str, head: Mapping[str, Any] | None, data: OODDataModule, seed: int) -> str:
    """The network, a ``head`` that was fitted here, the data and the seed of the weights."""
    fitted = f" ({head['kind'].replace('_', ' ')} head fitted on ID train)" if head else ""
    return f"{model}{fitted} on {data.title}, seed {seed}"


def run_facts(
    data: OODDataModule, backbone: Backbone, test: FeatureBank, accuracy: float | None, made: Any
) -> dict[str, Any]:
    """Network and data of a run.

    Args:
        data: of all sets.
        backbone: the network.
        test: the bank of ID test, or what is left of it without its features.
        accuracy: see :func:`~ood_lab.evaluation.id_accuracy.check_id_accuracy`.
        made: settings of the OOD sets that are made of ID test; None without such.
    """
    return {
        "head": str(backbone.kind),
        "multilabel": backbone.multilabel,
        "classes": data.classes,
        "synthetic_ood": made,
        "split_off": {name: len(data.splits[name]) for name in data.split_off},
        "id_accuracy": accuracy,
        "id_chance": Chance.of(test.labels, len(data.classes)).share,
        "shift_order": list(data.shift_order),
        "ood_groups": data.ood_groups,
        "csid": data.csid_names,
        "backbone": dict(test.manifest),
        "transform_overrides": backbone.transform_overrides,
        "data": {name: split.identity for name, split in data.splits.items()},
    }
