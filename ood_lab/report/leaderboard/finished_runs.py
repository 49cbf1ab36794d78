"""Finished runs read back from their folders, and which of them may share a table."""

from __future__ import annotations

import itertools
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any

import pandas as pd

from ood_lab.common.errors import UserError
from ood_lab.common.files import read_config, read_table
from ood_lab.common.grouping import grouped
from ood_lab.metrics import at_chance
from ood_lab.report.results_lookup import RunView
from ood_lab.report.verdict import Verdict
from ood_lab.schema.results import of_kind, read_results
from ood_lab.schema.run_record import RunRecord

#: ``data.shots`` of runs that train on everything.
ALL_SHOTS = -1
_TIMING = ("input_type", "fit_seconds", "score_seconds")  # no settings


@dataclass(frozen=True)
class FinishedRun:
    """One run folder ``<name>/<config hash>/seed=<s>``.

    Attributes:
        path: the folder.
        view: look-ups in its results.
        best: its ``dataset, metric, detector, best``; None where the run tested nothing.
        record: what made its numbers.
        config: its configuration.
        verdict: what it found, in short; without rows where ID accuracy is at chance.
        hierarchy: its hierarchy table; None where its data has neither levels nor a category.
    """

    path: Path
    view: RunView
    best: pd.DataFrame | None
    record: RunRecord
    config: dict[str, Any]
    verdict: Verdict
    hierarchy: pd.DataFrame | None = None

    @cached_property
    def sweep(self) -> str:
        """``<name>/<config hash>``: the same for all seeds of one configuration.

        With the folder's own seed where that is not the training's: weights that are evaluated
        under several seeds are not seeds of a training.
        """
        *place, folder = self.path.absolute().parts[-3:]
        own = [] if folder == f"seed={self.seed}" else [folder]
        return "/".join([*place, *own])

    @cached_property
    def seed(self) -> int:
        """The seed that its weights were trained with."""
        return int(self.view.table["seed"].iloc[0])

    @property
    def weights(self) -> str:
        """Identity of the weights; that of the configuration where the record has none."""
        return str(self.record.backbone.weights_sha256 or self.sweep)

    @cached_property
    def numbers(self) -> pd.DataFrame:
        """The values of its results table, without the intervals, which draws decide."""
        return self.view.table.drop(columns=["ci_low", "ci_high"], errors="ignore")

    @cached_property
    def shift_order(self) -> tuple[str, ...]:
        """The sets that the DAD runs over, in their order; empty without a DAD."""
        return tuple(self.view.shift_levels)

    @property
    def shift_words(self) -> str:
        """The declared order: ``a < b``, ``a, b < c``."""
        levels = grouped((level, name) for name, level in self.view.shift_levels.items())
        return " < ".join(", ".join(names) for names in levels.values())

    @property
    def id_sets(self) -> list[str]:
        """The sets that count as ID: the test set, and those with shifted covariates."""
        return ["test", *self.record.csid]

    @property
    def shots(self) -> int:
        """Training images of each class; -1 = all."""
        return int((self.config.get("data") or {}).get("shots", ALL_SHOTS))

    @property
    def background(self) -> str:
        """``origin``, or ``replaced`` where the training images have other backgrounds."""
        return str((self.config.get("data") or {}).get("background", "origin"))

    @property
    def training(self) -> str:
        """What it was trained on, as ``key=value; ...``."""
        shots = "all" if self.shots == ALL_SHOTS else self.shots
        return f"background={self.background}; shots={shots}"

    @property
    def at_chance(self) -> bool:
        """Whether its network is no better than chance on the ID test images."""
        accuracy = self.view.get("id_accuracy", None)
        return at_chance(accuracy.value, accuracy.n_id, self.chance)

    @property
    def chance(self) -> float:
        """Share of the largest class of ID test; 0 where it has no labels."""
        return self.record.id_chance or 0.0

    def asked(self, detector: str) -> dict[str, Any] | None:
        """Hyperparameters as the configuration has them; None where it does not name it."""
        node = (self.config.get("detector") or {}).get(detector.removesuffix("_tuned"))
        return node and {k: v for k, v in node.items() if not k.startswith("_")}

    def _tuned(self, detector: str) -> dict[str, str]:
        """Settings that were chosen on this very network: they do not distinguish seeds."""
        name = detector.removesuffix("_tuned")
        if name == detector:
            return {}
        record = self.record.tuning.get("detectors", {}).get(name, {})
        return dict.fromkeys(record.get("grid", {}), "tuned")

    def settings(self, detector: str) -> str:
        """Hyperparameters of a detector as ``key=value; ...``, without what was learnt."""
        used = self.record.detectors.get(detector, {})
        asked = self.asked(detector)
        if asked is None:
            pairs = {k: v for k, v in used.items() if k not in _TIMING}
        else:
            pairs = {k: used.get(k, v) for k, v in asked.items()} | self._tuned(detector)
        return "; ".join(f"{key}={value}" for key, value in sorted(pairs.items()))


