"""Finished runs read back from their folders, and which of them may share a table."""

from __future__ import annotations

import json
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pandas as pd
import yaml

from ood_lab.errors import UserError
from ood_lab.metrics import at_chance
from ood_lab.report.view import RunView

_NEEDED = ("protocol", "data", "detectors")
#: ``data.shots`` of runs that train on everything.
ALL_SHOTS = -1
_TIMING = ("fit_seconds", "score_seconds")


@dataclass(frozen=True)
class FinishedRun:
    """One run folder ``<name>/<config hash>/seed=<s>``.

    Attributes:
        path: the folder.
        view: look-ups in its results.
        best: its ``ood, metric, detector, best``; None where the run tested nothing.
        manifest: what made its numbers.
        config: its configuration.
        dating: its dating table; None where its data has neither levels nor a category.
    """

    path: Path
    view: RunView
    best: pd.DataFrame | None
    manifest: dict[str, Any]
    config: dict[str, Any]
    dating: pd.DataFrame | None = None

    @property
    def sweep(self) -> str:
        """``<name>/<config hash>``: the same for all seeds of one configuration."""
        return "/".join(self.path.absolute().parts[-3:-1])

    @property
    def seed(self) -> int:
        """The run's seed."""
        return int(self.view.table["seed"].iloc[0])

    @property
    def shift_order(self) -> tuple[str, ...]:
        """The sets that the DAD runs over, in their order; empty without a DAD."""
        ordered = self.view.table.dropna(subset=["shift_level", "ood"])
        return tuple(ordered.sort_values("shift_level")["ood"].drop_duplicates())

    @property
    def shots(self) -> int:
        """Training images of each class; -1 = all."""
        return int((self.config.get("data") or {}).get("shots", ALL_SHOTS))

    @property
    def background(self) -> str:
        """``origin``, or ``replaced`` where the training images stand before other backgrounds."""
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
        classes = len(self.manifest.get("classes") or ())
        return at_chance(accuracy.value, accuracy.n_id, classes)

    def asked(self, detector: str) -> dict[str, Any] | None:
        """Hyperparameters as the configuration has them; None where it does not name it."""
        node = (self.config.get("detector") or {}).get(detector.removesuffix("_tuned"))
        return node and {k: v for k, v in node.items() if not k.startswith("_")}

    def settings(self, detector: str) -> str:
        """Hyperparameters of a detector as ``key=value; ...``, without what was learnt."""
        used = self.manifest["detectors"].get(detector, {})
        asked = self.asked(detector)
        if asked is None:
            pairs = {k: v for k, v in used.items() if k not in _TIMING}
        else:
            pairs = {k: used.get(k, v) for k, v in asked.items()}
        return "; ".join(f"{key}={value}" for key, value in sorted(pairs.items()))


def read_run(path: Path) -> FinishedRun:
    """Reads a finished run folder.

    Raises:
        UserError: its manifest lacks what a comparison needs.
    """
    manifest = json.loads((path / "manifest.json").read_text())
    if missing := [key for key in _NEEDED if key not in manifest]:
        raise UserError(
            f"{path}/manifest.json does not say its {', '.join(missing)}: repeat that run with "
            "force=true, or leave it out of task.runs"
        )
    best, config, dating = (path / name for name in ("best.parquet", "config.yaml", "dating.csv"))
    return FinishedRun(
        path,
        RunView(pd.read_parquet(path / "results.parquet")),
        pd.read_parquet(best) if best.exists() else None,
        manifest,
        yaml.safe_load(config.read_text()) if config.exists() else {},
        pd.read_csv(dating, keep_default_na=False, na_values=[""]) if dating.exists() else None,
    )


def differences(a: FinishedRun, b: FinishedRun) -> list[str]:
    """Why the numbers of two runs do not compare; empty when they do.

    Runs may lack each other's sets: only sets of the same name must have the same content. What
    they were trained and fitted on (train, val) is theirs to choose: few images of each class, or
    other backgrounds.
    """
    found = []
    if a.manifest["protocol"] != b.manifest["protocol"]:
        found.append(f"metric protocol ({a.manifest['protocol']} and {b.manifest['protocol']})")
    ours, theirs = a.manifest["data"], b.manifest["data"]
    measured = [name for name in ours if name in theirs and name not in ("train", "val")]
    if changed := [name for name in measured if ours[name] != theirs[name]]:
        found.append(f"content of the data ({', '.join(changed)})")
    if a.shift_order and b.shift_order and a.shift_order != b.shift_order:
        orders = " and ".join(" < ".join(run.shift_order) for run in (a, b))
        found.append(f"shift order of the DAD ({orders})")
    return found


def comparable_groups(runs: Iterable[FinishedRun]) -> list[list[FinishedRun]]:
    """Splits runs into groups within which all numbers compare, in the order of ``runs``."""
    groups: list[list[FinishedRun]] = []
    for run in runs:
        fits = (g for g in groups if not any(differences(other, run) for other in g))
        group = next(fits, None)
        if group is None:
            groups.append([run])
        else:
            group.append(run)
    return groups


def check_comparable(groups: Sequence[Sequence[FinishedRun]]) -> None:
    """Raises :class:`UserError` when there is more than one group, naming what differs."""
    if len(groups) < 2:
        return
    first = groups[0]
    parts = []
    for group in groups[1:]:
        culprit, reasons = next(
            (run, found)
            for run in first
            for other in group[:1]
            if (found := differences(run, other))
        )
        more = f" and {len(group) - 1} more" if len(group) > 1 else ""
        parts.append(f"{group[0].path}{more} against {culprit.path}: {'; '.join(reasons)}")
    raise UserError(
        f"these runs cannot share a table. {'. '.join(parts)}. Narrow task.runs, or write one "
        "table a group with task.split=true"
    )
