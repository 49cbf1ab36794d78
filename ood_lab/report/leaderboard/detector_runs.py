"""Runs that scored detectors, as tables of several runs read them, and which may share one."""

from __future__ import annotations

import itertools
from collections.abc import Iterable, Sequence
from functools import cached_property

import pandas as pd

from ood_lab.common.grouping import grouped
from ood_lab.metrics import at_chance
from ood_lab.report.results_lookup import RunView
from ood_lab.schema.finished_run import FinishedRun
from ood_lab.schema.results import Row
from ood_lab.schema.run_record import Facts

#: ``data.shots`` of runs that train on everything.
ALL_SHOTS = -1
_TIMING = ("input_type", "fit_seconds", "score_seconds")  # no settings


class DetectorRun(FinishedRun):
    """A finished run that scored detectors."""

    @cached_property
    def view(self) -> RunView:
        """Look-ups in its results; the verdict has no rows where ID accuracy is at chance."""
        return RunView.of(self)

    @property
    def model(self) -> str:
        """The name of its network."""
        return str(self.results["model"].iloc[0])

    @cached_property
    def sweep(self) -> str:
        """``<name>/<config hash>``: the same for all seeds of one configuration.

        With the folder's own seed where that is not the training's: weights that are evaluated
        under several seeds are not seeds of a training.
        """
        return self.label.removesuffix(f"/seed={self.seed}")

    @cached_property
    def seed(self) -> int:
        """The seed that its weights were trained with."""
        return int(self.results["seed"].iloc[0])

    @property
    def weights(self) -> str:
        """Identity of the weights; that of the configuration where the record has none."""
        return str(self.record.backbone.weights_sha256 or self.sweep)

    @cached_property
    def columns(self) -> Row:
        """What its rows in a table of several runs share: ``model, training, run, ...``."""
        keys = {"model": self.model, "training": self.training, "run": self.sweep}
        return {**keys, "weights": self.weights, "seed": self.seed}

    @cached_property
    def numbers(self) -> pd.DataFrame:
        """The values of its results table, without the intervals, which draws decide."""
        return self.view.table.drop(columns=["ci_low", "ci_high"], errors="ignore")

    @property
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

    def configured(self, detector: str) -> Facts | None:
        """Hyperparameters as the configuration has them; None where it does not name it."""
        node = (self.config.get("detector") or {}).get(detector.removesuffix("_tuned"))
        return node and {k: v for k, v in node.items() if not k.startswith("_")}

    def settings(self, detector: str) -> str:
        """Hyperparameters of a detector as ``key=value; ...``, without what was learnt."""
        used = self.record.detectors.get(detector, {})
        node = self.configured(detector)
        if node is None:
            pairs = {k: v for k, v in used.items() if k not in _TIMING}
        else:
            pairs = {k: used.get(k, v) for k, v in node.items()}
            if (name := detector.removesuffix("_tuned")) != detector:
                # What was chosen on this very network does not distinguish seeds.
                tuned = self.record.tuning.get("detectors", {}).get(name, {})
                pairs |= dict.fromkeys(tuned.get("grid", {}), "tuned")
        return "; ".join(f"{key}={value}" for key, value in sorted(pairs.items()))


def why_not_comparable(a: DetectorRun, b: DetectorRun) -> list[str]:
    """Why the numbers of two runs do not compare; empty when they do.

    A mean over other sets, or a rank among other sets, does not compare, so both must have
    evaluated the same ones, with the same content. What they were trained and fitted on (train,
    val) is theirs to choose: few images of each class, or other backgrounds.
    """
    reasons = []
    positives = [run.record.fpr95_positive for run in (a, b)]
    if len(set(positives)) > 1:
        reasons.append(f"positive class of FPR95 ({' and '.join(positives)})")
    other_sets = [
        f"{word} {', '.join(names)}"
        for word, one, other in (("with", a, b), ("without", b, a))
        if (names := [name for name in one.view.sets if name not in other.view.sets])
    ]
    if other_sets:
        reasons.append(f"evaluated sets ({', '.join(other_sets)})")
    if a.id_sets != b.id_sets:
        reasons.append(f"ID sets ({' and '.join(', '.join(run.id_sets) for run in (a, b))})")
    ours, theirs = a.record.data, b.record.data
    shared = [name for name in (*a.id_sets, *a.view.sets) if name in ours and name in theirs]
    if changed := [name for name in shared if ours[name] != theirs[name]]:
        reasons.append(f"content of the data ({', '.join(changed)})")
    if a.shift_order and b.shift_order and not other_sets and a.shift_words != b.shift_words:
        orders = " and ".join(run.shift_words for run in (a, b))
        reasons.append(f"shift order of the DAD ({orders})")
    if (a.sweep, a.seed) == (b.sweep, b.seed) and not a.numbers.equals(b.numbers):
        reasons.append("numbers, though configuration and seed are the same")
    return reasons


def comparable_groups(runs: Iterable[DetectorRun]) -> list[list[DetectorRun]]:
    """Splits runs into groups within which all numbers compare, the largest group first.

    Seeds of one folder stay together: where there is a copy of some of them with other
    numbers, it is the copy that is odd.
    """
    folders = grouped((run.folder.parent, [run]) for run in runs)
    seeds = [group for siblings in folders.values() for group in _merged(siblings)]
    return sorted(_merged(sorted(seeds, key=len, reverse=True)), key=len, reverse=True)


def _merged(parts: Iterable[list[DetectorRun]]) -> list[list[DetectorRun]]:
    """Joins each part to the first group that it compares with."""
    groups: list[list[DetectorRun]] = []
    for part in parts:
        for group in groups:
            if not any(why_not_comparable(a, b) for a in group for b in part):
                group += part
                break
        else:
            groups.append(list(part))
    return groups


def why_separate(group: Sequence[DetectorRun], main: Sequence[DetectorRun]) -> str:
    """Why a group has a table of its own, in words: one of its runs against one of ``main``."""
    odd, other, reasons = next(
        (odd, other, reasons)
        for odd, other in itertools.product(group, main)
        if (reasons := why_not_comparable(odd, other))
    )
    more = f" and {len(group) - 1} more" if len(group) > 1 else ""
    return f"{odd}{more} cannot share a table with {other}: {'; '.join(reasons)}"
