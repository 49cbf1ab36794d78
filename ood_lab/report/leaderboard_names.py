"""Names of runs and of their rows in a leaderboard: what differs between them."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import pandas as pd

from ood_lab.report.leaderboard_runs import FinishedRun
from ood_lab.report.page import flatten

#: What of a configuration a network and its data are made of, the most telling first.
_GROUPS = ("data", "preset", "loss", "prompt", "clip", "model", "trainer", "metrics", "tuning")
#: Keys that change no number, or that have a column of their own.
_LEFT_OUT = {"info", "num_workers", "cache_dir", "download", "devices", "num_nodes", "strategy"}
_LEFT_OUT |= {"shots", "background", "log_every_n_steps", "enable_model_summary"}


def trainings(runs: Sequence[FinishedRun]) -> dict[str, str]:
    """``key=value; ...`` of every :attr:`FinishedRun.sweep`.

    That is :attr:`FinishedRun.training`, and the settings that differ between the runs of one
    model. What follows from the choice of another model names no run.
    """
    by_model: dict[str, dict[str, FinishedRun]] = {}
    for run in runs:
        model = str(run.view.table["model"].iloc[0])
        by_model.setdefault(model, {}).setdefault(run.sweep, run)
    return {
        sweep: "; ".join([of_model[sweep].training, *pairs])
        for of_model in by_model.values()
        for sweep, pairs in _pairs(of_model).items()
    }


def _pairs(runs: Mapping[str, FinishedRun]) -> dict[str, list[str]]:
    """The pairs that differ between runs; of keys that differ alike, the first."""
    settings = {name: _settings(run) for name, run in runs.items()}
    columns: dict[tuple[str, ...], str] = {}
    for key in dict.fromkeys(key for found in settings.values() for key in found):
        values = tuple(_short(found.get(key, "none")) for found in settings.values())
        if len(set(values)) > 1:
            columns.setdefault(values, key)
    names = [key.removesuffix("._target_").rpartition(".")[2] for key in columns.values()]
    return {
        run: [f"{name}={values[place]}" for name, values in zip(names, columns, strict=True)]
        for place, run in enumerate(runs)
    }


def _settings(run: FinishedRun) -> dict[str, str]:
    """What its numbers were made with, by dotted key."""
    groups = {name: run.config[name] for name in _GROUPS if name in run.config}
    if run.config.get("ckpt"):
        groups.pop("trainer", None)  # it extracts features, and trained nothing
    return {k: v for k, v in flatten(groups) if k.rpartition(".")[2] not in _LEFT_OUT}


def _short(value: str) -> str:
    """The last part of a path or of the name of a class."""
    last = value.rstrip("/").rpartition("/")[2]
    return last.rpartition(".")[2] if last.replace(".", "").replace("_", "").isalpha() else last


def differing(settings: pd.Series) -> pd.Series:
    """Of texts ``key=value; ...`` the pairs that not all of them share."""
    items = settings.str.split("; ")
    common = set.intersection(*map(set, items))
    return items.map(lambda pairs: "; ".join(p for p in pairs if p not in common))


def short_names(rows: pd.DataFrame, runs: Sequence[FinishedRun]) -> pd.DataFrame:
    """Rows ``detector, model, training, settings, run`` with what differs between them."""
    named = rows.assign(training=differing(rows["training"]))
    return named.assign(settings=_telling(named, runs))


def labels(rows: pd.DataFrame) -> list[str]:
    """One text per row of :func:`short_names`; the run only where nothing else differs."""
    keys = ["model", "training", "settings"]
    if rows["model"].nunique() == 1 and not rows.duplicated(keys[1:]).any():
        keys = keys[1:] if len(rows) > 1 else keys
    keys += ["run"] if rows.duplicated(keys).any() else []
    return [" · ".join(filter(None, row)) for row in rows[keys].to_numpy()]


def _telling(named: pd.DataFrame, runs: Sequence[FinishedRun]) -> pd.Series:
    """Settings that differ between the rows of a model, or were asked to differ.

    What follows from another model (the layers that Gram reads) is not a choice.
    """
    by_model = named.groupby(["detector", "model", "training"])["settings"]
    told = by_model.transform(differing)
    keys = {
        (detector, pair.partition("=")[0])
        for detector, pairs in zip(named["detector"], told, strict=True)
        for pair in pairs.split("; ")
    }
    by_name = {run.sweep: run for run in runs}
    for detector, of_detector in named.groupby("detector"):
        asked = [by_name[sweep].asked(str(detector)) or {} for sweep in of_detector["run"]]
        for key in {key for node in asked for key in node}:
            if len({repr(node.get(key)) for node in asked}) > 1:
                keys.add((detector, key))
    return pd.Series(
        [
            "; ".join(p for p in pairs.split("; ") if (detector, p.partition("=")[0]) in keys)
            for detector, pairs in zip(named["detector"], named["settings"], strict=True)
        ],
        index=named.index,
    )
