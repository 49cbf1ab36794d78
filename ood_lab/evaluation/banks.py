"""Which images are looked at, and the features of each set."""

from __future__ import annotations

import logging
from collections.abc import Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import Any

from lightning import Trainer
from torch import Tensor

from ood_lab.data.datamodule import OODDataModule
from ood_lab.detectors import Detector, DetectorRefusal
from ood_lab.errors import UserError
from ood_lab.evaluation.second_pass import SecondPass
from ood_lab.features.bank import FeatureBank
from ood_lab.features.bank_column import BankColumn
from ood_lab.features.extract import extract
from ood_lab.models import Backbone, weights_sha256

log = logging.getLogger(__name__)


def require_ood(data: OODDataModule) -> None:
    """Raises :class:`UserError` where there is ID data alone."""
    if not data.ood_names:
        raise UserError("there is no OOD set: add one with data.ood.NAME=DIR")


def chosen_sets(data: OODDataModule, shift: Mapping[str, Any]) -> list[str]:
    """Names of the OOD sets to evaluate: all, or only those with the asked level columns.

    Raises:
        UserError: there is no set, or none with such levels.
    """
    require_ood(data)
    axes = list(shift["axes"])
    leveled = [n for n in data.ood_names if any(a in data.splits[n].table for a in axes)]
    if shift["sets"]:
        return [n for n in data.ood_names if axes or "semantic_level" not in data.splits[n].table]
    if not leveled:
        raise UserError(
            f"no OOD set has a column {' or '.join(axes)}: use shift=sets, or give a manifest "
            "with that column"
        )
    return leveled


def split_by_columns(
    detectors: Mapping[str, Detector], backbone: Backbone
) -> tuple[dict[str, Detector], dict[str, str]]:
    """Detectors the backbone can serve, and the reason for each of the others."""
    usable: dict[str, Detector] = {}
    refused: dict[str, str] = {}
    for name, detector in detectors.items():
        try:
            for column in (detector.column, detector.second_column):
                if column is not None:
                    column.layers(backbone)
            usable[name] = detector
        except UserError as error:
            refused[name] = str(error)
    return usable, refused


def check_sizes(detectors: Mapping[str, Detector], data: OODDataModule, classes: int) -> None:
    """Warns of detectors that the sets they are fitted on are too small for.

    Args:
        detectors: by name.
        data: set up.
        classes: of the head, as far as it is known.

    Raises:
        UserError: that is all of them.
    """
    refused: dict[str, str] = {}
    for name, detector in detectors.items():
        try:
            if detector.fit_split is not None:
                detector.check_size(len(data.splits[detector.fit_split]), classes)
        except DetectorRefusal as refusal:
            refused[name] = str(refusal)
    if refused and len(refused) == len(detectors):
        raise UserError(f"no chosen detector works here. {'; '.join(refused.values())}")
    for name, reason in refused.items():
        log.warning("%s will be left out: %s", name, reason)


def extract_banks(
    data: OODDataModule,
    trainer: Trainer,
    root: Path,
    backbone: Backbone,
    detectors: Mapping[str, Detector],
    ood_sets: Sequence[str],
    selection: Sequence[str] = (),
    of_test: Sequence[BankColumn] = (),
) -> dict[str, FeatureBank]:
    """One bank per split: those some detector is fitted on, ID test, the OOD sets, ``selection``.

    Detectors that work in the pass do so on the evaluated sets, not on those of ``selection``;
    ``of_test`` is computed on ID test besides.
    Empty on the other ranks, which have done their share of the pass.
    """
    fitted_on = {d.fit_split for d in detectors.values()}
    weights = weights_sha256(backbone)
    banks = {}
    for split in dict.fromkeys(["train", "val", "test", *ood_sets, *selection]):
        evaluated = split == "test" or split in ood_sets
        if evaluated or split in fitted_on or split in selection:
            columns = _columns(detectors, split, evaluated)
            columns += of_test if split == "test" else []
            bank = _bank(data, trainer, root, backbone, split, columns, weights)
            if bank is not None:
                banks[split] = bank
    return banks


def second_pass(
    data: OODDataModule,
    trainer: Trainer,
    root: Path,
    backbone: Backbone,
    detectors: Mapping[str, Detector],
    banks: dict[str, FeatureBank],
    scored: Sequence[str],
    limit: int,
) -> SecondPass:
    """Fits the detectors that declare a second pass and makes it over the sets to be scored.

    ``banks`` of :func:`extract_banks` get what it adds; call it on all ranks.
    """
    made = SecondPass.fit(trainer, detectors, lambda d: banks[d.fit_split or "test"], limit)
    weights = weights_sha256(backbone) if made.detectors else ""
    extracted = partial(_bank, data, trainer, root, backbone, weights=weights)
    made.over(banks, {split: partial(extracted, split) for split in scored})
    return made


def extract_features(
    data: OODDataModule,
    trainer: Trainer,
    root: Path,
    backbone: Backbone,
    splits: Sequence[str],
) -> dict[str, Tensor]:
    """Features of sets, ``[n, D]`` each, from the feature bank where it has them.

    Empty on the other ranks, which have done their share of the pass.
    """
    data.use_transform(eval=backbone.transform)
    weights = weights_sha256(backbone)
    features = {}
    for split in splits:
        bank = _bank(data, trainer, root, backbone, split, (), weights)
        if bank is not None:
            features[split] = bank.features
    return features


def _bank(
    data: OODDataModule,
    trainer: Trainer,
    root: Path,
    backbone: Backbone,
    split: str,
    columns: Sequence[BankColumn],
    weights: str,
) -> FeatureBank | None:
    return extract(
        trainer,
        backbone,
        data.predict_dataset(split),
        root,
        columns,
        batch_size=data.eval_batch_size,
        num_workers=data.num_workers,
        weights=weights,
    )


def _columns(detectors: Mapping[str, Detector], split: str, evaluated: bool) -> list[BankColumn]:
    """What the detectors need of the pass over this split, each once."""
    wanted: dict[str, BankColumn] = {}
    for detector in detectors.values():
        column = detector.column
        if column is not None and (
            evaluated or (column.needed_for_fit and detector.fit_split == split)
        ):
            wanted[column.key] = column
    return list(wanted.values())
