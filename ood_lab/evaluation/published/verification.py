"""A finished run compared with published numbers: protocols, and whether they agree."""

from __future__ import annotations

import math
import re
from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from fnmatch import fnmatchcase
from functools import partial, reduce
from pathlib import Path
from statistics import fmean
from typing import Any

import numpy as np
import pandas as pd

from ood_lab.common.errors import UserError
from ood_lab.common.files import read_table
from ood_lab.common.grouping import distinct
from ood_lab.common.hints import missing_path
from ood_lab.data.dataset import ID_SPLITS
from ood_lab.evaluation.hierarchy_tables import KIND as HIERARCHY
from ood_lab.evaluation.published.numbers import (
    Field,
    PublishedRow,
    matching_rows,
    read_references,
)
from ood_lab.metrics.id_metrics import ALL
from ood_lab.schema.arrays import Floats
from ood_lab.schema.finished_run import FinishedRun
from ood_lab.schema.image_columns import LEVELS
from ood_lab.schema.results import ACCURACY, PART, RESULTS, first_way, of_kind, whole
from ood_lab.schema.run_record import MANIFEST, BenchmarkFacts, Facts, RunRecord

#: What ``metrics.fpr95_positive`` of a run makes of the plain names ``fpr95`` and ``aupr_*``.
MEANING = {
    "ood": {"fpr95": "ood_positive", "aupr": "trapezoid"},
    "id": {"fpr95": "id_positive", "aupr": "average_precision"},
}
#: Verdicts on a number.
WITHIN, OUTSIDE, OTHER, ABSENT = "within", "outside", "other protocol", "not in the run"
#: Of a comparison: the paper's number, the run's with its interval, and their difference.
COLUMNS = (
    "row",
    "paper",
    "spread",
    "run",
    "ci_low",
    "ci_high",
    "difference",
    "tolerance",
    "verdict",
    "differs",
)
#: What ``task=data_check``, ``task=shift_levels`` and ``task=oodbench_ablation`` write.
COUNTS_FILE, CELLS_FILE, ABLATION_FILE = "counts.csv", "level_counts.csv", "ablation.csv"
#: Numbers of images by cell of shift are rows of this detector.
CELLS = "cells"
#: Differences of a run's own sets or settings, which have the name ``a - b``; and to another run.
WITHIN_RUN, TO_ANOTHER = ("differences.csv", "drops.csv"), ("models.csv", "change.csv")


_COUNT = {"kind": "count", "metric": "images"}
_COLUMNS = ("model", "ci_low", "ci_high", *LEVELS, "n_id", "n_ood")


@dataclass(frozen=True)
class Verification:
    """Numbers of a run next to published ones.

    Attributes:
        rows: the published numbers.
        table: one row each, see :data:`COLUMNS`.
        differences: fields of the protocols that differ: ``field, run, paper, rows``.
    """

    rows: Sequence[PublishedRow]
    table: pd.DataFrame
    differences: pd.DataFrame

    @property
    def outside(self) -> int:
        """How many numbers that were measured the same way are outside their tolerance."""
        return int((self.table["verdict"] == OUTSIDE).sum())

    @property
    def comparable(self) -> int:
        """How many numbers were measured the same way."""
        return int(self.table["verdict"].isin([WITHIN, OUTSIDE]).sum())


def verify(
    results: pd.DataFrame,
    facts: Facts,
    row: str,
    references: str | Path | None = None,
    name: str = "the evaluation",
) -> Verification:
    """Compares numbers of a run with published ones.

    Args:
        results: see :func:`read_runs`.
        facts: see :func:`read_runs`.
        row: ``file``, ``file/detector``, ``file/detector/set`` or ``file/detector/set/metric``;
            ``*`` stands for anything.
        references: folder of reference files; None = those that come with the package.
        name: of the run, in messages.

    Raises:
        UserError: unknown row, or none of the rows in the run.
    """
    rows = matching_rows(read_references(references), row)
    table = compare(rows, results, facts)
    present = [r for r, v in zip(rows, table["verdict"], strict=True) if v != ABSENT]
    if not present:
        names = ", ".join(results["detector"].dropna().unique())
        models = "benchmark" in facts
        sets = ", ".join(facts["n"] if models else results["dataset"].dropna().unique())
        hint = ": name the row of its model, task.row=FILE/MODEL" if models else ""
        raise UserError(
            f"{name} holds none of the {len(rows)} numbers of task.row={row}; "
            f"it has the {'models' if models else 'detectors'} {names} on the sets {sets}{hint}"
        )
    return Verification(rows, table, protocol_differences(present, facts))


