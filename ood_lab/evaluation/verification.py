"""A finished run compared with published numbers: protocols, and whether they agree."""

from __future__ import annotations

import math
import re
from collections.abc import Mapping, Sequence
from functools import reduce
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd

from ood_lab.common.errors import UserError
from ood_lab.common.files import read_config, read_json
from ood_lab.common.hints import missing_path
from ood_lab.evaluation.published_numbers import Field, PublishedRow
from ood_lab.schema.results import ACCURACY, of_kind, read_results
from ood_lab.schema.shift_axes import LEVELS

#: What ``metrics.fpr95_positive`` of a run makes of the plain names ``fpr95`` and ``aupr_*``.
MEANING = {
    "ood": {"fpr95": "ood_positive", "aupr": "trapezoid"},
    "id": {"fpr95": "id_positive", "aupr": "average_precision"},
}
#: Verdicts on a number.
WITHIN, OUTSIDE, OTHER, ABSENT = "within", "outside", "other protocol", "not in the run"


def read_runs(place: Path) -> tuple[pd.DataFrame, dict[str, Any]]:
    """:func:`read_run` of one run, or of all seeds in a folder: mean values, the facts of one.

    Raises:
        UserError: see there; or the seeds were not measured alike.
    """
    seeds = sorted(p.parent for p in place.glob("seed=*/DONE"))
    if not seeds:
        return read_run(place)
    tables, facts = zip(*map(read_run, seeds), strict=True)
    if any(other["n"] != facts[0]["n"] for other in facts[1:]):
        raise UserError(f"the runs in {place} have evaluated other images: name one of them")
    keys = ["detector", "dataset", "semantic_level", "covariate_level", "metric"]
    everything: pd.DataFrame = pd.concat(tables, ignore_index=True)
    means = everything.groupby(keys, dropna=False, sort=False)
    mean = means.agg(value=("value", "mean"), n_id=("n_id", "first"), n_ood=("n_ood", "first"))
    known = [fact["id_accuracy"] for fact in facts if fact["id_accuracy"] is not None]
    accuracy = sum(known) / len(known) if known else None
    return mean.reset_index(), {**facts[0], "id_accuracy": accuracy}


def read_run(run: Path) -> tuple[pd.DataFrame, dict[str, Any]]:
    """The results table of a finished run, and what is known of how it was measured.

    Raises:
        UserError: no such folder, or no finished run in it.
    """
    if not run.is_dir():
        raise missing_path(run)
    if not (run / "results.parquet").exists() or not (run / "manifest.json").exists():
        raise UserError(
            f"{run} contains no finished run: name a folder outputs/<name>/<hash>/seed=<s> "
            "with results.parquet and manifest.json"
        )
    manifest, config = read_json(run / "manifest.json"), read_config(run)
    everything = read_results(run)
    results, shares = of_kind(everything, "detection"), of_kind(everything, ACCURACY.name)
    if results.empty:
        if shares.empty:
            raise UserError(f"{run} has no results of detectors, and no zero-shot accuracies")
        # Parts of features count as detectors, and the data as a set.
        names = {"detector": shares["part"], "metric": "zero_shot_" + shares["metric"]}
        results = shares.assign(**names, dataset=config["data"]["name"], n_id=shares["n"], n_ood=0)
    accuracy = manifest.get("id_accuracy")
    counts = results.dropna(subset=["dataset"]).groupby("dataset")["n_ood"].max()
    return results, {
        **MEANING.get(str(manifest.get("fpr95_positive")), {}),
        "model": manifest.get("model", everything["model"].iloc[0]),
        "transform": manifest.get("backbone", {}).get("transform"),
        "dataset": config["data"]["name"],
        "id_accuracy": None if accuracy is None else 100 * accuracy,
        "shift_order": manifest.get("shift_order", []),
        "n": {"test": int(results["n_id"].max()), **counts.to_dict()},
        "detectors": manifest.get("detectors", dict.fromkeys(results["detector"])),
    }


