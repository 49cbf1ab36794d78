"""Finished runs of OODBench, read back: several models on the same questions."""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

import pandas as pd

from ood_lab.common.errors import UserError
from ood_lab.common.files import read_config, read_table
from ood_lab.lvlm.answers.answer_files import model_name
from ood_lab.lvlm.benchmarks.oodbench.division import DIVISION, ID, read_ood_pairs
from ood_lab.lvlm.benchmarks.oodbench.scoring import DATASET
from ood_lab.lvlm.benchmarks.oodbench.split_contents import without_rest
from ood_lab.lvlm.scoring.answer_differences import read_otherwise
from ood_lab.lvlm.scoring.model_runs import ModelRun
from ood_lab.schema.arrays import Bools
from ood_lab.schema.results import read_results
from ood_lab.schema.run_record import RunRecord


def read_runs(folders: Sequence[str]) -> list[ModelRun]:
    """Reads run folders of ``task=oodbench``.

    Their folders distinguish models of the same name.

    Raises:
        UserError: a folder is not a finished run of that task, or is named twice, or replies are
            read by different parsers.
    """
    runs = []
    for folder in map(Path, folders):
        if not (folder / "judged.parquet").is_file():
            raise UserError(
                f"{folder} is not a finished run of task=oodbench: it has no judged.parquet"
            )
        results = read_results(folder)
        name = str(results["model"].iloc[0]) if len(results) else folder.parent.name
        judgements = read_table(folder / "judged.parquet")
        runs.append(ModelRun(name, folder, without_rest(judgements)))
    if len({run.path.resolve() for run in runs}) < len(runs):
        raise UserError("a run is named twice")
    paths = [run.path for run in runs]
    for reading in [RunRecord.read(path).reading for path in paths[:1]]:
        for warning in read_otherwise(reading, "", paths).values():
            raise UserError(warning)
    names = _told_apart([(run.name, run.path) for run in runs])
    return [replace(run, name=name) for run, name in zip(runs, names, strict=True)]


def _told_apart(runs: Sequence[tuple[str, Path]]) -> list[str]:
    names = [name for name, _ in runs]
    return [n if names.count(n) == 1 else f"{n} ({path.parent.name})" for n, path in runs]


def division_flags(folders: Sequence[str], pairs: pd.DataFrame) -> dict[str, Bools]:
    """Which pairs image-text models flag by their own divisions: by model, ``[P]``.

    Args:
        folders: of ``task=oodbench``, with ``image_text=[chat]`` for example; one for each model
            and data set.
        pairs: see :func:`ood_lab.lvlm.scoring.model_runs.common_pairs`. One that is not annotated,
            as of ID, is never flagged.

    Raises:
        UserError: a run divided nothing, or by another rule, or lacks an OOD pair.
    """
    models: dict[tuple[str, str], tuple[Path, list[pd.Series]]] = {}
    rules: dict[str, Path] = {}
    for folder in map(Path, folders):
        division, about = read_table(folder / DIVISION), RunRecord.read(folder)
        rules[str({k: v for k, v in about.division.items() if k != "pairs"})] = folder
        before = f"{about.annotations['name']}/" if DATASET in pairs else ""
        index = [before + division["image"].astype(str), division["category"].astype(str)]
        for key, made_with in about.image_text.items():
            name = model_name(made_with["chat"]) if "chat" in made_with else key
            _, parts = models.setdefault((name, json.dumps(made_with)), (folder, []))
            parts.append(pd.Series(division[f"flagged_{key}"].to_numpy(bool), index))
    if len(rules) > 1:
        raise UserError(f"task.divisions: give runs of the same rule; of {rules}")
    names = _told_apart([(name, folder) for (name, _), (folder, _) in models.items()])
    asked = pd.MultiIndex.from_arrays([pairs[key].astype(str) for key in ("image", "category")])
    results = {}
    for name, (folder, parts) in zip(names, models.values(), strict=True):
        flags = pd.concat(parts)
        own = flags[~flags.index.duplicated()].reindex(asked)
        if (lost := own.isna().to_numpy() & (pairs["split"] != ID).to_numpy()).any():
            raise UserError(
                f"task.divisions: {folder} has no pair of {asked[int(lost.argmax())]}: divide the "
                "images of the questions, with the same annotations=..."
            )
        results[name] = own.eq(True).to_numpy(bool)
    return results


def built_in(run: Path) -> Path | None:
    """The folder of the run that built a run's questions and still lists all pairs, if any."""
    # A run that was given its questions has no audit of its own.
    asked = (read_config(run).get("task") or {}).get("questions")
    places = [run, Path(asked).parent] if asked else [run]
    return next((place for place in places if (place / "audit.csv").is_file()), None)


def audited_pairs(folder: Path) -> pd.DataFrame:
    """OOD pairs of a run that built questions, none cut: ``image, category, file, split``.

    Raises:
        UserError: the folder has no ``audit.csv``.
    """
    file = folder / "audit.csv"
    if not file.is_file():
        raise UserError(
            f"{folder} has no audit.csv: give a run of task=oodbench that built questions"
        )
    return read_ood_pairs(file)


def annotated_categories(folder: Path) -> set[str]:
    """The categories of all annotated pairs of a run that built questions, OOD or not.

    Raises:
        UserError: the folder has no division.
    """
    return set(read_table(folder / DIVISION)["category"].astype(str))