def read_runs(place: Path) -> tuple[pd.DataFrame, Facts]:
    """The numbers of a finished run, or of all seeds in a folder: means, and the facts of one.

    The interval of a mean covers those of all seeds. Rows are of detectors; of zero-shot accuracies
    (parts of features are the detectors, the data the set); of a hierarchy of labels (models are
    the detectors, ``fine early Shang of ding`` a set); of ``task=data_check`` (labels are the
    detectors, ``early Shang, ding, id`` a set); of the cells of shift (detector ``cells``); and of
    question benchmarks (models are the detectors, ``ood_h, cot`` and ``pos_only - uniform`` sets).

    Raises:
        UserError: no such folder, no finished run in it, or the seeds were not measured alike.
    """
    seeds = sorted(p.parent for p in place.glob("seed=*/DONE"))
    tables, facts = zip(*(_numbers(FinishedRun(run)) for run in seeds or [place]), strict=True)
    if not seeds:
        return tables[0], facts[0]
    if any(other["n"] != facts[0]["n"] for other in facts[1:]):
        raise UserError(f"the runs in {place} have evaluated other images: name one of them")
    keys = ["model", "detector", "dataset", *LEVELS, "metric"]
    results: pd.DataFrame = pd.concat(tables, ignore_index=True)
    means = results.groupby(keys, dropna=False, sort=False)
    ends = {"ci_low": ("ci_low", "min"), "ci_high": ("ci_high", "max")}
    mean = means.agg(value=("value", "mean"), **ends, n_id=("n_id", "first"))
    accuracies = [of_run["id_accuracy"] for of_run in facts if of_run["id_accuracy"] is not None]
    accuracy = fmean(accuracies) if accuracies else None
    return mean.reset_index(), {**facts[0], "id_accuracy": accuracy}


def _numbers(run: FinishedRun) -> tuple[pd.DataFrame, Facts]:
    """The numbers of one run, and how they were measured."""
    if not run.folder.is_dir():
        raise missing_path(run.folder)
    files = (COUNTS_FILE, CELLS_FILE, ABLATION_FILE, RESULTS)
    file = next(filter(run.has, files), None)
    if file is None or not run.has(MANIFEST):
        raise UserError(
            f"{run} contains no finished run: name a folder outputs/<name>/<hash>/seed=<s> "
            f"with {MANIFEST} and one of {', '.join(files)}"
        )
    if file == ABLATION_FILE or run.record.benchmark:
        return _answers(run, file)
    name = run.config["data"]["name"]
    if file == COUNTS_FILE:
        results = _counts(read_table(run.folder / file, keep_default_na=False, na_values=[""]))
    elif file == CELLS_FILE:
        results = _cells(read_table(run.folder / file), name)
    else:
        results = run.results
    return numbers_of(results, run.record, name)


