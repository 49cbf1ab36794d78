"""What is found of new images and of the ID images, for the record of the run and its page."""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Any

import numpy as np
import pandas as pd
from numpy.typing import NDArray
from torch import Tensor

from ood_lab.data.dataset import ImageDataset
from ood_lab.detectors import CalibratedDetector
from ood_lab.detectors.deployment.calibration import CalibratedDetectors
from ood_lab.evaluation.id_accuracy import held_out_accuracy
from ood_lab.evaluation.prediction.detector_source import DetectorSource, PredictionFeatures
from ood_lab.evaluation.prediction.image_predictions import ImagePredictions
from ood_lab.evaluation.shift.statistics_column import group_causes
from ood_lab.features.bank import FeatureBank
from ood_lab.metrics import flagged_p_value, group_comparison, wilson_interval
from ood_lab.report.detection.image_strips import IDImages
from ood_lab.report.detection.prediction_summary import Judged
from ood_lab.schema.run_record import Facts, PredictedImages, RunRecord


def note_prediction(
    record: RunRecord,
    predicted: ImagePredictions,
    features: PredictionFeatures,
    source: DetectorSource,
    ready: CalibratedDetectors,
    *,
    images: str,
    seed: int,
) -> None:
    """Records what a prediction found.

    Args:
        record: of the run.
        predicted: verdicts on the new images.
        features: that they were made from.
        source: of the detectors.
        ready: the detectors.
        images: where the new ones come from, as the user wrote it.
        seed: of the bootstrap.
    """
    of_id, tpr, reached = features.of_id, source.thresholds.tpr, source.thresholds.reached
    accuracy = None if of_id is None else held_out_accuracy(of_id, source.classes)
    right, n, independent = accuracy or (None, 0, 0)
    if of_id is not None and "images" in features.banks:
        causes = group_causes(of_id, features.banks["images"], seed=seed)
        record.causes = [{str(k): v for k, v in row.items()} for row in causes.to_dict("records")]
    made_of = {name: len(dataset) for name, dataset in features.ood.items()}
    record.images = PredictedImages(
        source=images, identity=predicted.identity, passed_over=list(predicted.passed)
    )
    record.classes, record.backbone = list(source.classes), predicted.made_of
    record.id_accuracy, record.id_accuracy_n = right, n
    record.id_accuracy_independent = independent
    record.threshold_from = {"tpr": tpr, "ood": made_of} if made_of else None
    record.detectors = {
        name: detector_summary(predicted.verdicts, name, calibrated, reached.get(name))
        for name, calibrated in ready.items()
    }


def detector_summary(
    images: Judged, name: str, calibrated: CalibratedDetector, tpr: float | None
) -> Facts:
    """What was decided about the images, by what, and whether that is more than chance."""
    n, flagged, held_out = images.read, images.flagged[name], calibrated.groups
    false_alarms, groups = calibrated.false_alarms, _groups(images, calibrated)
    n_flagged, n_new = flagged, n
    if images.groups is not None:  # a group counts as much of it as is flagged, rounded down
        is_ood = images.rows[f"{name}_is_ood"].to_numpy(np.float64)
        shares = pd.Series(is_ood).groupby(images.groups).mean()
        n_flagged, n_new = math.floor(round(shares.sum(), 9)), len(shares)
    facts = {
        "alpha": calibrated.alpha,
        "threshold_score": None if calibrated.shortage else calibrated.threshold,
        "rule": calibrated.rule,
        "calibration": calibrated.calibration,
        "held_out": len(calibrated.id_scores),
        "groups": held_out,
        "new_groups": None if images.groups is None else n_new,
        "flagged": flagged,
        "share_flagged": flagged / n,
        "flagged_p_value": flagged_p_value(n_flagged, n_new, false_alarms, held_out),
    }
    group = group_comparison(calibrated.id_scores, images.scores(name), groups)
    facts |= {f"group_{k}": None if math.isnan(v) else v for k, v in group._asdict().items()}
    fpr = calibrated.alpha
    if fpr is None:
        fpr = calibrated.false_positive_rate
        low, high = wilson_interval(fpr, held_out)
        facts |= {"fpr": fpr, "fpr_ci_low": low, "fpr_ci_high": high}
        facts |= {} if tpr is None else {"tpr": tpr}
    facts["flagged_by_chance"] = fpr * n
    return calibrated.detector.used_settings() | facts


def _groups(
    images: Judged, calibrated: CalibratedDetector
) -> tuple[NDArray[Any], NDArray[Any]] | None:
    """Groups of the ID and of the new images; None where each image is its own."""
    of_id, of_new = calibrated.id_groups, images.groups
    if of_id is None and of_new is None:
        return None
    n, m = len(calibrated.id_scores), len(images.rows)
    return (
        np.arange(n) if of_id is None else of_id.numpy(),
        np.arange(m) if of_new is None else of_new,
    )


def id_images(
    images: ImageDataset,
    scored: Mapping[str, tuple[FeatureBank, Tensor]],
    ready: CalibratedDetectors,
) -> IDImages:
    """The ID images that some detector was calibrated on; index of the table = row in ``images``.

    Columns ``path``, and of every detector ``<name>_score`` and ``<name>_p_value``, the share of ID
    images that score as high, itself counted, each group with weight one.
    """
    columns = {}
    for name, calibrated in ready.items():
        bank, scores = scored[name]
        n, rows = calibrated.groups, bank.index.numpy()
        # p_values counts a new image, and this one is among the n already.
        p = (calibrated.p_values(scores) * (n + 1) - 1) / n
        columns[f"{name}_score"] = pd.Series(scores.numpy(), rows)
        columns[f"{name}_p_value"] = pd.Series(p.numpy(), rows)
    table = pd.DataFrame(columns)
    table.insert(0, "path", images.table["path"].iloc[table.index].to_numpy())
    return IDImages(table, images.load_image)
