"""The training images by how unusual each is among the others."""

from __future__ import annotations

from typing import Any

from ood_lab.data.datamodules.base import OODDataModule
from ood_lab.detectors import DEFAULT_ALPHA, KNN, CalibratedDetector
from ood_lab.detectors.deployment.cross_fitting import cross_fitted_scores
from ood_lab.evaluation.prediction.detector_summaries import id_images
from ood_lab.features.bank import FeatureBank
from ood_lab.report.detection.image_strips import UNUSUAL_BY, IDImages

#: Of more training images nobody looks at the most unusual ones.
MOST = 20_000


def unusual_training_images(data: OODDataModule, bank: FeatureBank | None) -> IDImages | None:
    """Score and p-value of every training image by :class:`KNN` fitted without it.

    See :func:`~ood_lab.detectors.deployment.cross_fitting.cross_fitted_scores`.

    Args:
        data: set up.
        bank: of ``train``; None where its features were not kept.

    Returns:
        None without features, of one image, and of more than :data:`MOST`.
    """
    if bank is None or "features" not in bank.gives or not 1 < len(bank) <= MOST:
        return None
    knn = KNN().fit(bank)
    scores = cross_fitted_scores(knn, bank)
    made: dict[str, Any] = {"weights_sha256": "", "transform": "", "groups": bank.groups}
    ranked = CalibratedDetector.of(knn, scores, DEFAULT_ALPHA, **made)
    known = {UNUSUAL_BY: (bank, scores)}
    return id_images(data.splits["train"], known, {UNUSUAL_BY: ranked})