def numbers_of(
    everything: pd.DataFrame, record: RunRecord, data: str
) -> tuple[pd.DataFrame, Facts]:
    """As :func:`read_runs`, of a results table, the record of the run and the name of the data.

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
    if len(detection):
        images = detection.drop_duplicates(["dataset", *LEVELS]).assign(detector=CELLS)
        images = images.assign(metric="images", value=images["n_ood"], ci_low=None, ci_high=None)
        parts.append(images)
    results = pd.concat(
        [part for part in (*parts, of_kind(everything, "count")) if len(part)] or parts
    )
    results = results.reindex(columns=distinct([*results, *_COLUMNS]))
    if results.empty:
        raise UserError(
            "the run has no results of detectors, zero-shot accuracies, levels or counts of data"
        )
    accuracy = record.id_accuracy
    counts = detection.groupby("dataset")["n_ood"].max().to_dict() if len(detection) else {}
    most = results["n_id"].max()
    return results, {
        **MEANING.get(str(record.fpr95_positive), {}),
        "model": record.model or results["model"].iloc[0],
        "transform": record.backbone.transform or None,
        "dataset": data,
        "id_accuracy": None if accuracy is None else 100 * accuracy,
        "shift_order": record.shift_order or list(record.ood_groups),
        "n": {"test": None if pd.isna(most) else int(most), **counts},
        "detectors": dict.fromkeys(results["detector"].dropna()) | record.detectors,
    }


def _counts(table: pd.DataFrame) -> pd.DataFrame:
    """Counts of ``task=data_check`` as rows, also summed over names and over categories."""
    table = table.assign(dataset=table["dataset"].replace(dict.fromkeys(ID_SPLITS, "id")))
    parts = []
    for keys in (["name", "category"], ["name"], ["category"], []):
        rows = table.dropna(subset=keys)
        sums = rows.groupby(["label", *keys, "dataset"])["images"].sum().reset_index(name="value")
        texts = sums[[*keys, "dataset"]].astype(str).agg(", ".join, axis=1)
        parts.append(sums.assign(dataset=texts, detector=sums["label"], **_COUNT))
    return pd.concat(parts, ignore_index=True)


def _cells(table: pd.DataFrame, data: str) -> pd.DataFrame:
    """Counts of ``task=shift_levels`` as rows: of cells, of levels, and of all of them."""
    cells = table.melt("covariate_level", var_name="semantic_level", value_name="value")
    cells["semantic_level"] = cells["semantic_level"].str.removeprefix("semantic_").astype(int)
    parts = [cells, pd.DataFrame({"value": [cells["value"].sum()]})]
    parts += [cells.groupby([axis])["value"].sum().reset_index() for axis in LEVELS]
    return pd.concat(parts, ignore_index=True).assign(detector=CELLS, dataset=data, **_COUNT)


def _answers(run: FinishedRun, file: str) -> tuple[pd.DataFrame, Facts]:
    """As :func:`read_runs`, of a question benchmark: a set is a split, and what of it.

    Sets of a single data set are also called ``<set>, dataset <name>``, as among several.
    """
    record = run.record
    about = record.benchmark or BenchmarkFacts(name="OODBench", page="")
    results = read_table(run.folder / file)
    results[PART] = results["setting" if file == ABLATION_FILE else PART]
    results = first_way(results)
    counts = results.drop_duplicates(["model", "split", PART, *LEVELS])
    n = counts["n_items"].fillna(counts["n_asked"]) if "n_items" in counts else counts["n_asked"]
    counts = counts.assign(metric="questions", value=n, ci_low=None, ci_high=None)
    seconds = [
        {"split": split, PART: form or None, "metric": "seconds", "value": value}
        for form, split, value in record.seconds_of_calls
    ]
    parts = [results, counts.dropna(subset="value"), pd.DataFrame(seconds), *_differences(run)]
    rows = pd.concat([part for part in parts if len(part)], ignore_index=True)
    rows = rows.drop_duplicates(["model", "split", PART, *LEVELS, "metric"])
    rows["model"] = rows["model"].fillna(results["model"].iloc[0])
    names = [", ".join(pair.dropna()) for _, pair in rows[["split", PART]].iterrows()]
    rows = rows.assign(detector=rows["model"], dataset=names, n_id=None)
    data = ", ".join(sorted(record.datasets)) or record.annotations.get("name") or about.about
    if "dataset" in about.finer and not record.datasets:
        rows = pd.concat([rows, rows.assign(dataset=rows["dataset"] + f", dataset {data}")])
    sets = whole(counts)
    return rows, {
        "benchmark": about.name,
        "model": rows["model"].iloc[0],
        "dataset": data,
        "n": sets.set_index("split")["value"].astype(int).to_dict(),
        "detectors": dict.fromkeys(rows["model"]),
        "shift_order": [],
        "id_accuracy": None,
    }


def _differences(run: FinishedRun) -> Iterator[pd.DataFrame]:
    """Recall by size, and differences with their intervals, as rows of a question benchmark."""
    if run.has("tiers.csv"):
        sizes = read_table(run.folder / "tiers.csv").query("edges == 'tier'")
        yield sizes.rename(columns={"tier": PART, "accuracy": "value"}).assign(metric="recall_yes")
    for file in filter(run.has, (*WITHIN_RUN, *TO_ANOTHER)):
        table = read_table(run.folder / file).rename(
            columns={"difference": "value", "change": "value"}
        )
        if file in TO_ANOTHER:
            if "b" not in table or table["b"].nunique() == 1:
                yield table.assign(part="change")
            continue
        first, second = table["a"].astype(str), table["b"].astype(str)
        yield table.assign(part=first + " - " + second)
        turned = {"value": -table["value"], "ci_low": -table["ci_high"]}
        yield table.assign(part=second + " - " + first, ci_high=-table["ci_low"], **turned)


def compare(rows: Sequence[PublishedRow], results: pd.DataFrame, facts: Facts) -> pd.DataFrame:
    """One row a published number, see :data:`COLUMNS`; the interval is that of ours.

    A run of a question benchmark has one model: rows of a single one are compared with it, whatever
    its name, which is then a field that differs.
    """
    lines = []
    models = results["model"].fillna("").astype(str)
    names = (models + "/" + results["detector"].astype(str)).str.casefold()
    groups = dict(iter(results.groupby(names)))
    single = "benchmark" in facts and len({row.detector for row in rows}) == 1
    for row in rows:
        pattern = row.reference.names.get(row.detector, f"*/{row.detector}").casefold()
        fitting = [part for name, part in groups.items() if single or fnmatchcase(name, pattern)]
        of_row = pd.concat(fitting) if fitting else results.iloc[:0]
        ours, low, high = row.scale * _values(row, of_row, facts["shift_order"])
        verdict, differs = ABSENT, ""
        if not math.isnan(ours):  # a detector the run does not have has no settings to differ in
            differs = " ".join(".".join(field) for field, _, _ in _differing(row, facts))
            within = abs(ours - row.value) <= row.tolerance + 1e-9
            verdict = OTHER if differs else WITHIN if within else OUTSIDE
        numbers = (row.name, row.value, row.spread, ours, low, high, ours - row.value)
        lines.append((*numbers, row.tolerance, verdict, differs))
    return pd.DataFrame(lines, columns=list(COLUMNS))


def protocol_differences(rows: Sequence[PublishedRow], facts: Facts) -> pd.DataFrame:
    """Every protocol field that differs for rows that the run has: ``field, run, paper, rows``."""
    counts = Counter(
        (".".join(field), _shown(ours, "not recorded"), _shown(theirs, "not stated"))
        for row in rows
        for field, ours, theirs in _differing(row, facts)
    )
    fields = [(*key, count) for key, count in counts.items()]
    return pd.DataFrame(fields, columns=["field", "run", "paper", "rows"])


def _values(row: PublishedRow, results: pd.DataFrame, shift_order: Sequence[str]) -> Floats:
    """The run's number for a published row, and its interval; NaN where it has none.

    Args:
        row: the published number.
        results: of its detector.
        shift_order: of the run; the sets of a mean where the reference names none.
    """
    name, wanted = row.place
    levels = results[list(LEVELS)].astype(float).fillna(-1)  # -1 = all
    fitting = (levels == np.nan_to_num(wanted, nan=-1)).all(axis=1)
    table = results[fitting & (results["metric"] == row.metric)]
    group = fitting & (results["metric"] == f"mean_{row.ood}_{row.metric}")
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
    return chosen[["value", "ci_low", "ci_high"]].astype(float).mean().to_numpy()


def _differing(row: PublishedRow, facts: Facts) -> Iterator[tuple[Field, Any, Any]]:
    """Fields of the protocol that differ, with the values of the run and of the paper."""
    for field, theirs in row.protocol():
        ours = reduce(lambda node, key: (node or {}).get(key), field, facts)  # type: ignore[arg-type, return-value]
        if field == ("transform",):  # the printed one has the published part, as whole words
            agree = (
                re.search(rf"(?<![\w.]){re.escape(str(theirs))}(?![\w.])", str(ours)) is not None
            )
        else:
            agree = _agree(ours, theirs, row.reference.tolerance.get(field[-1], 0))
        if not agree:
            yield field, ours, theirs


def _agree(ours: Any, theirs: Any, tolerance: float) -> bool:
    if isinstance(theirs, list):
        agree = partial(_agree, tolerance=tolerance)
        pairs = isinstance(ours, list) and len(ours) == len(theirs)
        return pairs and all(map(agree, ours, theirs))
    if isinstance(ours, int | float) and isinstance(theirs, int | float):
        return math.isclose(ours, theirs, rel_tol=1e-6, abs_tol=tolerance + 1e-9)
    return ours is not None and str(ours).casefold() == str(theirs).casefold()


def _shown(value: Any, nothing: str) -> str:
    if value is None:
        return nothing
    text = f"{value:.6g}" if isinstance(value, float) else str(value)
    return " ".join(text.split())