def read_run(path: Path) -> FinishedRun:
    """Reads a finished run folder.

    Raises:
        UserError: a file is missing or damaged, or the run scored no detector.
    """
    results, record = read_results(path), RunRecord.read(path)
    if not record.detectors:
        raise UserError(f"no detector was scored in {path}: remove it from task.runs")
    best = path / "significance_best.parquet"
    hierarchy = of_kind(results, "hierarchy")
    return FinishedRun(
        path,
        RunView(results, record=record),
        read_table(best) if best.exists() else None,
        record,
        read_config(path),
        Verdict.of(results, record),
        hierarchy if len(hierarchy) else None,
    )


def why_not_comparable(a: FinishedRun, b: FinishedRun) -> list[str]:
    """Why the numbers of two runs do not compare; empty when they do.

    A mean over other sets, or a rank among other sets, does not compare, so both must have
    evaluated the same ones, with the same content. What they were trained and fitted on (train,
    val) is theirs to choose: few images of each class, or other backgrounds.
    """
    found = []
    positives = [run.record.fpr95_positive for run in (a, b)]
    if len(set(positives)) > 1:
        found.append(f"positive class of FPR95 ({' and '.join(positives)})")
    other_sets = [*_lacking("with", a, b), *_lacking("without", b, a)]
    if other_sets:
        found.append(f"evaluated sets ({', '.join(other_sets)})")
    if a.id_sets != b.id_sets:
        found.append(f"ID sets ({' and '.join(', '.join(run.id_sets) for run in (a, b))})")
    ours, theirs = a.record.data, b.record.data
    shared = [name for name in (*a.id_sets, *a.view.sets) if name in ours and name in theirs]
    if changed := [name for name in shared if ours[name] != theirs[name]]:
        found.append(f"content of the data ({', '.join(changed)})")
    ordered = a.shift_order and b.shift_order and not other_sets
    if ordered and a.shift_words != b.shift_words:
        orders = " and ".join(run.shift_words for run in (a, b))
        found.append(f"shift order of the DAD ({orders})")
    same = (a.sweep, a.seed) == (b.sweep, b.seed)
    if same and not a.numbers.equals(b.numbers):
        found.append("numbers, though configuration and seed are the same")
    return found


def _lacking(word: str, one: FinishedRun, other: FinishedRun) -> list[str]:
    """The sets of one run that the other has not evaluated, in words."""
    names = [name for name in one.view.sets if name not in other.view.sets]
    return [f"{word} {', '.join(names)}"] if names else []


def comparable_groups(runs: Iterable[FinishedRun]) -> list[list[FinishedRun]]:
    """Splits runs into groups within which all numbers compare, the largest group first.

    Seeds of one folder stay together: where there is a copy of some of them with other
    numbers, it is the copy that is odd.
    """
    folders = grouped((run.path.parent, [run]) for run in runs)
    seeds = [group for siblings in folders.values() for group in _merged(siblings)]
    return sorted(_merged(sorted(seeds, key=len, reverse=True)), key=len, reverse=True)


def _merged(parts: Iterable[list[FinishedRun]]) -> list[list[FinishedRun]]:
    """Joins each part to the first group that it compares with."""
    groups: list[list[FinishedRun]] = []
    for part in parts:
        for group in groups:
            if not any(why_not_comparable(a, b) for a in group for b in part):
                group += part
                break
        else:
            groups.append(list(part))
    return groups


def why_apart(group: Sequence[FinishedRun], main: Sequence[FinishedRun]) -> str:
    """Why a group has a table of its own, in words: one of its runs against one of ``main``."""
    odd, other, reasons = next(
        (odd, other, found)
        for odd, other in itertools.product(group, main)
        if (found := why_not_comparable(odd, other))
    )
    more = f" and {len(group) - 1} more" if len(group) > 1 else ""
    return f"{odd.path}{more} cannot share a table with {other.path}: {'; '.join(reasons)}"
