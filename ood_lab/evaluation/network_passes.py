"""What the passes of the network over the images leave: features, or only scores."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

from ood_lab.detectors.base import Detectors, Reasons
from ood_lab.evaluation.detector_tuning import Tuning
from ood_lab.evaluation.near_copies import NearCopies
from ood_lab.evaluation.split_features import Extraction, PassPlan
from ood_lab.evaluation.streaming_scores import Fitted, fit_before


@dataclass(frozen=True, kw_only=True)
class ScoringInput:
    """What detectors are fitted and scored on; without banks on all but the main process.

    Attributes:
        usable: detectors that the network supports.
        refused: why it does not support the others.
        banks: features of the sets, by name; with ``fitted``, what is left of the evaluated ones.
        fitted: the detectors, where they were fitted before the images passed.
        copies: near copies among the images.
        ood: names of the OOD sets to evaluate.
    """

    usable: Detectors
    refused: Reasons
    banks: Mapping[str, Any] = field(default_factory=dict)
    fitted: Fitted | None = None
    copies: NearCopies = field(default_factory=NearCopies)
    ood: Sequence[str] = ()


def streamed(
    inputs: ScoringInput,
    extraction: Extraction,
    plan: PassPlan,
    tuning: Tuning,
    folder: Path,
    seed: int,
) -> ScoringInput:
    """Fits first, and then scores the evaluated sets while they pass; call it on all ranks.

    ``inputs`` are those so far, ``folder`` gets the parts of the scores, and ``seed`` is that of
    the tuning.
    """
    banks: dict[str, Any] = dict(extraction.for_fits(inputs.usable, tuning.splits))
    with extraction.stages("score"):
        fitted = fit_before(extraction.trainer, inputs.usable, banks, tuning, seed)
    for split in ["test", *plan.evaluated]:
        columns = plan.of_test if split == "test" else ()
        rest = extraction.scored(split, fitted.detectors, folder, columns)
        banks |= {} if rest is None else {split: rest}
    return replace(inputs, refused=inputs.refused | fitted.refused, banks=banks, fitted=fitted)
