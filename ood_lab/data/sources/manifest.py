"""Reads a folder, a CSV or Parquet table, or an OpenOOD image list into one kind of table."""

from __future__ import annotations

import json
import os
import re
from collections.abc import Collection, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd

from ood_lab.common.errors import UserError
from ood_lab.common.files import StrPath, absolute
from ood_lab.common.hints import check_known, missing_path
from ood_lab.common.unicode_names import composed, existing
from ood_lab.data.dataset import INTEGER_COLUMNS, UNKNOWN
from ood_lab.data.sources.folders import NO_LABEL, existing_folder, instead, read_folder
from ood_lab.data.sources.image_formats import is_picture
from ood_lab.data.sources.label_names import (
    is_named,
    matched,
    mismatch,
    ordered_names,
)
from ood_lab.data.sources.level_tables import cell_lists
from ood_lab.data.sources.reading_warnings import Tell, to_log
from ood_lab.data.sources.table_columns import renamed, tell_unread


def read_manifest(
    source: StrPath,
    root: StrPath | None = None,
    classes: Sequence[str] | None = None,
    tell: Tell = to_log,
    skip: bool = False,
    columns: Mapping[str, str | None] | None = None,
    group: str | None = None,
) -> tuple[pd.DataFrame, list[str]]:
    """Reads the list of images and the class of each.

    ``source`` is one of

    - a folder with one sub-folder a class (searched to any depth), or a flat folder of images
      without labels; hidden files and folders are skipped; with a table ``metadata.csv``,
      ``.jsonl`` or ``.parquet`` that has a column ``label``, as of Hugging Face's ImageFolder, it;
    - a ``.csv``, ``.tsv``, ``.jsonl`` or ``.parquet`` file with a column ``path`` (or
      ``file_name``) and, where known, ``label`` (class name or number, empty or -1 = unknown),
      ``category``, ``shape``, ``level_<n>`` (names or numbers alike, see
      :func:`~ood_lab.data.sources.label_names.encode_names`),
      ``semantic_level``, ``covariate_level`` (integers), ``attribute_<name>`` (0/1), ``mask`` (the
      file of the object's mask) and any others; spaces around these names and capitals do not
      count, and :data:`~ood_lab.data.sources.table_columns.SYNONYMS` are read;
    - a ``.txt`` list with a line ``path label`` an image, or ``path`` where labels are not needed;
      paths may hold spaces;
    - a folder of such lists called ``cov_<i>_sem_<j>.txt`` (IS-OOD's, or those of
      ``task=shift_levels``): ``covariate_level`` i and ``semantic_level`` j.

    Folder rows are sorted by path; the rows of a file keep their order.

    Args:
        source: the folder or file.
        root: folder that relative paths of a file start from; default: the file's own folder.
        classes: None: the classes are those found here, see
            :func:`~ood_lab.data.sources.label_names.ordered_names`. The
            classes of ``train``: labels must be among them, by name or (in a file) by number.
            An empty list: an OOD set, every label becomes -1 and the original class stays in the
            column ``category_name``.
        tell: receives the files that were skipped and the columns that nothing reads.
        skip: leave rows of a table out that have no path, or whose file is missing.
        columns: of a table, to be read as ``path`` and ``label``; None = those of these names.
        group: column that is read later, see :mod:`ood_lab.data.datamodules.image_groups`.

    Returns:
        A table with ``path`` (absolute), ``label`` (int64, -1 = unknown) and the other columns,
        and the class names, position = label.

    Raises:
        UserError: a missing path, file or column, no images, an unknown class.
    """
    place = _place(source)
    if not os.path.exists(place):
        raise missing_path(place)
    labelled = classes is None or len(classes) > 0
    chosen = {name: column for name, column in (columns or {}).items() if column}
    if place.is_dir():
        place = metadata_of(place, tell if labelled else None, chosen) or place
    if place.is_dir():
        if chosen:
            missing = min(chosen.values())
            raise UserError(f"'{place}' is a folder without a table that has '{missing}'")
        cells = cell_lists(place)
        table = _read_cells(cells, root) if cells else read_folder(place, labelled, tell)
    else:
        table = read_file(place, labelled, chosen, tell)
        names = [str(c) for c in table if c != "label" or (table[c] != NO_LABEL).any()]
        tell_unread([name for name in names if name != group], place, labelled, tell)
        table = _present(table, place, root, tell) if skip else table
        table["path"] = _absolute(table["path"], place, root)
        if "mask" in table:
            masked = table["mask"].notna()
            table.loc[masked, "mask"] = _absolute(table.loc[masked, "mask"], place, root)
    if table.empty:
        raise UserError(f"'{place}' contains no images{instead(place)}")
    table = check_columns(table, place)
    return encode_labels(table, classes, str(place), numeric=place.is_file(), tell=tell)


