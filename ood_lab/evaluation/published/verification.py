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
from ood_lab.common.files import read_config, read_json, read_table
from ood_lab.common.hints import missing_path
from ood_lab.data.datamodules.splits import ID_SPLITS
from ood_lab.evaluation.hierarchy_tables import KIND as HIERARCHY
from ood_lab.evaluation.published.numbers import Field, PublishedRow
from ood_lab.metrics.hierarchy_accuracy import ALL
from ood_lab.schema.arrays import Floats
from ood_lab.schema.results import ACCURACY, RESULTS, of_kind, read_results
from ood_lab.schema.shift_axes import LEVELS

#: What ``metrics.fpr95_positive`` of a run makes of the plain names ``fpr95`` and ``aupr_*``.
MEANING = {
    "ood": {"fpr95": "ood_positive", "aupr": "trapezoid"},
    "id": {"fpr95": "id_positive", "aupr": "average_precision"},
}
#: Verdicts on a number.
WITHIN, OUTSIDE, OTHER, ABSENT = "within", "outside", "other protocol", "not in the run"
#: Of a comparison: the paper's number, the run's with its interval, and their difference.
COLUMNS = (
    *("row", "paper", "run", "ci_low", "ci_high", "difference"),
    *("tolerance", "verdict", "differs"),
)
#: What ``task=data_check`` writes.
COUNTS_FILE = "counts.csv"


