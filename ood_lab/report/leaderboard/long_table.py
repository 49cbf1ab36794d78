"""One long table over models, detectors and OOD sets from several runs that compare."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import cached_property, partial
from typing import Any

import pandas as pd

from ood_lab.common.grouping import grouped
from ood_lab.report.leaderboard.detector_runs import DetectorRun
from ood_lab.report.leaderboard.run_names import trainings
from ood_lab.report.leaderboard.significance import PAIR, mark_best
from ood_lab.report.rendering.metric_definitions import finding_sentences
from ood_lab.report.rendering.prose import sentences
from ood_lab.schema.results import keys_of

MEAN = "mean"
#: Template of the sentences.
WORDS = "leaderboard/words.j2"
COLUMNS = [
    *("model", "training", "detector", "settings", "run", "seeds", "n_seeds", "dataset", "metric"),
    *("n_id", "n_ood", "value", "seed_std", "sampling_half_width", "best", "fpr95_positive"),
]
#: Columns that together name a number of a configuration.
ROW = ["model", "training", "detector", "settings", "run", "dataset", "metric"]


@dataclass(frozen=True, eq=False)
class Leaderboard:
    """Comparable runs as one table.

    Attributes:
        rows: columns :data:`COLUMNS`. ``value`` is the mean over ``n_seeds`` seeds and
            ``seed_std`` their standard deviation (n - 1; NaN for one seed);
            ``sampling_half_width`` is half the 95% interval over images, its mean over seeds.
            ``dataset`` = ``mean``: over all ``sets``; ``mean near``: over those of the group
            ``near``.
        sets: OOD sets, ordered by increasing shift.
        shift_order: the sets of the DAD.
        fpr95_positive: the positive class of ``fpr95``.
        runs: what it was made of.
        warnings: what the check of the data found about the sets that are marked, and runs whose
            rows carry no star.
    """

    rows: pd.DataFrame
    sets: list[str]
    shift_order: tuple[str, ...]
    fpr95_positive: str
    runs: Sequence[DetectorRun]
    warnings: Sequence[str]

    @property
    def summary(self) -> str:
        """``dataset`` of the number that stands for all sets: ``mean``, or the only set."""
        return MEAN if len(self.sets) > 1 else self.sets[0]

    def mark(self, dataset: str) -> str:
        """The mark of a set that the check of the data has found something about, in any run."""
        return max((run.view.mark(dataset) for run in self.runs), default="")

    @cached_property
    def dads(self) -> dict[str, str]:
        """The kinds of DAD, see :attr:`RunView.dads`."""
        return {kind: words for run in self.runs for kind, words in run.view.dads.items()}

    @property
    def shift_words(self) -> str:
        """The order that the DAD goes by."""
        return next((run.shift_words for run in self.runs if run.shift_order), "")

    @property
    def groups(self) -> list[str]:
        """Groups of OOD sets that have a mean of their own."""
        return self.runs[0].view.groups


def make_leaderboard(runs: Sequence[DetectorRun]) -> Leaderboard:
    """Aggregates the seeds of each configuration and marks the best of every column.

    Equal results of one network under equal settings are shown once: a run and its evaluation,
    or a copy of a run.

    Args:
        runs: one group of :func:`comparable_groups`, which have evaluated the same sets.
    """
    ordered = next((run for run in runs if run.shift_order), runs[0])
    sets = ordered.view.sets
    single = once(pd.DataFrame(row for run in runs for row in _rows_of(run)), ["run", "detector"])
    kept = set(single.loc[single["detector"].notna(), "run"])
    single = single[single["run"].isin(kept)]
    runs = [run for run in runs if run.sweep in kept]
    rows = aggregate(single)
    # A test of one seed knows nothing of other seeds.
    of_one_seed = rows.loc[rows["n_seeds"] == 1, "run"]
    tests = single[single["tested"].notna() & single["run"].isin(of_one_seed)]
    pairs = dict(zip(keys_of(tests, PAIR), tests["tested"].astype(bool), strict=True))
    rows["training"] = rows["run"].map(trainings(runs))
    rows["fpr95_positive"] = positive = runs[0].record.fpr95_positive
    at_chance = [run for run in runs if run.at_chance]
    rows["best"] = mark_best(rows, pairs, {run.sweep for run in at_chance})
    findings = [f for run in runs for f in run.record.findings if {"test", *sets} & {*f.sets}]
    warnings = [*dict.fromkeys(finding_sentences(findings))]
    for run in at_chance:
        warnings += sentences(WORDS, "at_chance", run)
    return Leaderboard(rows[COLUMNS], sets, ordered.shift_order, positive, runs, warnings)


def _rows_of(run: DetectorRun) -> Iterator[dict[str, Any]]:
    """Every number of one run, one seed: other runs have no part in them."""
    view = run.view

    def row(
        metric: str, detector: str | None, ood: str | None, mean: str | None = None
    ) -> dict[str, Any]:
        """A number, which the results have unchanged, or as the metric ``mean`` without a set."""
        name, dataset = (mean, None) if mean else (metric, ood)
        estimate = view.get(name, detector, dataset)
        return {
            **run.columns,
            **estimate._asdict(),
            "metric": metric,
            "detector": detector,
            "settings": run.settings(detector) if detector else None,
            "dataset": ood,
            "tested": view.tests.get((name, detector, dataset)),
        }

    yield row("id_accuracy", None, None)
    for detector in view.detectors:
        for metric in view.set_metrics:
            yield from (row(metric, detector, ood) for ood in view.sets)
            if len(view.sets) > 1:
                yield row(metric, detector, MEAN, f"mean_{metric}")
            for group in view.groups:
                yield row(metric, detector, f"{MEAN} {group}", f"mean_{group}_{metric}")
        for metric in view.dads:
            yield row(metric, detector, None)


def once(single: pd.DataFrame, configuration: Sequence[str]) -> pd.DataFrame:
    """Skips configurations whose numbers are all those of another one, seed for seed.

    Of equals the first stays. Rows that name no configuration belong to all of a run and stay.

    Args:
        single: one row a number of a run: ``run``, ``weights``, ``seed``, ``value``, ...
        configuration: columns that together name one.
    """
    # The run of a number is not a part of it, and draws decide the intervals and tests.
    of_draws = ["low", "high", "tested"]
    facts = single[single.columns.difference(["run", *of_draws])]
    numbers = pd.Series(map(repr, facts.itertuples(index=False, name=None)), index=single.index)
    twice = pd.DataFrame({"run": single["run"], "number": numbers}).duplicated()
    single, numbers = single[~twice], numbers[~twice]
    keys = keys_of(single, configuration)
    of_keys = grouped(zip(keys, numbers, strict=True)).items()
    by_key = {key: set(of_key) for key, of_key in of_keys if None not in key}
    kept: dict[tuple[Any, ...], set[str]] = {}
    for key in sorted(by_key, key=lambda key: len(by_key[key]), reverse=True):
        if not any(by_key[key] <= other for other in kept.values()):
            kept[key] = by_key[key]
    return single[[key in kept or key not in by_key for key in keys]]


def aggregate(single: pd.DataFrame, keys: Sequence[str] = ROW) -> pd.DataFrame:
    """Mean and standard deviation over the seeds of a configuration."""
    mean = partial(pd.Series.mean, skipna=False)
    single = single.assign(half=(single["high"] - single["low"]) / 2)
    return (
        single.groupby([*keys], dropna=False, sort=False)
        .agg(
            seeds=("seed", lambda s: " ".join(map(str, sorted(s)))),
            n_seeds=("seed", "size"),
            n_id=("n_id", "max"),
            n_ood=("n_ood", "max"),
            value=("value", mean),
            seed_std=("value", lambda v: v.std(ddof=1, skipna=False)),
            sampling_half_width=("half", mean),
            low=("low", mean),
        )
        .reset_index()
    )
