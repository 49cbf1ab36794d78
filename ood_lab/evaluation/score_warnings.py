"""What to know of the scores of a run, and of the choice of its detectors, a sentence each."""

from __future__ import annotations

from collections.abc import Sequence

from torch.nn import functional as F

from ood_lab.common.english import first_of
from ood_lab.detectors.base import Detectors
from ood_lab.features.bank import FeatureBank
from ood_lab.metrics import REVERSED, Evaluation, SortedScores

#: From this share of the images on, those that lie at the threshold of FPR95 are told.
NOTICEABLE = 0.05
#: Mean correlation of features of two ID images, from which on all show one product in one view.
#: EfficientNet-lite0: solar cells 0.76; blood cells 0.52 and 0.54, photographs of one kind 0.11.
ALIKE = 0.65


def places_proposal(bank: FeatureBank, detectors: Detectors) -> list[str]:
    r"""Proposes ``patch_knn`` where ID images of at most one class are much alike.

    .. math::
        \frac{1}{n (n - 1)} \sum_{i \ne j} \mathrm{corr}(x_i, x_j) \ge 0.65

    x ``[n, D]`` the features, correlated over their D numbers: features after a ReLU have one sign.
    """
    n, x, labels = len(bank.features), bank.features.double(), bank.labels
    several = len(labels[labels >= 0].unique()) > 1
    if n < 2 or not x.shape[1] or several or any(d.has_maps for d in detectors.values()):
        return []
    total = F.normalize(x - x.mean(dim=1, keepdim=True), dim=1).sum(dim=0)
    alike = float(total @ total - n) / (n * (n - 1)) >= ALIKE
    return [
        "Your images are much alike, as of one product in one view: detector=[knn,patch_knn] also "
        "detects defects in small parts of an image."
    ] * alike


def suspicious(evaluation: Evaluation, detectors: Detectors) -> list[str]:
    """Scores that cannot mean what they should, one sentence per reason.

    Constant scores; an AUROC below 0.4, of which a detector from outside this package may have the
    wrong sign; a threshold of the headline FPR95 that many of the images it is to divide share.
    """
    package = __name__.partition(".")[0]
    foreign = {n for n, d in detectors.items() if type(d).__module__.partition(".")[0] != package}
    inverted = set()
    constant = []
    low = []
    tied = []
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
