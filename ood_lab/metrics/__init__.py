"""OOD metrics, their intervals and tests, as pure functions of scores.

Imports no other package of ``ood_lab``.

One rule everywhere: a higher score means "more OOD", and every value is a share in [0, 1].
"""

from ood_lab.metrics.average_precision import mean_average_precision
from ood_lab.metrics.best_set import mean_aurocs, ranked
from ood_lab.metrics.causes import CAUSE, causes_of, matched_aurocs, named_causes
from ood_lab.metrics.hierarchy_accuracy import HIERARCHY_COLUMNS, hierarchy_table
from ood_lab.metrics.miss_distances import (
    KEPT,
    MissDistances,
    follow,
    follow_all,
    follow_results,
    miss_rates,
    missed,
)
from ood_lab.metrics.ood import (
    REVERSED,
    SortedScores,
    aupr,
    auroc,
    fpr_at_tpr,
    roc_curve,
    threshold_at_tpr,
    tie_share,
)
from ood_lab.metrics.record import Metric, known_metrics, metric_of
from ood_lab.metrics.resampling.chance_level import at_chance, flagged_p_value, group_comparison
from ood_lab.metrics.resampling.detector_comparison import best_detectors, significance_of
from ood_lab.metrics.resampling.intervals import (
    FEWEST,
    FEWEST_FOR_THRESHOLD,
    auroc_interval,
    percentile_interval,
    wilson_interval,
)
from ood_lab.metrics.resampling.significance import (
    best_group,
    bootstrap_p_values,
    delong,
    delong_p_values,
    holm,
)
from ood_lab.metrics.resampling.stratified_bootstrap import bootstrap
from ood_lab.metrics.results_rows import accuracy_of, levels_of, map_of, results_of
from ood_lab.metrics.score_evaluation import (
    FEWEST_OF_A_VERDICT,
    Evaluation,
    PositiveClass,
    sets_of_means,
)
from ood_lab.metrics.selective import augrc, aurc, e_aurc, risk_coverage, selective_accuracy
from ood_lab.metrics.shift_trends import dad, shift_correlation, shift_sensitivity
from ood_lab.metrics.verdict import BASELINE, VERDICT, verdict_of

__all__ = [
    "BASELINE",
    "CAUSE",
    "FEWEST",
    "FEWEST_FOR_THRESHOLD",
    "FEWEST_OF_A_VERDICT",
    "HIERARCHY_COLUMNS",
    "KEPT",
    "REVERSED",
    "VERDICT",
    "Evaluation",
    "Metric",
    "MissDistances",
    "PositiveClass",
    "SortedScores",
    "accuracy_of",
    "at_chance",
    "augrc",
    "aupr",
    "aurc",
    "auroc",
    "auroc_interval",
    "best_detectors",
    "best_group",
    "bootstrap",
    "bootstrap_p_values",
    "causes_of",
    "dad",
    "delong",
    "delong_p_values",
    "e_aurc",
    "flagged_p_value",
    "follow",
    "follow_all",
    "follow_results",
    "fpr_at_tpr",
    "group_comparison",
    "hierarchy_table",
    "holm",
    "known_metrics",
    "levels_of",
    "map_of",
    "matched_aurocs",
    "mean_aurocs",
    "mean_average_precision",
    "metric_of",
    "miss_rates",
    "missed",
    "named_causes",
    "percentile_interval",
    "ranked",
    "results_of",
    "risk_coverage",
    "roc_curve",
    "selective_accuracy",
    "sets_of_means",
    "shift_correlation",
    "shift_sensitivity",
    "significance_of",
    "threshold_at_tpr",
    "tie_share",
    "verdict_of",
    "wilson_interval",
]
