"""Look-ups in the long results table of one run."""

from __future__ import annotations

import math
from functools import cached_property
from itertools import combinations, starmap
from typing import Any

import pandas as pd

from ood_lab.common.files import read_table
from ood_lab.common.grouping import grouped
from ood_lab.metrics import FEWEST, FEWEST_FOR_THRESHOLD, metric_of, ranked, sets_of_means
from ood_lab.metrics.resampling.intervals import Estimate
from ood_lab.report.rendering.metric_definitions import DAGGER, fpr95_sentence
from ood_lab.report.rendering.prose import sentences
from ood_lab.report.verdict import Verdict
from ood_lab.schema.finished_run import FinishedRun
from ood_lab.schema.image_columns import AXES, LEVELS, Axis
from ood_lab.schema.results import keys_of, of_kind, whole
from ood_lab.schema.run_record import RunRecord

#: Which detectors may be the best, by the tests.
BEST = "significance_best.parquet"
#: Up to so many detectors one table needs no sections.
UNGROUPED = 20
#: The sections of a longer one, in order.
SECTIONS = ("logits", "features", "head", "network")


class RunView:
    """A run of detectors: its results by metric, detector, OOD set and level, and its record.

    Args:
        results: a results table of one model and seed, of which rows of kind ``detection`` and
            those of the verdict are read. Values are fractions.
        significance: optional rows ``detector, dataset, best`` (and ``metric``, else AUROC): True
            for every detector that is not significantly worse than the best; they are marked in
            that column. Those of ``mean_<metric>`` without a dataset in that of the mean.
        record: what made the results: ``title``, ``fpr95_positive``, ``detectors`` with their
            ``input_type``, ``refused`` (detector → why it could not work here), ``findings``
            (``text`` and ``sets``) of the check of the data, ``warnings``.

    Attributes:
        verdict: on the detectors.
        sets: OOD sets by increasing shift, then those without a place in it; sets that only serve
            a grid of levels are in ``level_sets``.
        detectors: best mean AUROC first.
        tests: the significance by metric, detector and set.

    Raises:
        UserError: unknown positive class of FPR95.
    """

    def __init__(
        self,
        results: pd.DataFrame,
        significance: pd.DataFrame | None = None,
        record: RunRecord | None = None,
    ) -> None:
        self.record = record = record or RunRecord()
        self.positive = record.fpr95_positive or "ood"
        self.fpr95 = fpr95_sentence(self.positive)
        self.verdict = Verdict(results, record)
        results = of_kind(results, "detection")
        self.table = results
        self._index = self._build_index(results)
        self.level_sets, self.sets = self._find_sets()
        self.tests: dict[tuple[Any, ...], bool] = {}
        if significance is not None:
            tests = significance.assign(metric=significance.get("metric", "auroc"))
            keys = keys_of(tests, ["metric", "detector", "dataset"])
            self.tests |= zip(keys, tests["best"], strict=True)
        self._doubted = {name for finding in record.findings for name in finding.sets}
        names = results["detector"].dropna().unique()
        self.detectors = ranked({d: self.mean("auroc", d).value for d in names})

    @classmethod
    def of(cls, run: FinishedRun) -> RunView:
        """Of the files of a finished run."""
        tests = read_table(run.folder / BEST) if run.has(BEST) else None
        return cls(run.results, tests, run.record)

    @staticmethod
    def _build_index(results: pd.DataFrame) -> dict[tuple[Any, ...], Estimate]:
        keys = keys_of(results, ["metric", "detector", "dataset", *LEVELS])
        counts = results.reindex(columns=["n_id", "n_ood"]).fillna(0).astype(int)
        cells = pd.concat([results[["value", "ci_low", "ci_high"]], counts], axis=1)
        estimates = starmap(Estimate, cells.itertuples(index=False, name=None))
        return dict(zip(keys, estimates, strict=True))

    def _find_sets(self) -> tuple[list[str], list[str]]:
        rows = self.table[self.table["dataset"].notna()]
        levelled = rows[list(LEVELS)].notna().any(axis=1)
        level_sets = list(rows.loc[levelled, "dataset"].drop_duplicates())
        of_sets = rows[~levelled & (rows["metric"] == "auroc")].drop_duplicates("dataset")
        of_sets = of_sets.sort_values("shift_level", kind="stable", na_position="last")
        placed = set(of_sets.loc[of_sets["shift_level"].notna(), "dataset"])
        return level_sets, sets_of_means(list(of_sets["dataset"]), placed, level_sets)

    @property
    def sections(self) -> list[tuple[str, list[str]]]:
        """The detectors by what they look at, best first; one section without a title if few."""
        if len(self.detectors) <= UNGROUPED:
            return [("", self.detectors)]
        places = {title: place for place, title in enumerate(SECTIONS)}
        by_title = grouped((self.reads(name), name) for name in self.detectors)
        return sorted(by_title.items(), key=lambda part: places.get(part[0], len(places)))

    def reads(self, detector: str) -> str:
        """What a detector looks at: logits, features, ...; empty where that is not known."""
        facts = self.record.detectors
        of = facts.get(detector) or facts.get(detector.removesuffix("_tuned"), {})
        return str(of.get("input_type", ""))

    def mark(self, dataset: str) -> str:
        """The mark behind the name of a set with a finding of the data check."""
        return DAGGER if dataset in self._doubted else ""

    def marked(self, dataset: str, words: str = "") -> str:
        """The name of a set, or other words for it, with its mark."""
        return f"{words or dataset}{self.mark(dataset)}"

    @cached_property
    def n_id(self) -> int:
        """Number of ID test images."""
        return max((estimate.n_id for estimate in self._index.values()), default=0)

    @cached_property
    def shift_levels(self) -> dict[str, float]:
        """The declared shift of each set of the DAD, in order; those of a group share it."""
        placed = self.table.dropna(subset=["shift_level", "dataset"]).drop_duplicates("dataset")
        placed = placed.sort_values("shift_level", kind="stable")
        return dict(zip(placed["dataset"], placed["shift_level"], strict=True))

    @property
    def most_dad(self) -> int:
        """Largest possible DAD: pairs of sets of which one has the larger declared shift."""
        return sum(one != other for one, other in combinations(self.shift_levels.values(), 2))

    @property
    def dads(self) -> dict[str, str]:
        """The kinds of DAD that have a value, and of how many pairs each is."""
        n = math.comb(len(self.groups), 2)
        kinds = {"dad": f"of {self.most_dad}", "dad_of_means": f"of means, of {n}"}
        metrics = set(self.table.dropna(subset="value")["metric"]) if self.most_dad else ()
        return {name: words for name, words in kinds.items() if name in metrics}

    @property
    def order(self) -> str:
        """How the OOD sets are ordered: ``by increasing shift``, ``by group``, or nothing."""
        if not self.most_dad:
            return ""
        distinct = len(set(self.shift_levels.values())) == len(self.shift_levels)
        return "by increasing shift" if distinct else "by group"

    @cached_property
    def groups(self) -> list[str]:
        """Groups of OOD sets that have a mean of their own, in order."""
        means = self.table["metric"].drop_duplicates().str.extract(r"^mean_(.+)_auroc$")[0]
        return list(means.dropna())

    @property
    def shown_means(self) -> list[str]:
        """The groups but those that are one set of the same name, whose mean is that set."""
        return [
            group
            for group in self.groups
            if self.get(f"mean_{group}_auroc", self.detectors[0]).n_ood
            != self.get("auroc", self.detectors[0], group).n_ood
        ]

    @property
    def csid_accuracies(self) -> list[tuple[str, Estimate]]:
        """ID accuracy on each set with shifted covariates, then on the full spectrum."""
        names = self.table["metric"].drop_duplicates().str.extract(r"^id_accuracy_(.+)$")[0]
        return [
            ("full spectrum" if n == "full_spectrum" else n, self.get(f"id_accuracy_{n}", None))
            for n in names.dropna()
        ]

    @property
    def has_marks(self) -> bool:
        """False where nothing is to be marked: one detector, or tests that name no best one.

        The latter identifies a network that is no better than chance.
        """
        tested = self.tests.values()
        return len(self.detectors) > 1 and (not tested or any(tested))

    def get(
        self,
        metric: str,
        detector: str | None,
        ood: str | None = None,
        semantic: float | None = None,
        covariate: float | None = None,
    ) -> Estimate:
        """The estimate of one cell; all NaN where the table has no such row.

        Of one level of an axis it is that of all levels of the other together.
        """
        return self._index.get((metric, detector, ood, semantic, covariate), Estimate())

    @cached_property
    def set_metrics(self) -> list[str]:
        """The metrics that compare ID with an OOD set, in the order of the results."""
        rows = self.table[self.table["dataset"].isin(self.sets) & self.table["detector"].notna()]
        return [name for name in whole(rows)["metric"].drop_duplicates() if metric_of(name).of_sets]

    @property
    def headlines(self) -> list[str]:
        """The metrics of the first table: AUROC, the headline FPR95, and what was added."""
        return [name for name in self.set_metrics if metric_of(name).headline]

    @cached_property
    def level_metrics(self) -> list[str]:
        """The metrics whose course along levels of shift is shown, in the order of the results."""
        levelled = self.table[list(LEVELS)].notna().any(axis=1)
        names = self.table.loc[levelled, "metric"].unique()
        return [name for name in names if metric_of(name).has_course]

    def mean(self, metric: str, detector: str) -> Estimate:
        """Mean over the ``sets`` that count; the number of the only one where there is one."""
        if len(self.sets) == 1:
            return self.get(metric, detector, self.sets[0])
        return self.get(f"mean_{metric}", detector)

    @property
    def interval_notes(self) -> list[str]:
        """Why intervals are missing, or have no upper end, a sentence each."""
        sizes = {
            ood: min(self.get("auroc", self.detectors[0], ood).n_ood, self.n_id)
            for ood in self.sets
        }
        unbounded = [
            ood
            for ood, n in sizes.items()
            if n < FEWEST_FOR_THRESHOLD
            and all(not self.get("fpr95", d, ood).high < 1 for d in self.detectors)
        ]
        words = "detection/words.j2"
        return sentences(words, "intervals", sizes, unbounded, FEWEST, FEWEST_FOR_THRESHOLD)

    def levels(self, ood: str, axis: Axis) -> list[float]:
        """Levels of ``axis`` with a row of their own, over all levels of the other; ascending.

        None where not one of them has enough images for a value.
        """
        rows = self.table[self.table["dataset"] == ood]
        other = AXES[1 - AXES.index(axis)]
        pooled = rows[rows[f"{other}_level"].isna() & rows[f"{axis}_level"].notna()]
        return sorted(pooled[f"{axis}_level"].unique()) if pooled["value"].notna().any() else []

    def cell_levels(self, ood: str) -> tuple[list[float], list[float]]:
        """Semantic and covariate levels of the grid's cells, ascending; none without any value."""
        rows = self.table[self.table["dataset"] == ood].dropna(subset=[*LEVELS])
        rows = rows if rows["value"].notna().any() else rows.iloc[:0]
        semantic, covariate = (sorted(rows[level].unique()) for level in LEVELS)
        return semantic, covariate

    @property
    def left_out(self) -> list[str]:
        """What is not shown because there is no value in it, a sentence each."""
        return [
            f"No level of {ood} has enough images for a value (metrics.min_count): its tables and "
            "figures are skipped."
            for ood in self.level_sets
            if not any(self.levels(ood, axis) for axis in AXES)
        ]

    def best(self, metric: str, ood: str | None) -> set[str]:
        """Detectors to mark in the column of a metric.

        They are those that a test does not call worse than the best. Without tests of the column
        they are those that share the best value as shown (one decimal of a percent). None is
        marked where :attr:`has_marks` is False, where there is one value, and where no detector is
        significantly above chance. ``dataset`` is None for ``mean_<metric>`` and
        ``mean_<group>_<metric>``.
        """
        record = metric_of(metric)
        values = {d: round(self.get(metric, d, ood).value, 3) for d in self.detectors}
        shown = {d: value for d, value in values.items() if not math.isnan(value)}
        if not self.has_marks or len(shown) < 2 or not record.ranks:
            return set()
        tests = {d: self.tests.get((metric, d, ood)) for d in values}
        if any(test is not None for test in tests.values()):
            return {d for d in shown if tests[d]}
        aurocs = [self.tests.get(("auroc", d, ood)) for d in values]
        if False in aurocs and not any(aurocs):
            return set()
        best = (max if record.better == "higher" else min)(shown.values())
        return {d for d, value in shown.items() if value == best}
