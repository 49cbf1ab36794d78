"""One record per metric: its name, its meaning, its direction, and its computation.

Code that shows, ranks, draws or explains a number reads its record. A metric of your own is a
record, too: name it in ``metrics.extra`` as ``my_module.MY_METRIC``.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable
from dataclasses import dataclass, replace
from importlib import import_module
from typing import Literal

from ood_lab.common.errors import UserError
from ood_lab.metrics.ood import AuprMethod, Floats, SortedScores
from ood_lab.metrics.resampling.weighted_counts import Draws, RankedScores

#: Which interval it has, see :func:`ood_lab.metrics.resampling.group_intervals.group_ends`.
Rule = Literal["auroc", "threshold_ood", "threshold_id", "percentile"]


@dataclass(frozen=True)
class Metric:
    """A metric of one score on ID and OOD images, or of a model.

    Attributes:
        name: in the column ``metric`` of the results.
        title: the head of its columns.
        meaning: its definition, in a sentence or two.
        better: which way it points; None = it describes and does not rank.
        point: the value of a pair of sorted samples; None where it follows from other metrics.
        drawn: the values of B resamples of all groups, ``[B, G]``; None = ``point`` of each.
        rule: which interval it has.
        headline: it is in the first table of a run.
        of_levels: it compares cells of a grid, whose sizes differ.
        by_level: its course along levels is computed, as that of a headline.
        tested: detectors are tested against each other by it.
        of_detector: a number of a detector: the best of a column is marked.
        of_sets: it compares ID with every OOD set.
    """

    name: str
    title: str
    meaning: str = ""
    better: Literal["higher", "lower"] | None = "higher"
    point: Callable[[SortedScores, AuprMethod], float] | None = None
    drawn: Callable[[RankedScores, Draws, AuprMethod], Floats] | None = None
    rule: Rule = "percentile"
    headline: bool = False
    of_levels: bool = True
    by_level: bool = False
    tested: bool = False
    of_detector: bool = True
    of_sets: bool = True

    @property
    def ranks(self) -> bool:
        """True when the best of a column of detectors can be told."""
        return self.better is not None and self.of_detector

    @property
    def has_course(self) -> bool:
        """True when its levels have a correlation, a sensitivity, a table and figures."""
        return self.headline or self.by_level

    @property
    def direction(self) -> str:
        """The direction in words."""
        return f"{self.better} is better" if self.better else "neither more nor less is better"

    def draws(self, ranked: RankedScores, draws: Draws, method: AuprMethod) -> Floats:
        """The values of B resamples, ``[B, G]``."""
        if self.drawn is not None:
            return self.drawn(ranked, draws, method)
        point = self.point
        if point is None:
            raise TypeError(f"{self.name} is not computed from scores")
        return ranked.each_resampled(draws, lambda pair: point(pair, method))


AUROC = Metric(
    "auroc",
    "AUROC",
    "Probability that a random OOD image scores above a random ID image; 50% is chance, higher is "
    "better.",
    point=lambda pair, _: pair.auroc(),
    drawn=lambda ranked, draws, _: ranked.auroc(draws),
    rule="auroc",
    headline=True,
    tested=True,
)
#: ``fpr95_ood_positive`` or ``fpr95_id_positive``, as ``metrics.fpr95_positive`` has it.
FPR95 = Metric("fpr95", "FPR95", better="lower", headline=True, tested=True)
FPR95_ID_POSITIVE = Metric(
    "fpr95_id_positive",
    "FPR95 (ID positive)",
    "fpr95_id_positive: share of OOD images accepted at the threshold that keeps 95% of the ID "
    "images (ID is the positive class); lower is better.",
    better="lower",
    point=lambda pair, _: pair.fpr_at_tpr(0.95, "id"),
    drawn=lambda ranked, draws, _: ranked.fpr95_id_positive(draws),
    rule="threshold_id",
)
FPR95_OOD_POSITIVE = Metric(
    "fpr95_ood_positive",
    "FPR95 (OOD positive)",
    "fpr95_ood_positive: share of ID images rejected at the threshold that catches 95% of the OOD "
    "images (OOD is the positive class); lower is better.",
    better="lower",
    point=lambda pair, _: pair.fpr_at_tpr(0.95, "ood"),
    drawn=lambda ranked, draws, _: ranked.fpr95_ood_positive(draws),
    rule="threshold_ood",
)
_AUPR = (
    "Area under precision and recall, with ID (aupr_in) or OOD (aupr_out) as the positive class; "
    "depends on the ratio of ID to OOD images."
)
AUPR_IN = Metric(
    "aupr_in",
    "AUPR in",
    _AUPR,
    point=lambda pair, method: pair.aupr("in", method),
    drawn=lambda ranked, draws, method: ranked.aupr_in(draws, method),
    of_levels=False,
    tested=True,
)
AUPR_OUT = Metric(
    "aupr_out",
    "AUPR out",
    _AUPR,
    point=lambda pair, method: pair.aupr("out", method),
    drawn=lambda ranked, draws, method: ranked.aupr_out(draws, method),
    by_level=True,
    tested=True,
)
DAD = Metric(
    "dad",
    "DAD",
    "Number of pairs of OOD sets in which the set with the larger declared shift has the lower "
    "FPR95: the sum over j < k of 1[s_j > s_k], from 0 to n(n-1)/2 (larger shifts are always "
    "easier). It describes how a detector follows the shift, not how good it is.",
    better=None,
    of_sets=False,
)
DAD_OF_MEANS = Metric(
    "dad_of_means",
    "DAD of means",
    "DAD of groups of OOD sets: s_j is the mean FPR95 of the sets of group j, as ShiftedBronzes "
    "(arXiv 2412.12683) averages its general sets.",
    better=None,
    of_sets=False,
)
DAD_POOLED = Metric(
    "dad_pooled",
    "DAD pooled",
    "DAD of groups of OOD sets: s_j is the FPR95 of all images of group j together, as of one "
    "set. It is not the paper's.",
    better=None,
    of_sets=False,
)
CORRELATION = Metric(
    "correlation",
    "Correlation",
    "Pearson correlation between shift level and AUROC, FPR95 or AUPR, levels without enough "
    "images left out. It has no interval: sampling weakens it in every draw.",
    better=None,
    of_sets=False,
)
SENSITIVITY = Metric(
    "sensitivity",
    "Sensitivity",
    "By how many percentage points AUROC, FPR95 or AUPR moves a shift level: the absolute "
    "least-squares slope; the sign is that of the correlation.",
    better=None,
    of_sets=False,
)
AURC = Metric(
    "aurc",
    "AURC",
    "Area under the risk-coverage curve: the mean, over all shares of images that are kept, of "
    "the share of failures among them. The highest scores are rejected first; lower is better. A "
    "failure is a wrong prediction on ID, or any OOD image. E-AURC is the excess over the best "
    "order.",
    better="lower",
    of_sets=False,
)
E_AURC = Metric("e_aurc", "E-AURC", better="lower", of_sets=False)
AUGRC = Metric(
    "augrc",
    "AUGRC",
    "Area under the generalised risk-coverage curve (arXiv 2407.01032): the mean, over all shares "
    "of images that are kept, of the share of all images that are failures and kept; from 0 to "
    "50%, lower is better.",
    better="lower",
    of_sets=False,
)
_SELECTIVE = (
    "Selective accuracy (arXiv 1705.08500): accuracy on the 50, 80 or 90% of the images with the "
    "lowest scores; higher is better."
)
ACCURACY_AT_50 = Metric("accuracy_at_coverage_50", "Acc@50%", _SELECTIVE, of_sets=False)
ACCURACY_AT_80 = Metric("accuracy_at_coverage_80", "Acc@80%", _SELECTIVE, of_sets=False)
ACCURACY_AT_90 = Metric("accuracy_at_coverage_90", "Acc@90%", _SELECTIVE, of_sets=False)
ID_ACCURACY = Metric(
    "id_accuracy",
    "ID accuracy",
    "Share of the ID test images that are given their class.",
    of_detector=False,
    of_sets=False,
)
ID_MAP = Metric(
    "id_map",
    "ID mAP",
    "Mean over the classes of the average precision on ID test, of a multi-label head: "
    "Σ_n (R_n − R_{n−1}) P_n over the distinct scores. The mean skips classes without an image.",
    of_detector=False,
    of_sets=False,
)
ACCURACY = Metric("accuracy", "accuracy", "Share of all images that are right.", of_sets=False)
RECALL = Metric(
    "recall", "recall", "Share of the images of a class that are given that class.", of_sets=False
)

#: Of every OOD set, in the order of the results; the headline FPR95 is one of the two.
OF_SETS = (AUROC, FPR95_ID_POSITIVE, FPR95_OOD_POSITIVE, AUPR_IN, AUPR_OUT)
_KNOWN = {
    metric.name: metric
    for metric in (
        *(AUROC, FPR95, FPR95_OOD_POSITIVE, FPR95_ID_POSITIVE, AUPR_IN, AUPR_OUT, DAD),
        *(DAD_OF_MEANS, DAD_POOLED),
        *(CORRELATION, SENSITIVITY, AURC, E_AURC, AUGRC),
        *(ACCURACY_AT_50, ACCURACY_AT_80, ACCURACY_AT_90, ID_ACCURACY, ID_MAP),
        *(ACCURACY, RECALL),
    )
}


def metric_of(name: str) -> Metric:
    """The record of a metric, of a mean of it, or of its trend over levels.

    A metric that has not been loaded has its name as its title, and no direction.
    """
    if name in _KNOWN:
        return _KNOWN[name]
    for trend in (CORRELATION, SENSITIVITY):
        if name.startswith(f"{trend.name}_"):
            return trend
    if name.startswith(f"{ID_ACCURACY.name}_"):
        return ID_ACCURACY
    if found := re.fullmatch(r"(?:all_cells|all_images|larger_semantic(?:_images)?)_(.+)", name):
        return replace(metric_of(found[1]), of_sets=False)
    if found := re.fullmatch(r"mean_(?:.*?_)??(" + "|".join(map(re.escape, _KNOWN)) + ")", name):
        return _KNOWN[found[1]]
    return Metric(name, name, better=None, headline=True)


def known_metrics() -> tuple[Metric, ...]:
    """All records, in the order in which they are shown."""
    return tuple(_KNOWN.values())


def load_metrics(names: Iterable[str]) -> tuple[Metric, ...]:
    """Metrics from outside the package, which are known from here on.

    Args:
        names: ``module.NAME`` of each, as Python would import it.

    Raises:
        UserError: there is no such record, it has no ``point``, or its name is taken.
    """
    found = []
    for name in names:
        module, _, attribute = str(name).rpartition(".")
        try:
            metric = getattr(import_module(module), attribute)
        except (ImportError, AttributeError, ValueError) as error:
            raise UserError(
                f"metrics.extra: there is no {name} ({error}): give module.NAME of a record that "
                "Python can import"
            ) from error
        if not isinstance(metric, Metric) or metric.point is None:
            raise UserError(f"metrics.extra: {name} is not a Metric with a `point`")
        if _KNOWN.setdefault(metric.name, metric) is not metric:
            raise UserError(f"metrics.extra: {name} has the name '{metric.name}' of another metric")
        found.append(metric)
    return tuple(found)