def read_runs(place: Path) -> tuple[pd.DataFrame, dict[str, Any]]:
    """:func:`read_run` of one run, or of all seeds in a folder: means, and the facts of one.

    The interval of a mean covers those of all seeds.

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
    ends = {"ci_low": ("ci_low", "min"), "ci_high": ("ci_high", "max")}
    mean = means.agg(value=("value", "mean"), **ends, n_id=("n_id", "first"))
    known = [fact["id_accuracy"] for fact in facts if fact["id_accuracy"] is not None]
    accuracy = sum(known) / len(known) if known else None
    return mean.reset_index(), {**facts[0], "id_accuracy": accuracy}


def read_run(run: Path) -> tuple[pd.DataFrame, dict[str, Any]]:
    """The numbers of a finished run, and what is known of how it was measured.

    Rows are of detectors; of zero-shot accuracies (parts of features are the detectors, the data
    the set); of a hierarchy of labels (models are the detectors, ``fine early Shang of ding`` a
    set); and of ``task=data_check`` (labels are the detectors, ``early Shang, ding, id`` a set).

    Raises:
        UserError: no such folder, or no finished run in it.
    """
    if not run.is_dir():
        raise missing_path(run)
    counted = (run / COUNTS_FILE).exists()
    if not (counted or (run / RESULTS).exists()) or not (run / "manifest.json").exists():
        raise UserError(
            f"{run} contains no finished run: name a folder outputs/<name>/<hash>/seed=<s> "
            "with results.parquet (or counts.csv) and manifest.json"
        )
    name = read_config(run)["data"]["name"]
    if counted:
        results = _counts(read_table(run / COUNTS_FILE, keep_default_na=False, na_values=[""]))
    else:
        results = read_results(run)
    return numbers_of(results, read_json(run / "manifest.json"), name)


def numbers_of(
    everything: pd.DataFrame, manifest: Mapping[str, Any], data: str
) -> tuple[pd.DataFrame, dict[str, Any]]:
    """As :func:`read_run`, of a results table, a manifest and the name of the data.

    Raises:
        UserError: there are no such rows.
    """
    parts = [of_kind(everything, kind) for kind in ("detection", ACCURACY.name, HIERARCHY.name)]
    detection, shares, dating = parts
    if len(shares):
        names = {"detector": shares["part"], "metric": "zero_shot_" + shares["metric"]}
        parts[1] = shares.assign(**names, dataset=data, n_id=shares["n"])
    if len(dating):
        name, subset = (dating[key].fillna("") for key in ("name", "subset"))
        of_class = dating["label_level"] + (" " + name).where(name != "", "")
        sets = of_class + (" of " + subset).where(subset != ALL, "")
        parts[2] = dating.assign(detector=dating["model"], dataset=sets, n_id=dating["n"])
    results = pd.concat(
        [part for part in (*parts, of_kind(everything, "count")) if len(part)] or parts
    )
    if results.empty:
        raise UserError(
            "the run has no results of detectors, zero-shot accuracies, levels or counts of data"
        )
    accuracy = manifest.get("id_accuracy")
    counts = detection.groupby("dataset")["n_ood"].max().to_dict() if len(detection) else {}
    most = results["n_id"].max()
    return results, {
        **MEANING.get(str(manifest.get("fpr95_positive")), {}),
        "model": manifest.get("model", results["model"].iloc[0]),
        "transform": manifest.get("backbone", {}).get("transform"),
        "dataset": data,
        "id_accuracy": None if accuracy is None else 100 * accuracy,
        "shift_order": manifest.get("shift_order") or list(manifest.get("ood_groups") or {}),
        "n": {"test": None if pd.isna(most) else int(most), **counts},
        "detectors": dict.fromkeys(results["detector"].dropna()) | manifest.get("detectors", {}),
    }


def _counts(table: pd.DataFrame) -> pd.DataFrame:
    """Counts of ``task=data_check`` as rows, also summed over names and over categories."""
    table = table.assign(dataset=table["dataset"].replace(dict.fromkeys(ID_SPLITS, "id")))
    parts = []
    for keys in (("name", "category"), ("name",), ("category",), ()):
        known = table.dropna(subset=list(keys))
        sums = known.groupby(["label", *keys, "dataset"])["images"].sum().reset_index()
        texts = sums[[*keys, "dataset"]].astype(str).agg(", ".join, axis=1)
        parts.append(sums.assign(dataset=texts)[["label", "dataset", "images"]])
    found = pd.concat(parts, ignore_index=True).rename(columns={"label": "detector"})
    found = found.rename(columns={"images": "value"}).assign(kind="count", metric="images")
    return found.reindex(columns=[*found, "model", "ci_low", "ci_high", *LEVELS, "n_id", "n_ood"])


def compare(
    rows: Sequence[PublishedRow], results: pd.DataFrame, facts: Mapping[str, Any]
) -> pd.DataFrame:
    """One row a published number, see :data:`COLUMNS`; the interval is that of ours."""
    found = []
    of_names = dict(iter(results.groupby(results["detector"].str.casefold())))
    for row in rows:
        own = of_names.get(row.detector.casefold(), results.iloc[:0])
        ours, low, high = row.scale * _values(row, own, facts["shift_order"])
        delta = ours - row.value
        differs: list[str] = []
        if math.isnan(ours):  # a detector the run does not have has no settings to differ in
            verdict = ABSENT
        elif differs := [".".join(field) for field, _, _ in _differing(row, facts)]:
            verdict = OTHER
        else:
            verdict = WITHIN if abs(delta) <= row.tolerance + 1e-9 else OUTSIDE
        told = row.tolerance, verdict, " ".join(differs)
        found.append((row.name, row.value, ours, low, high, delta, *told))
    return pd.DataFrame(found, columns=list(COLUMNS))


def protocol_differences(rows: Sequence[PublishedRow], facts: Mapping[str, Any]) -> pd.DataFrame:
    """Every protocol field that differs for a row the run has: ``field, run, paper, rows``."""
    counted: dict[tuple[str, str, str], int] = {}
    for row in rows:
        if row.detector in facts["detectors"]:
            for field, ours, theirs in _differing(row, facts):
                key = (".".join(field), _shown(ours, "not recorded"), _shown(theirs, "not stated"))
                counted[key] = counted.get(key, 0) + 1
    found = [(*key, count) for key, count in counted.items()]
    return pd.DataFrame(found, columns=["field", "run", "paper", "rows"])


def _values(row: PublishedRow, results: pd.DataFrame, shift_order: Sequence[str]) -> Floats:
    """The run's number for a published row, and its interval; NaN where it has none.

    Args:
        row: the published number.
        results: of its detector.
        shift_order: of the run; the sets of a mean where the reference names none.
    """
    name, wanted = row.place
    levels = results[list(LEVELS)].to_numpy(float)
    whole = (np.equal(levels, wanted) | (np.isnan(levels) & np.isnan(wanted))).all(axis=1)
    table = results[whole & (results["metric"] == row.metric)]
    group = whole & (results["metric"] == f"mean_{row.ood}_{row.metric}")
    if row.ood == "mean":
        sets = row.reference.protocol.get(("shift_order",), shift_order)
        chosen = table[table["dataset"].isin(sets)]
        value = chosen["value"].mean() if {*sets} <= {*chosen["dataset"]} else np.nan
        return np.array([value, np.nan, np.nan])
    if row.ood == "all":
        chosen = table[table["dataset"].isna()]
    elif group.any():
        chosen = results[group]
    else:
        chosen = table[table["dataset"].str.casefold() == name.casefold()]
    found: Floats = chosen[["value", "ci_low", "ci_high"]].astype(float).mean().to_numpy()
    return found


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
