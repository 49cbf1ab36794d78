"""Files of a run folder: written whole or not at all, and read back with a check.

Tables and settings are read again by later commands. What a full disk or a crash has cut short, or
what has lost some of its bytes, is one error that names the file, never other numbers.
"""

from __future__ import annotations

import errno
import fcntl
import json
import logging
import os
import shutil
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from importlib.resources import files
from pathlib import Path
from typing import IO, Any, TypeVar

import pandas as pd
import yaml

from ood_lab.common.errors import UserError, one_line

StrPath = str | os.PathLike[str]
_Content = TypeVar("_Content")
#: ``errno`` of a disk, or a quota, that is full.
DISK_FULL = (errno.ENOSPC, errno.EDQUOT)
#: The parser in C where PyYAML has it: the configuration of a run has hundreds of lines.
YAML_LOADER = yaml.CSafeLoader if yaml.__with_libyaml__ else yaml.SafeLoader


def packaged_table(package: str, name: str) -> Any:
    """What a YAML file of a package holds, see ``__package__``."""
    return yaml.load(files(package).joinpath(name).read_text(encoding="utf-8"), YAML_LOADER)


def absolute(path: StrPath) -> str:
    """The path from the root; a leading ``~`` is the user's home."""
    return os.path.abspath(os.path.expanduser(path))


def require_space(folder: Path, needed: int, what: str) -> None:
    """Raises before work whose files the disk cannot hold.

    Raises:
        UserError: fewer than ``needed`` bytes are free on the disk of ``folder``.
    """
    existing = next(path for path in (folder, *folder.absolute().parents) if path.exists())
    free = shutil.disk_usage(existing).free
    if needed > free:
        raise UserError(
            f"{what} needs {needed:,} bytes under '{folder}' but {free:,} are free: make "
            "room, and the same command resumes; or choose another folder"
        )


@contextmanager
def replaced(path: Path | str) -> Iterator[Path]:
    """A path to write to, which becomes ``path`` once it is complete.

    Folders are made as needed. Several processes may write the same file: the last one stays.
    """
    target = Path(path)
    target.parent.mkdir(parents=True, exist_ok=True)
    temporary = target.with_name(f".{os.getpid()}.{target.name}")  # the ending tells the format
    try:
        yield temporary
        os.replace(temporary, target)
    except OSError as error:
        error.filename = error.filename or str(target)  # a failed write names no file
        raise
    finally:
        temporary.unlink(missing_ok=True)


def share(path: Path | str) -> None:
    """Gives a file or folder the rights that any new one gets: the umask says who may read it.

    Temporary files, and those of safetensors, are readable only by their owner.
    """
    mask = os.umask(0)
    os.umask(mask)
    os.chmod(path, (0o777 if os.path.isdir(path) else 0o666) & ~mask)


def write_table(table: pd.DataFrame, path: Path | str) -> None:
    """Writes Parquet, with a checksum of every page."""
    with replaced(path) as file:
        table.to_parquet(file, index=False, write_page_checksum=True)


def write_csv(table: pd.DataFrame, path: Path) -> None:
    """Writes CSV."""
    with replaced(path) as file:
        table.to_csv(file, index=False)


def write_text(text: str, path: Path) -> None:
    """Writes a text file."""
    with replaced(path) as file:
        file.write_text(text, encoding="utf-8")


def read_table(path: Path, **options: Any) -> pd.DataFrame:
    """Reads Parquet (and compares its checksums) or CSV, by the name's ending.

    Args:
        path: the file.
        options: of :func:`pandas.read_csv`.

    Raises:
        UserError: the file is missing or damaged.
    """
    if path.suffix == ".csv":
        return _read(path, lambda: pd.read_csv(path, **options))
    return _read(path, lambda: pd.read_parquet(path, page_checksum_verification=True))


def read_texts(path: Path, columns: Sequence[str], named: str = "", hint: str = "") -> pd.DataFrame:
    """Reads a CSV as text, empty cells as empty texts.

    Args:
        path: the file.
        columns: that it must have.
        named: what messages call it; empty = its path.
        hint: the end of the message where a column is missing.

    Raises:
        UserError: the file is missing or damaged, or has no such column.
    """
    table = read_table(path, dtype=str, keep_default_na=False)
    if missing := [name for name in columns if name not in table]:
        raise UserError(f"{named or path} has no column '{missing[0]}'{hint}")
    return table


def read_json(path: Path) -> dict[str, Any]:
    """Reads a JSON object.

    Raises:
        UserError: the file is missing or damaged.
    """
    return _read(path, lambda: _mapping(json.loads(path.read_text(encoding="utf-8"))))


def read_config(run: Path) -> dict[str, Any]:
    """The configuration of a run folder, from its ``config.yaml``.

    YAML that was cut between two lines is still YAML. ``paths`` comes after everything that
    can change a number, so a file that has it is whole.

    Raises:
        UserError: the folder has no ``config.yaml``, or a damaged one.
    """
    path = run / "config.yaml"
    if not run.is_dir():
        raise UserError(f"{run} is not a run folder (outputs/<name>/<hash>/seed=<s>)")
    if not path.is_file():
        raise UserError(
            f"{run} has no config.yaml, so it does not say what was trained, and on which data: "
            "name a whole run folder (outputs/<name>/<hash>/seed=<s>)"
        )

    def whole() -> dict[str, Any]:
        config = _mapping(yaml.load(path.read_text(encoding="utf-8"), YAML_LOADER))
        if "paths" not in config:
            raise ValueError("it is cut short")
        return config

    return _read(path, whole)


def _mapping(content: Any) -> dict[str, Any]:
    if not isinstance(content, dict):
        raise ValueError(f"it holds a {type(content).__name__} where settings were expected")
    return {str(key): value for key, value in content.items()}


def _read(path: Path, read: Callable[[], _Content]) -> _Content:
    """What ``read`` returns; the readers fail in many ways on a damaged file."""
    try:
        return read()
    except FileNotFoundError as error:
        raise UserError(f"{path} is missing: the run in this folder is not complete") from error
    except Exception as error:
        reason = one_line(error)[:200]
        raise UserError(
            f"{path} is damaged ({reason}): repeat that run with force=true, or remove it"
        ) from error


log = logging.getLogger(__name__)


def try_lock(file: IO[Any]) -> bool:
    """Takes the exclusive lock of an open file; False when another process has it."""
    try:
        fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        return False
    return True


def lock(file: IO[Any], waiting: str) -> None:
    """Takes the exclusive lock of an open file; logs ``waiting`` while another process has it."""
    if not try_lock(file):
        log.info("%s", waiting)
        fcntl.flock(file, fcntl.LOCK_EX)
