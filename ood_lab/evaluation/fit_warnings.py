"""What to know before the scores of a run are believed, a sentence each."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from ood_lab.detectors import Detector
from ood_lab.features.bank import FeatureBank
from ood_lab.metrics import REVERSED, Evaluation, SortedScores

#: From this share of the images on, those that lie at the threshold of FPR95 are told.
NOTICEABLE = 0.05
_LISTED = 5


def suspicious(evaluation: Evaluation) -> list[str]:
    """Scores that cannot mean what they should, one sentence per reason.

    Constant scores; an AUROC below 0.4; a threshold of the headline FPR95 that many of the images
    it is to divide share.
    """
    constant: list[str] = []
    low: list[tuple[float, str]] = []
    tied: list[tuple[float, str]] = []
    positive = evaluation.fpr95_positive
    rows = {ood: evaluation.rows_of(ood) for ood in evaluation.ood_names}
    for name in evaluation.detectors:
        inside = evaluation.id_rows[name].to_numpy()
        for ood in evaluation.ood_names:
            pair = SortedScores.of(inside, rows[ood][name].to_numpy())
            where, value = f"{name} on {ood}", pair.auroc()
            if pair.constant:
                constant.append(where)
            elif value < REVERSED:
                low.append((value, f"{where} ({value:.3f})"))
            share = pair.tied_at_threshold(0.95, positive)
            if not pair.constant and share >= NOTICEABLE:
                tied.append((-share, f"{where} ({share:.0%})"))
    sentences = []
    if constant:
        sentences.append(
            f"every score is the same: {_first(constant)}; constant features, or a detector that "
            "was not fitted"
        )
    if low:
        sentences.append(
            f"AUROC below {REVERSED}: {_first([text for _, text in sorted(low)])}; it scores these "
            "images as more ID than the ID test set; of a detector of your own, check the sign "
            "(higher must mean more OOD)"
        )
    if tied:
        counted = "ID" if positive == "ood" else "OOD"
        sentences.append(
            f"many {counted} scores equal the threshold of FPR95 and are counted together: "
            f"{_first([text for _, text in sorted(tied)])}; this FPR95 says little, the AUROC more"
        )
    return sentences


def doubtful_fits(
    detectors: Mapping[str, Detector], banks: Mapping[str, FeatureBank], names: Sequence[str]
) -> list[str]:
    """What makes the fits of the detectors doubtful, a sentence for all that share the reason."""
    found: dict[str, list[str]] = {}
    for name in names:
        detector = detectors[name]
        if detector.fit_split and (reason := detector.fit_warning(banks[detector.fit_split])):
            found.setdefault(reason, []).append(name)
    return [f"{', '.join(names)}: {reason}" for reason, names in found.items()]


def _first(texts: Sequence[str]) -> str:
    """The first few, and how many more there are."""
    more = len(texts) - _LISTED
    return ", ".join(texts[:_LISTED]) + (f" and {more} more" if more > 0 else "")