def encode_labels(
    table: pd.DataFrame,
    classes: Sequence[str] | None,
    source: str,
    numeric: bool,
    tell: Tell,
) -> tuple[pd.DataFrame, list[str]]:
    """Turns the texts in column ``label`` into positions in the list of classes, in place.

    Args:
        table: a row an image.
        classes: see :func:`read_manifest`.
        source: what to call the table.
        numeric: labels that look like numbers may be positions, see
            :func:`~ood_lab.data.sources.label_names.ordered_names`.
        tell: receives how names were matched, where they are not those of the classes.
    """
    labels = table["label"]
    present = sorted(set(labels) - {NO_LABEL})
    if numeric and (classes is None or classes):
        _check_whole(labels, present, source)
    # Folder names are names even if they look like numbers: 001, 002, ...
    ordered = ordered_names(present) if numeric else present
    names = ordered if classes is None else list(classes)
    position, how = matched(present, names, numeric)
    if names and (unknown := [name for name in present if name not in position]):
        raise UserError(mismatch(present, names, unknown[0], source))
    if how:
        tell(f"'{source}': {how}", False)
    if classes is None and numeric and names[:1] == ["1"] and names[-1] == str(len(names)):
        tell(
            f"'{source}': its labels 1 to {len(names)} are {len(names)} classes, the outputs "
            f"0 to {len(names) - 1} of a network",
            False,
        )
    if present and not names:
        table["category_name"] = labels.where(labels != NO_LABEL, "")
    table["label"] = labels.map(position).fillna(UNKNOWN).astype(np.int64)
    return table, names


def _read_cells(cells: Mapping[tuple[int, int], Path], root: StrPath | None) -> pd.DataFrame:
    """The lists of a division's cells, one below the other."""
    parts = []
    for (covariate, semantic), file in cells.items():
        part = read_file(file)
        part["path"] = _absolute(part["path"], file, root)
        parts.append(part.assign(semantic_level=semantic, covariate_level=covariate))
    return pd.concat(parts, ignore_index=True)


def metadata_of(folder: Path, tell: Tell | None, chosen: Mapping[str, str]) -> Path | None:
    """The table of labels in a folder of the form of Hugging Face's ImageFolder, if there is one.

    One without a column ``label`` is pointed out with the columns that may be meant.
    """
    tables = [folder / f"metadata{kind}" for kind in (".csv", ".jsonl", ".parquet")]
    file = next(filter(Path.is_file, tables), None)
    columns = [] if file is None else list(map(str, _table(file, chosen=chosen)))
    others = [c for c in columns if c not in ("file_name", "path")]
    if file is None or others == columns:
        return None
    if "label" in columns or chosen.get("label") in columns:
        return file
    if tell is not None and others:
        tell(
            f"'{file}' has the columns {', '.join(others[:8])}, which are not read: if one "
            f"is the class, give {{path: {folder}, label: {others[0]}}}"
        )
    return None


def read_file(
    file: Path,
    labelled: bool = True,
    chosen: Mapping[str, str] | None = None,
    tell: Tell | None = None,
) -> pd.DataFrame:
    """The unchanged rows of a table or list, columns ``path`` and ``label`` as text.

    Args:
        file: of them.
        labelled: labels are needed.
        chosen: see :func:`read_manifest`.
        tell: receives which columns are read under another name; None = nobody.

    Raises:
        UserError: it cannot be read, or has no paths.
    """
    chosen = chosen or {}
    table = _table(file, labelled, chosen, tell)
    for name, column in chosen.items():
        check_known([column], table, f"'{file}' has no column '{{name}}'")
        if column != name:
            table = table.drop(columns=name, errors="ignore").rename(columns={column: name})
    if "path" not in table and "file_name" in table:  # of Hugging Face's ImageFolder
        table = table.rename(columns={"file_name": "path"})
    check_known(["path"], table, f"'{file}' has no column '{{name}}'")
    table["label"] = label_text(table["label"]) if "label" in table else NO_LABEL
    return table.reset_index(drop=True)


