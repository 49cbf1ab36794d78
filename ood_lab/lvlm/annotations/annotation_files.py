"""Files of annotations and images, checked before any work."""

from __future__ import annotations

import os
from collections import defaultdict
from collections.abc import Callable, Sequence
from operator import attrgetter
from pathlib import Path
from typing import Any, TypeVar

import pandas as pd

from ood_lab.common.errors import UserError
from ood_lab.common.files import StrPath, packaged_table
from ood_lab.common.hints import missing_path
from ood_lab.common.installed_packages import need
from ood_lab.common.unicode_names import remark

T = TypeVar("T")
#: The labels of data sets that OODBench keeps, in its words or by group, and those it leaves out.
LABELS = packaged_table(__package__, "labels.yaml")


def absolute(path: StrPath) -> Path:
    """The path from the root, ``~`` expanded."""
    return Path(os.path.abspath(Path(path).expanduser()))


def read_json(file: Path, kind: type[T], name: str, hint: str = "") -> T:
    """Reads a JSON file into dataclasses; fields that they lack are skipped unread.

    COCO's 450 MB of training instances are mostly outlines that are not needed: they never
    become Python objects.

    Args:
        file: to be read.
        kind: a dataclass, or a list of one.
        name: what the file should be, for messages (``COCO instances``).
        hint: what else to say about a file of another format.

    Raises:
        UserError: the file is missing, not JSON, cut short, or of another format.
    """
    return _decoded(file, name, hint, lambda json: json.Decoder(kind).decode)


def read_json_lines(file: Path, kind: type[T], name: str) -> list[T]:
    """The same of a file with one object a line."""
    return _decoded(file, name, "", lambda json: json.Decoder(kind).decode_lines)


def _decoded(file: Path, name: str, hint: str, reader: Callable[[Any], Callable[[bytes], T]]) -> T:
    need("msgspec", "lvlm", f"reading {name}")
    import msgspec

    if not file.is_file():
        raise missing_path(file) if not file.exists() else UserError(f"'{file}' is not a file")
    try:
        return reader(msgspec.json)(file.read_bytes())
    except msgspec.ValidationError as error:
        more = f"; {hint}" if hint else ""
        raise UserError(f"'{file}' is not {name}: {_plain(error)}{more}") from error
    except msgspec.DecodeError as error:
        cut = "truncated" in str(error)
        what = "ends in the middle" if cut else f"is not valid JSON ({_plain(error)})"
        raise UserError(f"'{file}' {what}: download the file again") from error
    except OSError as error:
        raise UserError(f"'{file}' cannot be read: {error.strerror}") from error


def _plain(error: Exception) -> str:
    text = str(error).replace("`", "'")
    return text[:1].lower() + text[1:]


def check_folder(folder: Path, key: str) -> None:
    """Rejects a folder that is none.

    Raises:
        UserError: it does not exist, or is a file.
    """
    if not folder.exists():
        raise missing_path(folder)
    if not folder.is_dir():
        raise UserError(f"'{folder}' is a file; {key} is the folder that holds the images")


def check_images(root: Path, files: Sequence[str], key: str) -> None:
    """Rejects annotations of images that are not there; reads each folder once.

    Args:
        root: folder that ``files`` start from.
        files: relative paths.
        key: configuration key of the root, for the remedy.

    Raises:
        UserError: a file is missing, with the sub-folder that has it, if one does.
    """
    check_folder(root, key)
    wanted: dict[str, set[str]] = defaultdict(set)
    for file in files:
        folder, name = os.path.split(file)
        wanted[folder].add(name)
    missing = []
    for folder, names in wanted.items():
        missing += [os.path.join(folder, name) for name in names - _names(root / folder)]
    if not missing:
        return
    first = min(missing)
    home = next((p.parent for p in sorted(root.glob(f"*/{os.path.basename(first)}"))), None)
    remedy = f"it is in '{home}': {key}={home}" if home else f"give their folder: {key}=DIR"
    count = f"{len(missing):,} of {len(files):,} images are"
    remedy += remark(str(root / first))
    raise UserError(f"{count} not in '{root}', '{first}' for one; {remedy}")


def _names(folder: Path) -> set[str]:
    try:
        with os.scandir(folder) as entries:
            return {entry.name for entry in entries if entry.is_file()}
    except (FileNotFoundError, NotADirectoryError):
        return set()


def frame_of(records: Sequence[Any], *names: str) -> pd.DataFrame:
    """Records as a table, with two or more of their fields as columns."""
    return pd.DataFrame.from_records([*map(attrgetter(*names), records)], columns=names)