def compare(
    rows: Sequence[PublishedRow], results: pd.DataFrame, facts: Mapping[str, Any]
) -> pd.DataFrame:
    """One row a published number: ``row, ours, theirs, delta, tolerance, verdict, differs``."""
    found = []
    for row in rows:
        ours = row.scale * _value(row, results, facts["shift_order"])
        delta = ours - row.value
        differs: list[str] = []
        if math.isnan(ours):  # a detector the run does not have has no settings to differ in
            verdict = ABSENT
        elif differs := [".".join(field) for field, _, _ in _differing(row, facts)]:
            verdict = OTHER
        else:
            verdict = WITHIN if abs(delta) <= row.tolerance + 1e-9 else OUTSIDE
        told = row.tolerance, verdict, " ".join(differs)
        found.append((row.name, ours, row.value, delta, *told))
    columns = ["row", "ours", "theirs", "delta", "tolerance", "verdict", "differs"]
    return pd.DataFrame(found, columns=columns)


def protocol_differences(rows: Sequence[PublishedRow], facts: Mapping[str, Any]) -> pd.DataFrame:
    """Every protocol field that differs for a row the run has: ``field, ours, theirs, rows``."""
    counted: dict[tuple[str, str, str], int] = {}
    for row in rows:
        if row.detector in facts["detectors"]:
            for field, ours, theirs in _differing(row, facts):
                key = (".".join(field), _shown(ours, "not recorded"), _shown(theirs, "not stated"))
                counted[key] = counted.get(key, 0) + 1
    found = [(*key, count) for key, count in counted.items()]
    return pd.DataFrame(found, columns=["field", "ours", "theirs", "rows"])


def _value(row: PublishedRow, results: pd.DataFrame, shift_order: Sequence[str]) -> float:
    """The run's number for a published row, NaN where it has none."""
    name, wanted = row.place
    levels = results[list(LEVELS)].to_numpy(float)
    whole = (np.equal(levels, wanted) | (np.isnan(levels) & np.isnan(wanted))).all(axis=1)
    table = results[
        whole & (results["detector"] == row.detector) & (results["metric"] == row.metric)
    ]
    group = whole & (results["metric"] == f"mean_{row.ood}_{row.metric}")
    if row.ood == "all":
        chosen = table[table["dataset"].isna()]
    elif row.ood == "mean":
        chosen = table[table["dataset"].isin(shift_order)]
    elif group.any():
        chosen = results[group & (results["detector"] == row.detector)]
    else:
        chosen = table[table["dataset"] == name]
    return float(chosen["value"].mean())


def _differing(row: PublishedRow, facts: Mapping[str, Any]) -> list[tuple[Field, Any, Any]]:
    found = []
    for field, theirs in row.protocol():
        ours = reduce(lambda node, key: (node or {}).get(key), field, facts)  # type: ignore[arg-type, return-value]
        if field == ("transform",):
            agree = _holds(str(ours), str(theirs))
        else:
            agree = _agree(ours, theirs, row.reference.tolerance.get(field[-1], 0))
        if not agree:
            found.append((field, ours, theirs))
    return found


def _holds(transform: str, part: str) -> bool:
    """Whether the printed transform has the published part, as whole words and numbers."""
    return re.search(rf"(?<![\w.]){re.escape(part)}(?![\w.])", transform) is not None


def _agree(ours: Any, theirs: Any, tolerance: float) -> bool:
    if ours is None or theirs is None:
        return False
    if isinstance(theirs, str):
        return theirs.casefold() == str(ours).casefold()
    if isinstance(theirs, list):
        return (
            isinstance(ours, list)
            and len(ours) == len(theirs)
            and all(_agree(a, b, tolerance) for a, b in zip(ours, theirs, strict=True))
        )
    if isinstance(theirs, bool) or not isinstance(ours, int | float):
        return bool(ours == theirs)
    return math.isclose(ours, theirs, rel_tol=1e-6, abs_tol=tolerance + 1e-9)


def _shown(value: Any, nothing: str) -> str:
    if value is None:
        return nothing
    text = f"{value:.6g}" if isinstance(value, float) else str(value)
    return " ".join(text.split())