def _table(
    file: Path, labelled: bool = True, chosen: Collection[str] = (), tell: Tell | None = None
) -> pd.DataFrame:
    suffix = file.suffix.lower()
    try:
        if suffix in (".csv", ".tsv"):
            table = _read_csv(file, chosen)
        elif suffix in (".parquet", ".pq"):
            table = pd.read_parquet(file)
            if any(table.index.names):  # of a table that was saved with one
                table = table.reset_index()
        elif suffix == ".jsonl":
            lines = file.read_text("utf-8-sig").splitlines()
            table = pd.DataFrame([json.loads(line) for line in lines if line.strip()], dtype=object)
        elif suffix in (".txt", ".lst"):
            table = _read_image_list(file, labelled)
        else:
            raise UserError(
                f"'{file}' is neither a folder nor a .csv, .tsv, .jsonl, .parquet or .txt list of "
                "images"
            )
    except UserError:
        raise
    except UnicodeDecodeError as error:
        raise UserError(f"cannot read '{file}', which is not UTF-8: save it as UTF-8") from error
    except (ValueError, OSError) as error:
        raise UserError(f"cannot read '{file}': {str(error).splitlines()[0]}") from error
    return table.rename(columns=renamed(table, file, chosen, tell))


def _read_csv(file: Path, chosen: Collection[str]) -> pd.DataFrame:
    with file.open(encoding="utf-8-sig", newline="") as lines:
        header = next((line for line in lines if line.strip()), "")
    usual, *rest = (",", ";", "\t") if file.suffix.lower() == ".csv" else ("\t", ",", ";")
    # Spreadsheets of some languages write semicolons.
    sep = usual if usual in header else next((mark for mark in rest if mark in header), usual)
    # Only an empty cell is missing: "NA" and "null" are possible class names.
    options: dict[str, Any] = {
        "keep_default_na": False,
        "na_values": [""],
        "sep": sep,
        "encoding": "utf-8-sig",
        "skipinitialspace": f"{sep} " in header,
    }
    names = renamed(pd.read_csv(file, nrows=0, **options), file, chosen)
    named = [c for c, name in names.items() if name in ("path", "label") or is_named(name)]
    table = pd.read_csv(file, dtype=dict.fromkeys(named, str), **options)
    if not isinstance(table.index, pd.RangeIndex):
        raise UserError(f"cannot read '{file}': its rows have more cells than its first line names")
    return table


def _read_image_list(file: Path, labelled: bool) -> pd.DataFrame:
    rows = []
    for number, line in enumerate(file.read_text("utf-8-sig").splitlines(), start=1):
        if not line.strip():
            continue
        path, _, label = line.strip().rpartition(" ")
        if not labelled and is_picture(label):
            path, label = line, NO_LABEL
        if not path or is_picture(label):
            raise UserError(f"'{file}' line {number} is not 'path label': '{line.strip()}'")
        rows.append((path.strip(), label))
    return pd.DataFrame(rows, columns=["path", "label"])


def _absolute(paths: pd.Series, file: Path, root: StrPath | None) -> list[str]:
    absolute, missing = _files(paths, file, existing_folder(_base(file, root)))
    if missing:
        raise UserError(
            f"{len(missing)} of {len(absolute)} files listed in '{file}' are missing; first: "
            f"{missing_path(missing[0])}; if its paths start from another folder, give that as "
            "root: {path: LIST, root: DIR}"
        )
    return absolute


def _present(table: pd.DataFrame, file: Path, root: StrPath | None, tell: Tell) -> pd.DataFrame:
    """The rows whose file is there; all of them where none is, since the folder is then wrong."""
    base = _base(file, root)
    paths = [os.fsdecode(p) if isinstance(p, bytes) else p for p in table["path"]]
    there = np.array([isinstance(p, str) and os.path.isfile(found_below(base, p)) for p in paths])
    if there.all() or not there.any():
        return table
    row = int((~there).argmax())
    tell(
        f"'{file}': {(~there).sum():,} of {len(table):,} rows have no image and are skipped, "
        f"first row {row + 1} ({table['path'].iloc[row]})"
    )
    return table[there].reset_index(drop=True)


def missing_of(file: Path, root: StrPath | None) -> str:
    """The number of listed images that are not there, in words; empty where all are."""
    absolute, missing = _files(read_file(file)["path"], file, _base(file, root))
    if not missing:
        return ""
    return f"{len(missing):,} of {len(absolute):,} images are missing, first '{missing[0]}'"


