"""Names of runs and of their rows in a leaderboard: what differs between them."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import pandas as pd

from ood_lab.report.leaderboard.detector_runs import DetectorRun
from ood_lab.report.rendering.page import flatten

#: What a network is made of and trained with, the most telling first. The CLIP and the preset only
#: say how shift is measured, or which of these values are the default.
_GROUPS = ("data", "loss", "prompt", "model")
#: Of the Trainer.
_TRAINER = ("max_epochs", "precision", "gradient_clip_val", "accumulate_grad_batches")
#: Keys that change no number, or that have a column of their own.
_LEFT_OUT = {"info", "num_workers", "cache_dir", "download", "shots", "background"}


def trainings(runs: Sequence[DetectorRun]) -> dict[str, str]:
    """``key=value; ...`` of every :attr:`DetectorRun.sweep`.

    That is :attr:`DetectorRun.training`, and the settings that differ between the runs of one
    model. What follows from the choice of another model names no run.
    """
    trained = {run.weights: run for run in runs if not run.config.get("ckpt")}
    by_model: dict[str, dict[str, DetectorRun]] = {}
    for run in runs:
        by_model.setdefault(run.model, {}).setdefault(run.sweep, run)
    return {
        sweep: "; ".join([of_model[sweep].training, *pairs])
        for of_model in by_model.values()
        for sweep, pairs in _pairs(of_model, trained).items()
    }


def _pairs(
    runs: Mapping[str, DetectorRun], trained: Mapping[str, DetectorRun]
) -> dict[str, list[str]]:
    """The pairs that differ between runs; of keys that differ alike, the first."""
    settings = [_settings(run, trained.get(run.weights)) for run in runs.values()]
    columns: dict[tuple[str | None, ...], str] = {}
    for key in dict.fromkeys(key for of_run in settings for key in of_run):
        values = tuple(_value(of_run, key) for of_run in settings)
        if len({*values} - {None}) > 1:
            columns.setdefault(values, key.removesuffix("._target_").rpartition(".")[2])
    return {
        run: [f"{name}={of[place]}" for of, name in columns.items() if of[place] is not None]
        for place, run in enumerate(runs)
    }


def _settings(run: DetectorRun, trained: DetectorRun | None) -> dict[str, str]:
    """What its network was made with, by dotted key; an evaluation knows the Trainer by weights."""
    groups = {name: run.config[name] for name in _GROUPS if name in run.config}
    trainer = (trained.config.get("trainer") if trained else None) or {}
    groups["trainer"] = {key: trainer[key] for key in _TRAINER if key in trainer}
    return {k: v for k, v in flatten(groups) if k.rpartition(".")[2] not in _LEFT_OUT}


def _value(settings: Mapping[str, str], key: str) -> str | None:
    """The last part of the value of a setting, which may be a path or the name of a class.

    ``none`` where its group is, and None where it is unknown.
    """
    if key in settings:
        last = settings[key].rstrip("/").rpartition("/")[2]
        is_class = last.replace(".", "").replace("_", "").isalpha()
        return last.rpartition(".")[2] if is_class else last
    parents = (key.rsplit(".", n)[0] for n in range(1, key.count(".") + 1))
    return "none" if any(settings.get(parent) == "none" for parent in parents) else None


def differing(settings: pd.Series) -> pd.Series:
    """Of texts ``key=value; ...`` the pairs that not all of them share."""
    items = settings.str.split("; ")
    common = set.intersection(*map(set, items))
    return items.map(lambda pairs: "; ".join(p for p in pairs if p not in common))


def short_names(rows: pd.DataFrame, runs: Sequence[DetectorRun]) -> pd.DataFrame:
    """Rows ``detector, model, training, settings, run`` with what differs between them."""
    named = rows.assign(training=differing(rows["training"]))
    return named.assign(settings=_telling(named, runs))


def name_columns(rows: pd.DataFrame, first: str) -> list[str]:
    """The column ``first``, those that differ, and the run where nothing else tells rows apart."""
    keys = [first]
    keys += ["model"] if first != "model" and rows["model"].nunique() > 1 else []
    keys += [key for key in ("training", "settings") if key in rows and rows[key].any()]
    return keys + (["run"] if rows.duplicated(keys).any() else [])


def labels(rows: pd.DataFrame) -> list[str]:
    """One text per row of :func:`short_names`; the run only where nothing else differs."""
    keys = name_columns(rows, "model")
    if len(rows) > 1 and rows["model"].nunique() == 1 and "run" not in keys:
        keys = keys[1:]
    return [" · ".join(filter(None, row)) for row in rows[keys].to_numpy()]


def _telling(named: pd.DataFrame, runs: Sequence[DetectorRun]) -> pd.Series:
    """Settings that differ between the rows of a model, or were set to differ.

    What follows from another model (the layers that Gram reads) is not a choice.
    """
    by_model = named.groupby(["detector", "model", "training"])["settings"].transform(differing)
    keys = {
        (detector, pair.partition("=")[0])
        for detector, pairs in zip(named["detector"], by_model, strict=True)
        for pair in pairs.split("; ")
    }
    by_name = {run.sweep: run for run in runs}
    for detector, of_detector in named.groupby("detector"):
        nodes = [by_name[sweep].configured(str(detector)) or {} for sweep in of_detector["run"]]
        for key in {key for node in nodes for key in node}:
            if len({repr(node.get(key)) for node in nodes}) > 1:
                keys.add((detector, key))
    return pd.Series(
        [
            "; ".join(p for p in pairs.split("; ") if (detector, p.partition("=")[0]) in keys)
            for detector, pairs in zip(named["detector"], named["settings"], strict=True)
        ],
        index=named.index,
    )
