"""What to know before the scores of a run are believed, a sentence each."""

from __future__ import annotations

from collections.abc import Sequence

from ood_lab.common.english import first_of
from ood_lab.detectors.base import Detectors
from ood_lab.metrics import REVERSED, Evaluation, SortedScores

#: From this share of the images on, those that lie at the threshold of FPR95 are told.
NOTICEABLE = 0.05


def suspicious(evaluation: Evaluation, detectors: Detectors) -> list[str]:
    """Scores that cannot mean what they should, one sentence per reason.

    Constant scores; an AUROC below 0.4, of which a detector from outside this package may have the
    wrong sign; a threshold of the headline FPR95 that many of the images it is to divide share.
    """
    package = __name__.partition(".")[0]
    foreign = {n for n, d in detectors.items() if type(d).__module__.partition(".")[0] != package}
    inverted: set[str] = set()
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
                inverted |= {name} & foreign
            share = pair.tied_at_threshold(0.95, positive)
            if not pair.constant and share >= NOTICEABLE:
                tied.append((-share, f"{where} ({share:.0%})"))
    counted = "ID" if positive == "ood" else "OOD"
    signs = f"; check the sign of {', '.join(sorted(inverted))}: higher must mean more OOD"
    sentences = {
        "every score is the same: {}; constant features, or a detector that was not "
        "fitted": constant,
        f"AUROC below {REVERSED}: {{}}; it scores these images as more ID than the ID test set"
        + signs * bool(inverted): _in_order(low),
        f"many {counted} scores equal the threshold of FPR95 and are counted together: {{}}; this "
        "FPR95 says little, the AUROC more": _in_order(tied),
    }
    return [text.format(first_of(where, 5)) for text, where in sentences.items() if where]


def _in_order(values: Sequence[tuple[float, str]]) -> list[str]:
    return [text for _, text in sorted(values)]
