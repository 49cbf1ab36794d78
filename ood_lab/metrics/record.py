"""One record per metric: its name, its meaning, its direction, and its computation.

Code that shows, ranks, draws or explains a number reads its record. A metric of your own is a
record, too: name it in ``metrics.extra`` as ``my_module.MY_METRIC``.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, replace
from importlib import import_module
from typing import Any, Literal

from ood_lab.common.errors import UserError
from ood_lab.common.files import packaged_table
from ood_lab.metrics.ood import AuprMethod, SortedScores
from ood_lab.metrics.resampling.weighted_counts import Draws, RankedScores
from ood_lab.schema.arrays import Floats

#: Which interval it has, see :func:`ood_lab.metrics.resampling.group_intervals.group_ends`.
Rule = Literal["auroc", "threshold_ood", "threshold_id", "percentile"]
Point = Callable[[SortedScores, AuprMethod], float]
Drawn = Callable[[RankedScores, Draws, AuprMethod], Floats]


@dataclass(frozen=True)
class Metric:
    """A metric of one score on ID and OOD images, or of a model.

    Attributes:
        name: in the column ``metric`` of the results.
        title: the head of its columns.
        meaning: its definition, in a sentence or two.
        better: which way it points; None = it describes and does not rank.
        point: the value of a pair of sorted samples; None where it follows from other metrics.
        resampled: the values of B resamples of all groups, ``[B, G]``; None = ``point`` of each.
        rule: which interval it has.
        headline: it is in the first table of a run.
        by_level: its course along levels is computed, as that of a headline.
        tested: detectors are tested against each other by it.
        of_detector: a number of a detector: the best of a column is marked.
        of_sets: it compares ID with every OOD set.
    """

    name: str
    title: str
    meaning: str = ""
    better: Literal["higher", "lower"] | None = "higher"
    point: Point | None = None
    resampled: Drawn | None = None
    rule: Rule = "percentile"
    headline: bool = False
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

    def value(self, pair: SortedScores, method: AuprMethod) -> float:
        """The value of a pair of sorted samples.

        Raises:
            TypeError: it follows from other metrics.
        """
        if self.point is None:
            raise TypeError(f"{self.name} is not computed from scores")
        return self.point(pair, method)

    def draws(self, ranked: RankedScores, draws: Draws, method: AuprMethod) -> Floats:
        """The values of B resamples, ``[B, G]``."""
        if self.resampled is not None:
            return self.resampled(ranked, draws, method)
        return ranked.each_resampled(draws, lambda pair: self.value(pair, method))


#: The point estimate of a metric, and its resamples of all groups, see :class:`Metric`.
_COMPUTED: Mapping[str, tuple[Point, Drawn]] = {
    "auroc": (lambda pair, _: pair.auroc(), lambda ranked, draws, _: ranked.auroc(draws)),
    "fpr95_id_positive": (
        lambda pair, _: pair.fpr_at_tpr(0.95, "id"),
        lambda ranked, draws, _: ranked.fpr95_id_positive(draws),
    ),
    "fpr95_ood_positive": (
        lambda pair, _: pair.fpr_at_tpr(0.95, "ood"),
        lambda ranked, draws, _: ranked.fpr95_ood_positive(draws),
    ),
    "aupr_in": (lambda pair, method: pair.aupr("in", method), RankedScores.aupr_in),
    "aupr_out": (lambda pair, method: pair.aupr("out", method), RankedScores.aupr_out),
}


def _record(name: str, entry: Mapping[str, Any]) -> Metric:
    point, draws = _COMPUTED.get(name, (None, None))
    return Metric(name, point=point, resampled=draws, **entry)


_KNOWN = {
    name: _record(name, entry)
    for name, entry in packaged_table(__package__, "metrics.yaml").items()
}
AUROC, FPR95 = _KNOWN["auroc"], _KNOWN["fpr95"]
FPR95_ID_POSITIVE, FPR95_OOD_POSITIVE = _KNOWN["fpr95_id_positive"], _KNOWN["fpr95_ood_positive"]
ID_ACCURACY, ID_MAP = _KNOWN["id_accuracy"], _KNOWN["id_map"]
#: Of every OOD set, in the order of the results; the headline FPR95 is one of the two.
OF_SETS = (
    *(AUROC, FPR95_ID_POSITIVE, FPR95_OOD_POSITIVE),
    *(_KNOWN[name] for name in ("aupr_in", "aupr_out")),
)


def metric_of(name: str) -> Metric:
    """The record of a metric, of a mean of it, or of its trend over levels.

    A metric that has not been loaded has its name as its title, and no direction.
    """
    if name in _KNOWN:
        return _KNOWN[name]
    for beginning in ("correlation", "sensitivity", "id_accuracy"):
        if name.startswith(f"{beginning}_"):
            return _KNOWN[beginning]
    if match := re.fullmatch(r"(?:all_cells|all_images|larger_semantic(?:_images)?)_(.+)", name):
        return replace(metric_of(match[1]), of_sets=False)
    if match := re.fullmatch(r"mean_(?:.*?_)??(" + "|".join(map(re.escape, _KNOWN)) + ")", name):
        return _KNOWN[match[1]]
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
    metrics = []
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
        metrics.append(metric)
    return tuple(metrics)
