"""The bank of a set, in one call."""

from __future__ import annotations

from collections.abc import Collection
from pathlib import Path

from lightning import Trainer

from ood_lab.features.bank import FeatureBank
from ood_lab.features.bank_identity import NetworkIdentity
from ood_lab.features.cached_extraction import NetworkPasses
from ood_lab.features.extraction_hooks import Columns
from ood_lab.features.extraction_pass import Images
from ood_lab.models.backbone import Backbone


def extract(
    trainer: Trainer,
    backbone: Backbone,
    dataset: Images,
    root: Path | str,
    columns: Columns = (),
    *,
    batch_size: int = 256,
    num_workers: int = 0,
    network: NetworkIdentity | None = None,
    moments: Collection[str] = (),
) -> FeatureBank | None:
    """See :meth:`NetworkPasses.bank`; ``network`` where it is known."""
    passes = NetworkPasses(trainer, backbone, Path(root), batch_size, num_workers)
    if network is not None:
        vars(passes)["network"] = network
    return passes.bank(dataset, columns, moments)
