"""The manual spot check of the division: a CSV out, and the verdicts in again."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

import pandas as pd

from ood_lab.common.files import read_table, write_csv
from ood_lab.lvlm.benchmarks.oodbench.division import ID
from ood_lab.lvlm.scoring.human_verdicts import REJECT, AuditVerdicts, read_audit

_KEY = ["image", "category"]


def audited(division: pd.DataFrame, path: Path | None) -> pd.DataFrame:
    """The division with a person's verdict on each pair, in the column ``verdict``.

    Args:
        division: see :func:`~ood_lab.lvlm.benchmarks.oodbench.division.divide`.
        path: the CSV of :func:`write_audit`, with ``accept``, ``reject`` or nothing as verdicts;
            None = no pair has one.

    Raises:
        UserError: the file is missing or not such a CSV, has another verdict, or names a pair
            that is not in the division.
    """
    if path is None:
        return division.assign(verdict="")
    verdicts = AuditVerdicts(_KEY, read_audit(path, _KEY), path)
    verdicts.check(
        division,
        "the division has no pair of image {image} and '{category}'; the audit belongs to other "
        "annotations",
    )
    return division.assign(verdict=verdicts.of(division))


def without_rejected(audited: pd.DataFrame) -> pd.DataFrame:
    """Pairs that have not been rejected, without the column ``verdict``.

    Rejected pairs are in no split: not in an OOD one, where they do not belong, nor in ID, which
    would make ID of what the models overlook.
    """
    return audited[audited["verdict"] != REJECT].drop(columns="verdict").reset_index(drop=True)


def write_audit(audited: pd.DataFrame, files: Mapping[int | str, str], path: Path) -> None:
    """Writes every OOD pair, and every rejected one, with its image's file and its verdict.

    Args:
        audited: see :func:`audited`.
        files: path of every image, by id.
        path: the CSV to write.
    """
    listed = audited[(audited["split"] != ID) | (audited["verdict"] == REJECT)]
    table = listed.assign(file=[files[image] for image in listed["image"]])
    first = [*_KEY, "split", "verdict", "file"]
    write_csv(table[[*first, *[c for c in table if c not in first]]], path)


def read_ood_pairs(path: Path) -> pd.DataFrame:
    """OOD pairs that have not been rejected: ``image, category, split, file``, as text."""
    pairs = read_table(path, dtype=str, keep_default_na=False)
    pairs["verdict"] = pairs["verdict"].str.strip().str.lower()
    return without_rejected(pairs[pairs["split"] != ID])
