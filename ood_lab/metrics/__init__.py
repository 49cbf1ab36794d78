"""OOD metrics, their intervals and tests, as pure functions of scores.

Imports no other package of ``ood_lab``.

One rule everywhere: a higher score means "more OOD", and every value is a share in [0, 1].
"""

from ood_lab.metrics.best_set import mean_aurocs as mean_aurocs
from ood_lab.metrics.best_set import ranked as ranked
from ood_lab.metrics.causes import CAUSE as CAUSE
from ood_lab.metrics.causes import cause_results as cause_results
from ood_lab.metrics.causes import causes_of as causes_of
from ood_lab.metrics.causes import matched_aurocs as matched_aurocs
from ood_lab.metrics.causes import named_causes as named_causes
from ood_lab.metrics.causes import strongest_first as strongest_first
from ood_lab.metrics.id_metrics import HIERARCHY_COLUMNS as HIERARCHY_COLUMNS
from ood_lab.metrics.id_metrics import hierarchy_table as hierarchy_table
from ood_lab.metrics.id_metrics import mean_average_precision as mean_average_precision
from ood_lab.metrics.ood import REVERSED as REVERSED
from ood_lab.metrics.ood import SortedScores as SortedScores
from ood_lab.metrics.ood import aupr as aupr
from ood_lab.metrics.ood import auroc as auroc
from ood_lab.metrics.ood import fpr_at_tpr as fpr_at_tpr
from ood_lab.metrics.ood import roc_curve as roc_curve
from ood_lab.metrics.ood import threshold_at_tpr as threshold_at_tpr
from ood_lab.metrics.record import OF_SETS as OF_SETS
from ood_lab.metrics.record import Metric as Metric
from ood_lab.metrics.record import known_metrics as known_metrics
from ood_lab.metrics.record import metric_of as metric_of
from ood_lab.metrics.resampling.detector_comparison import at_chance as at_chance
from ood_lab.metrics.resampling.detector_comparison import best_detectors as best_detectors
from ood_lab.metrics.resampling.detector_comparison import flagged_p_value as flagged_p_value
from ood_lab.metrics.resampling.detector_comparison import group_comparison as group_comparison
from ood_lab.metrics.resampling.detector_comparison import significance_of as significance_of
from ood_lab.metrics.resampling.intervals import FEWEST as FEWEST
from ood_lab.metrics.resampling.intervals import FEWEST_FOR_THRESHOLD as FEWEST_FOR_THRESHOLD
from ood_lab.metrics.resampling.intervals import auroc_interval as auroc_interval
from ood_lab.metrics.resampling.intervals import percentile_interval as percentile_interval
from ood_lab.metrics.resampling.intervals import wilson_interval as wilson_interval
from ood_lab.metrics.resampling.significance import best_group as best_group
from ood_lab.metrics.resampling.significance import bootstrap_p_values as bootstrap_p_values
from ood_lab.metrics.resampling.significance import delong as delong
from ood_lab.metrics.resampling.significance import delong_p_values as delong_p_values
from ood_lab.metrics.resampling.significance import holm as holm
from ood_lab.metrics.results_rows import accuracy_of as accuracy_of
from ood_lab.metrics.results_rows import levels_of as levels_of
from ood_lab.metrics.results_rows import map_of as map_of
from ood_lab.metrics.results_rows import results_of as results_of
from ood_lab.metrics.score_evaluation import FEWEST_OF_A_VERDICT as FEWEST_OF_A_VERDICT
from ood_lab.metrics.score_evaluation import Evaluation as Evaluation
from ood_lab.metrics.score_evaluation import PositiveClass as PositiveClass
from ood_lab.metrics.score_evaluation import sets_of_means as sets_of_means
from ood_lab.metrics.shift_metrics import dad as dad
from ood_lab.metrics.shift_metrics import shift_correlation as shift_correlation
from ood_lab.metrics.shift_metrics import shift_sensitivity as shift_sensitivity
from ood_lab.metrics.verdict import BASELINE as BASELINE
from ood_lab.metrics.verdict import VERDICT as VERDICT
from ood_lab.metrics.verdict import verdict_of as verdict_of
