"""Levels of shift that were measured: lists of a division's cells, and tables of levels."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pandas as pd

from ood_lab.common.errors import UserError
from ood_lab.common.files import StrPath, read_table
from ood_lab.common.hints import check_known, missing_path
from ood_lab.common.unicode_names import composed
from ood_lab.data.dataset import Splits
from ood_lab.schema.image_columns import AXES, DEGREES, LEVELS, cell_of_file


def cell_lists(folder: Path) -> dict[tuple[int, int], Path]:
    """The lists ``cov_<i>_sem_<j>.txt`` of a folder by (covariate, semantic) level; often none."""
    cells = {cell_of_file(entry.name): entry for entry in folder.iterdir() if entry.is_file()}
    return dict(sorted((cell, path) for cell, path in cells.items() if cell is not None))


def apply_levels(sets: Splits, table: pd.DataFrame, source: str) -> None:
    """Gives OOD sets the levels of a division, and the distances that it cut, where it has them.

    Levels that a set brought along are replaced; sets that the table does not name lose theirs,
    since levels of two divisions do not compare.

    Args:
        sets: the OOD sets by name.
        table: ``dataset, index, path, semantic_level, covariate_level`` and perhaps ``semantic,
            covariate``, one row per image.
        source: what messages call the table.

    Raises:
        UserError: no set of these data in it, or other images.
    """
    named = [name for name in sets if (table["dataset"] == name).any()]
    if not named:
        datasets = sorted(map(str, table["dataset"].unique()))
        raise UserError(
            f"{source} has levels of {', '.join(datasets)}, the data has "
            f"{', '.join(sets)}: divide these data first (task=shift_levels)"
        )
    for name, data in sets.items():
        if name not in named:
            data.set_levels(None)
            continue
        rows = table[table["dataset"] == name].sort_values("index")
        here, there = (list(map(composed, t["path"].astype(str))) for t in (data.table, rows))
        if here != there:
            raise UserError(
                f"{source} was made for other images of '{name}' ({len(rows)} there, "
                f"{len(here)} here): divide these data again (task=shift_levels)"
            )
        columns = {level: rows[level].to_numpy(np.int64) for level in LEVELS}
        for name, axis in zip(DEGREES, AXES, strict=True):
            columns |= {name: rows[axis].to_numpy(np.float64)} if axis in rows else {}
        data.set_levels(columns)


def read_levels(path: StrPath, key: str = "data.levels") -> pd.DataFrame:
    """The table ``levels.parquet`` (or ``.csv``) that ``task=shift_levels`` wrote.

    Args:
        path: of the table.
        key: that gave it, for errors.

    Raises:
        UserError: no such file or column.
    """
    file = Path(path)
    if not file.is_file():
        raise missing_path(file)
    table = read_table(file)
    wanted = ("dataset", "index", "path", *LEVELS)
    check_known(wanted, table, f"{key}={file} has no column '{{name}}'")
    return table
