"""The manual spot check of the division: a CSV out, and the verdicts in again."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

import pandas as pd

from ood_lab.errors import UserError
from ood_lab.io import read_table, write_csv
from ood_lab.lvlm.oodbench.division import ID

#: What a person may write into the column ``verdict``; nothing means accept.
ACCEPT, REJECT = "accept", "reject"
_KEY = ["image", "category"]


def write_audit(division: pd.DataFrame, files: Mapping[int | str, str], path: Path) -> None:
    """Writes every OOD pair with its image's file and an empty column ``verdict``.

    Args:
        division: see :func:`~ood_lab.lvlm.oodbench.division.divide`.
        files: path of every image, by id.
        path: the CSV to write.
    """
    ood = division[division["split"] != ID]
    table = ood.assign(file=[files[image] for image in ood["image"]], verdict="")
    first = [*_KEY, "split", "verdict", "file"]
    write_csv(table[[*first, *[c for c in table if c not in first]]], path)


def without_rejected(division: pd.DataFrame, path: Path) -> pd.DataFrame:
    """The division without the pairs that a person has rejected.

    They are in no split: not in an OOD one, where they do not belong, nor in ID, which would make
    ID of what the models overlook.

    Args:
        division: see :func:`~ood_lab.lvlm.oodbench.division.divide`.
        path: the CSV of :func:`write_audit`, with ``accept`` or ``reject`` as verdicts.

    Raises:
        UserError: the file is missing or not such a CSV, has another verdict, or names a pair
            that is not in the division.
    """
    if not path.is_file():
        raise UserError(f"task.audit={path}: there is no such file")
    audit = read_table(path, dtype=str, keep_default_na=False)
    if missing := [name for name in (*_KEY, "verdict") if name not in audit]:
        raise UserError(f"{path} has no column '{missing[0]}': give the audit.csv of a run")
    verdicts = audit["verdict"].str.strip().str.lower()
    if len(wrong := verdicts[~verdicts.isin(["", ACCEPT, REJECT])]):
        raise UserError(
            f"{path}, line {wrong.index[0] + 2}: the verdict is '{wrong.iloc[0]}'; write "
            f"{ACCEPT}, {REJECT} or nothing"
        )
    known = pd.MultiIndex.from_arrays([division[name].astype(str) for name in _KEY])
    listed = pd.MultiIndex.from_frame(audit[_KEY])
    if (strange := ~listed.isin(known)).any():
        row = int(strange.argmax())
        image, category = listed[row]
        raise UserError(
            f"{path}, line {row + 2}: the division has no pair of image {image} and '{category}'; "
            "the audit belongs to other annotations"
        )
    return division[~known.isin(listed[verdicts == REJECT])].reset_index(drop=True)
