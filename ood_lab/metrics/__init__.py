"""OOD metrics, their intervals and tests, as pure functions of scores.

Imports no other package of ``ood_lab``.

One rule everywhere: a higher score means "more OOD", and every value is a share in [0, 1].
"""

from ood_lab.metrics.chance import at_chance
from ood_lab.metrics.comparison import best_detectors, significance_of
from ood_lab.metrics.dating import DATING_COLUMNS, dating_table
from ood_lab.metrics.evaluation import Evaluation, Protocol
from ood_lab.metrics.intervals import auroc_interval, percentile_interval, wilson_interval
from ood_lab.metrics.ood import (
    SortedScores,
    aupr,
    auroc,
    fpr_at_tpr,
    roc_curve,
    score_warning,
    tie_share,
)
from ood_lab.metrics.resampling import bootstrap
from ood_lab.metrics.selective import aurc, e_aurc, risk_coverage
from ood_lab.metrics.shift import dad, shift_correlation, shift_sensitivity
from ood_lab.metrics.significance import (
    best_group,
    bootstrap_p_values,
    delong,
    delong_p_values,
    holm,
)
from ood_lab.metrics.table import COLUMNS, accuracy_of, results_of

__all__ = [
    "COLUMNS",
    "DATING_COLUMNS",
    "Evaluation",
    "Protocol",
    "SortedScores",
    "accuracy_of",
    "at_chance",
    "aupr",
    "aurc",
    "auroc",
    "auroc_interval",
    "best_detectors",
    "best_group",
    "bootstrap",
    "bootstrap_p_values",
    "dad",
    "dating_table",
    "delong",
    "delong_p_values",
    "e_aurc",
    "fpr_at_tpr",
    "holm",
    "percentile_interval",
    "results_of",
    "risk_coverage",
    "roc_curve",
    "score_warning",
    "shift_correlation",
    "shift_sensitivity",
    "significance_of",
    "tie_share",
    "wilson_interval",
]
