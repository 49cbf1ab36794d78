"""Run folders as `score` leaves them, from numbers that a test makes up."""

import json
from pathlib import Path

import pandas as pd
import yaml

from ood_lab.metrics.results_rows import KIND
from ood_lab.metrics.verdict import VERDICT
from ood_lab.schema.image_columns import CLASS_UNITS
from ood_lab.schema.results import joined, write_results
from ood_lab.shift.dataset_shift import KIND as SHIFT

SETS = ("near", "far")
IDENTITY = {"train": "a", "test": "b", "near": "c", "far": "d"}


def add_grid(run: Path) -> None:
    """Makes the last set one that only serves levels: no place in the order, one level."""
    table = pd.read_parquet(run / "results.parquet")
    grid = table["dataset"] == table["dataset"].dropna().iloc[-1]
    table.loc[grid, "shift_level"] = float("nan")
    cells = table[grid].assign(semantic_level=1.0)
    table = table[~table["metric"].str.startswith("mean_")]
    pd.concat([table, with_means(table[~grid]), cells]).to_parquet(run / "results.parquet")


def with_means(table: pd.DataFrame) -> pd.DataFrame:
    """The rows of means over the sets of results, without intervals, as one set has none."""
    of_sets = table.dropna(subset=["dataset"])
    if of_sets["dataset"].nunique() < 2:
        return of_sets.iloc[:0]
    first = of_sets.groupby(["detector", "metric"], sort=False)
    sums = {"value": first["value"].mean(), "n_ood": first["n_ood"].sum()}
    rows = first.first().assign(**sums, dataset=None, shift_level=None, ci_low=None, ci_high=None)
    return rows.reset_index().assign(metric=lambda rows: "mean_" + rows["metric"])[list(table)]


def write_run(
    folder: Path,
    aurocs: dict[str, tuple[float, ...]],
    *,
    seed=0,
    model="net",
    sets=SETS,
    half=0.01,
    best=None,
    k=5,
    accuracy=0.9,
    **manifest,
) -> Path:
    """``aurocs``: detector → AUROC of every set; FPR95 is 1 - AUROC. Returns the run folder."""
    path = folder / f"seed={seed}"
    path.mkdir(parents=True)
    common = {"n_id": 100}
    ends = {"ci_low": accuracy - 0.05, "ci_high": accuracy + 0.05}
    rows = [{**common, "metric": "id_accuracy", "value": accuracy, **ends}]
    for detector, values in aurocs.items():
        rows.append({**common, "detector": detector, "metric": "dad", "value": 1.0, "n_ood": 60})
        for place, (ood, value) in enumerate(zip(sets, values, strict=True), 1):
            for metric, v in (("auroc", value), ("fpr95", 1 - value)):
                ends = {"ci_low": v - half, "ci_high": v + half}
                cell = {
                    "dataset": ood,
                    "shift_level": place,
                    "n_ood": 30,
                    "metric": metric,
                    "value": v,
                }
                rows.append({**common, "detector": detector, **cell, **ends})
    table = KIND.table(rows, model=model, seed=seed)
    table["n_ood"] = table["n_ood"].fillna(0).astype(int)
    write_results(pd.concat([table, with_means(table)], ignore_index=True), path)
    if best is not None:
        pd.DataFrame(best, columns=["dataset", "metric", "detector", "best"]).to_parquet(
            path / "significance_best.parquet"
        )
    data = {name: IDENTITY.get(name, "x") for name in ("train", "test", *sets)}
    learnt = {"k": k, "threshold": seed + 0.5, "fit_seconds": 0.1 * seed}
    made = {"fpr95_positive": "ood", "data": data, "detectors": dict.fromkeys(aurocs, learnt)}
    if "classes" in manifest:
        made["id_chance"] = 1 / len(manifest["classes"])
    (path / "manifest.json").write_text(json.dumps(made | manifest))
    nodes = {name: {"_target_": "x", "k": "auto"} for name in aurocs}
    (path / "config.yaml").write_text(yaml.safe_dump({"detector": nodes, "paths": {}}))
    (path / "DONE").touch()
    return path


def add_verdict(
    run: Path, found: dict[str, float], *, recommended=None, half=0.02, left=None, fpr95=None
):
    """Rows of kind ``verdict``: ``found`` is detector → mean AUROC; FPR95 = 1 - AUROC if None.

    The set of the best is all within ``half`` of the best; none detects without ``recommended``.
    ``left``: dataset → why it does not count.
    """
    top = max(found.values())
    rows = [{"metric": "detects", "value": float(recommended is not None)}]
    rows += [{"metric": why, "value": 5.0, "dataset": ood} for ood, why in (left or {}).items()]
    if recommended is not None:
        rows.append({"metric": "recommended", "value": 1.0, "detector": recommended})
    for detector, auroc in found.items():
        for metric, value in (("mean_auroc", auroc), ("mean_fpr95", fpr95 or 1 - auroc)):
            ends = {"ci_low": value - half, "ci_high": value + half}
            rows.append({"metric": metric, "value": value, "detector": detector, **ends})
        within = float(auroc >= top - half)
        rows.append({"metric": "best_set", "value": within, "detector": detector})
    named = recommended or max(found, key=found.get)
    rows += [
        {"metric": metric, "value": 0.7, "detector": named, "dataset": ood}
        for metric in ("auroc", "fpr95")
        for ood in SETS
    ]
    table = pd.read_parquet(run / "results.parquet")
    model, seed = table["model"].iloc[0], int(table["seed"].iloc[0])
    sizes = {"n": 160, "n_id": 100, "n_ood": 60}
    verdict = VERDICT.table([sizes | row for row in rows], model=model, seed=seed)
    units = [
        {
            "dataset": ood,
            "encoder": "tiny",
            "axis": "semantic",
            "metric": CLASS_UNITS,
            "value": 2.0 + place,
            "n": 30,
        }
        for place, ood in enumerate(SETS)
    ]
    shift = SHIFT.table(units, model=None, seed=seed)
    write_results(joined([verdict, shift, table]), run)
    return run
