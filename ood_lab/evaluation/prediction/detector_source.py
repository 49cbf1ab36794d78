"""Where the detectors of a prediction come from: fits on ID images, or files."""

from __future__ import annotations

from dataclasses import dataclass, replace
from functools import cached_property, partial
from pathlib import Path

from torch import Tensor

from ood_lab.common.errors import UserError
from ood_lab.data.datamodules.base import OODDataModule
from ood_lab.data.sources.image_files import decoding_of
from ood_lab.data.sources.pixel_decoding import Decoding
from ood_lab.detectors import DEFAULT_ALPHA, CalibratedDetector, save_detector
from ood_lab.detectors.base import Detectors
from ood_lab.detectors.deployment.calibration import CalibratedDetectors
from ood_lab.evaluation.prediction.calibration import decoding_with, fit_detectors
from ood_lab.evaluation.prediction.prediction_features import PredictionFeatures
from ood_lab.evaluation.prediction.thresholds import Thresholds
from ood_lab.evaluation.split_features import NetworkPasses, split_by_columns
from ood_lab.features.bank import FeatureBank
from ood_lab.features.bank_identity import transform_text


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
        return self.data.classes if self.data else next(iter(self.saved.values())).classes

    @cached_property
    def decoding(self) -> Decoding:
        """How images are decoded: as the ID images are."""
        return decoding_of(self.data.splits["train"]) if self.data else decoding_with(self.saved)

    def supported_by(self, passes: NetworkPasses) -> tuple[Detectors, dict[str, str]]:
        """Detectors that the network supports, and the reason for each of the others.

        Raises:
            UserError: a saved detector is of another network, or no detector is supported.
        """
        transform = transform_text(passes.backbone.transform, "images")
        for saved in self.saved.values():
            saved.check_backbone(passes.network.weights_sha256, transform)
        usable, refused = split_by_columns(self.wanted, passes.backbone)
        if not usable:
            raise UserError(f"no detector works on this backbone. {'; '.join(refused.values())}")
        return usable, refused

    def calibrated(
        self,
        usable: Detectors,
        features: PredictionFeatures,
        refused: dict[str, str],
        folder: Path,
        limit: int,
        seed: int,
    ) -> tuple[dict[str, CalibratedDetector], dict[str, tuple[FeatureBank, Tensor]]]:
        """Detectors with thresholds; those that are fitted are saved in ``folder``.

        See :func:`~ood_lab.evaluation.prediction.calibration.fit_detectors`.
        """
        of_ood = [features.banks[f"ood/{name}"] for name in features.ood]
        threshold_of = partial(self.thresholds.of, ood=of_ood) if self.thresholds else None
        if not self.data:
            calibrated = {name: saved for name, saved in self.saved.items() if name in usable}
            if threshold_of is None:
                return calibrated, {}
            return {
                n: c.at_threshold(threshold_of(n, c.detector)) for n, c in calibrated.items()
            }, {}
        alpha = None if threshold_of else DEFAULT_ALPHA if self.alpha is None else self.alpha
        calibrated, scored = fit_detectors(
            usable,
            features.banks,
            refused,
            alpha=alpha,
            classes=self.classes,
            seed=seed,
            limit=limit,
            threshold_of=threshold_of,
            pooled=features.pooled,
        )
        for name, fitted in calibrated.items():
            calibrated[name] = replace(fitted, pixel_range=self.decoding.pixel_range)
            save_detector(folder / f"{name}.safetensors", calibrated[name])
        return calibrated, scored