def _files(paths: pd.Series, file: Path, base: Path) -> tuple[list[str], list[str]]:
    """The files of all paths in a list, and those of them that are missing."""
    files = [found_below(base, path) for path in path_texts(paths, file)]
    return files, [path for path in files if not os.path.isfile(path)]


def _base(file: Path, root: StrPath | None) -> Path:
    """The folder that the paths in a list start from."""
    return _place(root) if root is not None else file.parent


def _place(source: StrPath) -> Path:
    return Path(existing(absolute(source)))


def path_texts(paths: pd.Series, file: Path) -> Iterator[str]:
    """The paths as text: bytes, as some programs write them to Parquet, are decoded.

    Raises:
        UserError: a row of ``file`` has none.
    """
    for row, path in enumerate(paths, start=1):
        text = os.fsdecode(path) if isinstance(path, bytes) else path
        if not isinstance(text, str):
            raise UserError(f"'{file}' row {row} has no path: {str(text)[:60]!r}")
        yield text


def found_below(base: Path, path: str) -> str:
    """The file of a path, in the Unicode form that the disk has.

    Spaces around it or backslashes count where there is such a file.
    """
    full = existing(os.path.normpath(os.path.join(base, path)))
    if not os.path.isfile(full) and path != (plain := path.strip().replace("\\", "/")):
        other = existing(os.path.normpath(os.path.join(base, plain)))
        return other if os.path.isfile(other) else full
    return full


def _text(name: object) -> str:
    if isinstance(name, list | np.ndarray):  # of multi-label data, in JSON Lines or Parquet
        return json.dumps(list(map(str, name)), ensure_ascii=False)
    return os.fsdecode(name) if isinstance(name, bytes) else str(name)


def label_text(label: pd.Series) -> pd.Series:
    """Names in a column as text; those that are missing or empty are :data:`NO_LABEL`."""
    text = label.astype(object).where(label.notna(), NO_LABEL).map(_text)
    # A column of integers with gaps is read, or written, as floats.
    if text[text != NO_LABEL].str.fullmatch(r"\s*(|-?[0-9]+\.0+)\s*").all():
        text = text.str.replace(r"\.0+(?=\s*$)", "", regex=True)
    return text.map(lambda name: composed(name).strip() or NO_LABEL)


def check_columns(table: pd.DataFrame, source: Path) -> pd.DataFrame:
    """Makes the columns that travel with a sample numbers, or texts where they hold names."""
    for column in map(str, table.columns):
        if is_named(column):
            table[column] = label_text(table[column])
        elif column in INTEGER_COLUMNS:
            table[column] = _numbers(table[column], source).fillna(UNKNOWN).astype("int64")
        elif column.startswith("attribute_"):
            table[column] = _numbers(table[column], source, allowed={0, 1}).astype("float32")
    return table


def _numbers(column: pd.Series, source: Path, allowed: set[int] | None = None) -> pd.Series:
    values = pd.to_numeric(column, errors="coerce")
    wrong = ~values.isin(allowed) if allowed else column.notna() & ~(values % 1 == 0)
    if wrong.any():
        row = int(wrong.to_numpy().argmax())
        kind = "0 or 1" if allowed else "an integer"
        raise UserError(
            f"'{source}' column '{column.name}' row {row + 1}: '{column.iloc[row]}' is not {kind}"
        )
    return values


def _check_whole(labels: pd.Series, present: list[str], source: str) -> None:
    """Rejects negative numbers, and measurements: each fraction would become a class."""
    negative = [name for name in present if re.fullmatch("-[0-9]+", name)]
    if negative and all(re.fullmatch("-?[0-9]+", name) for name in present):
        raise UserError(
            f"'{source}' has label {negative[0]}: write {NO_LABEL} for an unknown class"
        )
    labelled = labels != NO_LABEL
    numbers = pd.to_numeric(labels[labelled], errors="coerce")
    broken = np.flatnonzero(labelled)[(np.isfinite(numbers) & (numbers % 1 != 0)).to_numpy()]
    if len(broken) and numbers.notna().all():
        row = int(broken[0])
        raise UserError(
            f"'{source}' row {row + 1}: label {labels.iloc[row]} is a number that is not whole: a "
            "class is a name or a whole number; give names to ranges of a measured value"
        )
