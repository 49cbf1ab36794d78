"""Where the detectors of a prediction come from: fits on ID images, or files."""

from __future__ import annotations

import math
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property, partial
from pathlib import Path
from typing import Self

import torch
from torch import Tensor

from ood_lab.common.errors import UserError
from ood_lab.common.grouping import with_keys
from ood_lab.common.hints import check_known
from ood_lab.data.datamodules.base import OODDataModule
from ood_lab.data.dataset import ID_SPLITS, ImageSets, Splits
from ood_lab.data.sources.image_files import decoding_of
from ood_lab.data.sources.pixel_decoding import Decoding
from ood_lab.detectors import (
    DEFAULT_ALPHA,
    CalibratedDetector,
    Detector,
    DetectorRefusal,
    checked_score,
    save_detector,
)
from ood_lab.detectors.base import Detectors, Reasons
from ood_lab.detectors.deployment.calibration import (
    CalibratedDetectors,
    Calibration,
    cross_fitted_scores,
    cross_fitting_of,
)
from ood_lab.evaluation.detector_fitting import each_that_works, fit_and_held_out, fit_within_memory
from ood_lab.evaluation.near_copies import NearCopies, with_near_copies
from ood_lab.evaluation.prediction.calibration import decoding_with, n_held_out
from ood_lab.evaluation.prediction.unlabelled_images import ReadableImages
from ood_lab.evaluation.shift.statistics_column import IDRange, StatisticsColumn
from ood_lab.evaluation.split_features import (
    columns_for,
    moments_for,
    split_by_columns,
)
from ood_lab.features.bank import Banks, FeatureBank
from ood_lab.features.bank_identity import transform_text
from ood_lab.features.cached_extraction import NetworkPasses
from ood_lab.features.image_groups import group_count
from ood_lab.metrics import threshold_at_tpr


@dataclass(frozen=True)
class PredictionFeatures:
    """The banks of a prediction, on the main process.

    Attributes:
        banks: ``train``, ``val``, ``ood/<name>`` and ``images``; only those that are needed.
        ood: the OOD images that a threshold is made of.
        pooled: of ID there is only ``train``, on which all detectors are cross-fitted.
        copies: near copies among the ID images.
    """

    banks: Banks
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
    ) -> Self:
        """Extracts what fits, thresholds and verdicts need.

        Args:
            passes: of the network; called on all processes.
            detectors: that the network supports.
            data: the ID images: val, and train where a detector is fitted on it; None = none.
            ood: the OOD images that a threshold is made of.
            pictures: the new images; None = they pass later.
            pooled: of ID only train is read, and is scored.
        """
        sets: ImageSets = {}
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
            columns = columns_for(detectors, "train" if name == "train" and not pooled else None)
            columns += [StatisticsColumn()] if data and name in (id_split, "images") else []
            bank = passes.bank(images, columns, moments_for(detectors, name))
            banks |= {} if bank is None else {name: bank}
        copies = NearCopies()
        if data:
            of_id, copies = with_near_copies(data, with_keys(banks, ID_SPLITS))
            banks |= of_id
        left = set(range(len(banks.get("val", ())))) - set(copies.rows.get("val", ()))
        if left and "val" in copies.rows:
            banks["val"] = banks["val"].rows(torch.tensor(sorted(left)))
            copies.sentences.append("The copies in val are excluded from the calibration.")
        return cls(banks, ood, pooled, copies)


@dataclass(frozen=True)
class Thresholds:
    """What decides instead of a false alarm rate: an image is OOD from the threshold on.

    Attributes:
        scores: the score for the only detector, or by detector.
        tpr: the fraction of OOD images that are detected.
        reached: by detector, the fraction that is, once it has been asked for.
    """

    scores: float | Mapping[str, float] | None
    tpr: float | None
    reached: dict[str, float] = field(default_factory=dict)

    def __bool__(self) -> bool:
        return self.scores is not None or self.tpr is not None

    def check(self, alpha: float | None) -> None:
        """Raises :class:`UserError` where two settings decide, or a threshold is not finite."""
        settings = {"task.alpha": alpha, "task.threshold": self.scores, "task.tpr": self.tpr}
        chosen = [name for name, value in settings.items() if value is not None]
        if len(chosen) > 1:
            raise UserError(f"{' and '.join(chosen)} exclude each other: give one of them")
        values = self.scores.values() if isinstance(self.scores, Mapping) else [self.scores]
        if wrong := [v for v in values if v is not None and not math.isfinite(v)]:
            raise UserError(f"task.threshold={wrong[0]}: give a finite number")

    def check_detectors(self, names: Collection[str]) -> None:
        """Raises :class:`UserError` where the thresholds are not those of these detectors."""
        if self.scores is None:
            return
        if not isinstance(self.scores, Mapping):
            if len(names) > 1:
                raise UserError(
                    f"task.threshold={self.scores:g} is one score for {len(names)} detectors: "
                    "choose one (detector=[knn]), or give 'task.threshold={knn: 0.5, msp: -0.9}'"
                )
            return
        check_known(self.scores, names, "task.threshold names '{name}'")
        if missing := [name for name in names if name not in self.scores]:
            raise UserError(f"task.threshold has no score for {', '.join(missing)}")

    def made_of(self, ood: Splits) -> str | None:
        """What the thresholds are made of, where they are not known beforehand."""
        if self.tpr is None:
            return None
        return f"{self.tpr} of {[data.identity for data in ood.values()]}"

    def of(self, name: str, detector: Detector, ood: Sequence[FeatureBank]) -> float:
        """The threshold of a fitted detector, by its scores of the OOD images.

        Raises:
            UserError: see :func:`~ood_lab.detectors.base.checked_score`.
        """
        if self.tpr is None:
            score = self.scores[name] if isinstance(self.scores, Mapping) else self.scores
            return float(score)  # type: ignore[arg-type]  # asked for only where one is given
        of_ood = torch.cat([checked_score(detector, bank) for bank in ood])
        threshold = threshold_at_tpr(of_ood.numpy(), self.tpr)
        self.reached[name] = float((of_ood >= threshold).double().mean())
        return threshold


