"""Features of a prediction: of ID images, of OOD images for a threshold, and of new ones."""

from __future__ import annotations

from dataclasses import dataclass
from functools import partial
from typing import Self

import torch

from ood_lab.data.datamodules.base import OODDataModule
from ood_lab.data.dataset import ID_SPLITS, ImageDataset, Splits
from ood_lab.detectors.base import Detector, Detectors
from ood_lab.evaluation.near_copies import NearCopies, with_near_copies
from ood_lab.evaluation.prediction.calibration import fit_and_held_out
from ood_lab.evaluation.prediction.image_differences import IDRange
from ood_lab.evaluation.prediction.unlabelled_images import ReadableImages
from ood_lab.evaluation.second_pass import second_pass
from ood_lab.evaluation.shift.statistics_column import StatisticsColumn
from ood_lab.evaluation.split_features import NetworkPasses, columns_for, moments_for
from ood_lab.features.bank import FeatureBank


@dataclass(frozen=True)
class PredictionFeatures:
    """The banks of a prediction, on the main process.

    Attributes:
        banks: ``train``, ``val``, ``ood/<name>`` and ``images``; only those that are needed.
        ood: the OOD images that a threshold is made of.
        pooled: of ID there is only ``train``, on which all detectors are cross-fitted.
        copies: near copies among the ID images.
    """

    banks: dict[str, FeatureBank]
    ood: Splits
    pooled: bool
    copies: NearCopies

    @property
    def id_split(self) -> str:
        """The ID images that new ones are compared with."""
        return "train" if self.pooled else "val"

    @property
    def of_id(self) -> FeatureBank | None:
        """Their bank; None without ID images."""
        return self.banks.get(self.id_split)

    @property
    def inside(self) -> IDRange | None:
        """The range of their statistics; None without ID images."""
        return None if self.of_id is None else IDRange.of(self.of_id)

    @classmethod
    def extracted(
        cls,
        passes: NetworkPasses,
        detectors: Detectors,
        data: OODDataModule | None,
        ood: Splits,
        pictures: ReadableImages | None,
        pooled: bool,
        limit: int,
        seed: int,
    ) -> Self:
        """Extracts what fits, thresholds and verdicts need, with the second pass where one is due.

        Args:
            passes: of the network; called on all processes.
            detectors: that the network supports.
            data: the ID images: val, and train where a detector is fitted on it; None = none.
            ood: the OOD images that a threshold is made of.
            pictures: the new images; None = they pass later.
            pooled: of ID only train is read, and is scored.
            limit: bytes that a fit may take.
            seed: of the halves of val.
        """
        sets: dict[str, ImageDataset] = {}
        id_split = "train" if pooled else "val"
        if data:
            on_train = pooled or any(d.fit_split == "train" for d in detectors.values())
            splits = dict.fromkeys([*(["train"] if on_train else []), id_split])
            sets = {split: data.predict_dataset(split) for split in splits}
        sets |= {f"ood/{name}": images for name, images in ood.items()}
        if pictures is not None:
            pictures.readable.transform = passes.backbone.transform
            sets["images"] = pictures.readable
        banks: dict[str, FeatureBank] = {}
        for name, images in sets.items():
            columns = columns_for(detectors, name, pooled or name != "train")
            columns += [StatisticsColumn()] if data and name in (id_split, "images") else []
            bank = passes.bank(images, columns, moments_for(detectors, name))
            banks |= {} if bank is None else {name: bank}
        copies = NearCopies()
        if data:
            of_id, copies = with_near_copies(
                data, {n: bank for n, bank in banks.items() if n in ID_SPLITS}
            )
            banks |= of_id
        scored = ["images", "val", *(f"ood/{name}" for name in ood)]
        sources = {n: partial(passes.bank, sets[n]) for n in scored if n in sets}

        def fit_bank(detector: Detector) -> FeatureBank:
            return fit_and_held_out(detector, banks, seed)[0]

        second_pass(passes.trainer, detectors, fit_bank, limit, banks, sources)
        left = set(range(len(banks.get("val", ())))) - set(copies.rows.get("val", ()))
        if left and "val" in copies.rows:
            banks["val"] = banks["val"].rows(torch.tensor(sorted(left)))
            copies.sentences.append("The copies in val are excluded from the calibration.")
        return cls(banks, ood, pooled, copies)