@dataclass(frozen=True)
class DetectorSource:
    """The detectors of a prediction before new images are known.

    Attributes:
        wanted: detectors by name, of which the network may support only some.
        saved: the same as files hold them; empty where they are to be fitted.
        data: the ID images to fit them on; None where files hold them.
        thresholds: what decides instead of a false alarm rate.
        alpha: the false alarm rate; None = 0.05.
    """

    wanted: Detectors
    saved: CalibratedDetectors
    data: OODDataModule | None
    thresholds: Thresholds
    alpha: float | None

    @property
    def classes(self) -> list[str]:
        """Names of the ID classes."""
        return self.data.classes if self.data else list(next(iter(self.saved.values())).classes)

    @cached_property
    def decoding(self) -> Decoding:
        """How images are decoded: as the ID images are."""
        return decoding_of(self.data.splits["train"]) if self.data else decoding_with(self.saved)

    def supported_by(self, passes: NetworkPasses) -> tuple[Detectors, Reasons]:
        """Detectors that the network supports, and the reason for each of the others.

        Raises:
            UserError: a saved detector is of another network, or no detector is supported.
        """
        transform = transform_text(passes.backbone.transform, "images")
        for saved in self.saved.values():
            saved.check_backbone(passes.network.weights_sha256, transform)
        return split_by_columns(self.wanted, passes.backbone)

    def calibrated(
        self,
        usable: Detectors,
        features: PredictionFeatures,
        refused: Reasons,
        folder: Path,
        seed: int,
    ) -> tuple[dict[str, CalibratedDetector], dict[str, tuple[FeatureBank, Tensor]]]:
        """Detectors with thresholds; those that are fitted are saved in ``folder``.

        The p-values of a fitted one come from scores of ID images by fits without them. Where the
        ID images are pooled, all detectors are fitted on train, and cross-fitting scores the same
        images. Else these are val; a detector that is itself fitted on val gets a seeded random
        half of it, and its p-values come from the other half. Detectors that cannot work here are
        added to ``refused``, with the reason.

        Returns:
            The detectors, and of each that is fitted the bank of ID images and their scores.

        Raises:
            UserError: no detector works.
        """
        of_ood = [features.banks[f"ood/{name}"] for name in features.ood]
        threshold_of = partial(self.thresholds.of, ood=of_ood) if self.thresholds else None
        if not self.data:
            saved = with_keys(self.saved, usable)
            if threshold_of is not None:
                saved = {n: c.at_threshold(threshold_of(n, c.detector)) for n, c in saved.items()}
            return saved, {}
        alpha = None if threshold_of else DEFAULT_ALPHA if self.alpha is None else self.alpha
        scored: dict[str, tuple[FeatureBank, Tensor]] = {}

        def fitted(name: str, detector: Detector) -> CalibratedDetector:
            how: Calibration = "held-out"
            if features.pooled:
                fit_bank = of = features.banks["train"]
                scores = cross_fitted_scores(fit_within_memory(detector, fit_bank), fit_bank, seed)
                how = cross_fitting_of(detector, fit_bank)
            else:
                n = group_count(features.banks["val"])
                first = n - n_held_out(detector, n)
                fit_bank, of = fit_and_held_out(detector, features.banks, first, seed)
                if not len(of):
                    raise DetectorRefusal(f"{name}: its fit leaves no image of val for p-values")
                scores = checked_score(fit_within_memory(detector, fit_bank), of)
            scored[name] = of, scores
            return CalibratedDetector.of(
                detector,
                scores,
                alpha,
                classes=self.classes,
                weights_sha256=of.record.weights_sha256,
                transform=of.record.transform,
                given_threshold=None if threshold_of is None else threshold_of(name, detector),
                calibration=how,
                groups=of.groups,
            )

        calibrated = each_that_works(usable, fitted, refused)
        for name, detector in calibrated.items():
            calibrated[name] = replace(detector, pixel_range=self.decoding.pixel_range)
            save_detector(folder / f"{name}.safetensors", calibrated[name])
        return calibrated, scored
