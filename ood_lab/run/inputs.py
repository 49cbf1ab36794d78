"""The files a run was made from, noted in its folder, and what of them has changed since.

A look at names, sizes and times tells that nothing has changed, which is what a finished run that
is shown again has to be sure of. Where they differ, contents decide: of a single file its sha256,
of the data the identities of its sets.
"""

from __future__ import annotations

import csv
import hashlib
import logging
import os
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pandas as pd

from ood_lab.io import read_table, write_table
from ood_lab.run import checkpoints
from ood_lab.run.folder import RunFolder
from ood_lab.run.identity import leaves, telling

if TYPE_CHECKING:
    from ood_lab.data.datamodule import OODDataModule

log = logging.getLogger(__name__)

FILE = "inputs.parquet"
#: Key of the images that the sets list, wherever they lie.
IMAGES = "data.images"
#: Key of the row whose ``sha256`` says by which code; generated data has no files to look at.
CODE = "code"
#: Before the name of a set, in rows whose ``sha256`` is its identity.
SET = "data.identity."
#: What a look at a file tells, contents not read.
_ENTRY = ("path", "bytes", "mtime_ns")
#: Settings that are names even where a folder is called like them.
_NAMES = ("name", "_target_")
#: Of a run folder that is named, what other runs read of it.
_WEIGHTS = ("checkpoints", "laid", "clip")


def changes_of(
    run: RunFolder, settings: Mapping[str, Any], code: str, data: Callable[[], OODDataModule]
) -> list[str]:
    """What a run folder was made from and is no longer the same, in words.

    Empty where nothing was made yet, and where what it was made from is gone: its results can then
    be neither checked nor made again.

    Args:
        run: the folder.
        settings: the resolved configuration of the run.
        code: version and commit of this package.
        data: returns the DataModule, which is set up here where files alone do not tell.

    Raises:
        UserError: the note of it is damaged, or the data has become unusable.
    """
    if not (run.path / FILE).exists():
        return ["nothing says what it was made from"] * run.done
    named = _named_paths(settings, run.path)
    noted = read_table(run.path / FILE)
    now = _look(named, _listed_images(run.path))
    suspects, others = _compare(noted, now, named, code)
    sets = _changed_sets(noted, suspects, run.path, data) if suspects else []
    return [f"{key}={named[key]}" for key in others] + sets


def note(
    folder: Path, settings: Mapping[str, Any], code: str, identities: Mapping[str, str]
) -> None:
    """Writes down what a run is made from, in its folder, which holds the lists of its sets.

    The identities are those of its sets; none where it has not read any.
    """
    named = _named_paths(settings, folder)
    table = _look(named, _listed_images(folder) if identities else ())
    single = table["key"].map(lambda key: _decides_alone(key, named)).astype(bool)
    entries = table.loc[single, list(_ENTRY)].itertuples(index=False, name=None)
    table.loc[single, "sha256"] = [_sha256(*entry) for entry in entries]
    facts = {CODE: code} | {f"{SET}{name}": identity for name, identity in identities.items()}
    rows = [(key, "", 0, 0, fact) for key, fact in facts.items()]
    write_table(pd.concat([table, pd.DataFrame(rows, columns=table.columns)]), folder / FILE)


def _named_paths(settings: Mapping[str, Any], folder: Path) -> dict[str, Path]:
    """Files and folders that the hashed settings name, by key; the data's begin with ``data.``.

    What the run folder lies in is where results go, and not what they are made from.
    """
    ckpt = settings.get("ckpt")
    found = {"ckpt": checkpoints.weights_file(Path(ckpt))} if ckpt else {}
    above = folder.absolute().parents
    for key, value in leaves(telling(settings)):
        if not isinstance(value, str) or not value or key == "ckpt":
            continue
        path = Path(value.removeprefix("local-dir:"))
        name = key.rpartition(".")[2] in _NAMES and not value.startswith("local-dir:")
        if not name and os.path.exists(path) and path.absolute() not in above:
            found[key] = path
    return found


def _look(named: Mapping[str, Path], images: Iterable[str]) -> pd.DataFrame:
    """``key, path, bytes, mtime_ns, sha256`` of every file, contents not read."""
    rows = [(key, str(file)) for key, path in named.items() for file in _files(path)]
    seen = {path for _, path in rows}
    rows += [(IMAGES, path) for path in dict.fromkeys(images) if path not in seen]
    facts = [(key, path, *_entry(path), "") for key, path in rows]
    return pd.DataFrame(facts, columns=["key", *_ENTRY, "sha256"])


def _listed_images(run: Path) -> Iterator[str]:
    """Paths of the images, and masks, in the lists of sets that a run folder keeps."""
    for file in sorted((run / "splits").glob("*.csv")):
        with file.open(newline="", encoding="utf-8") as lines:
            for row in csv.DictReader(lines):
                yield from (row[k] for k in ("path", "mask") if os.path.isabs(row.get(k) or ""))


def _compare(
    before: pd.DataFrame, now: pd.DataFrame, named: Mapping[str, Path], code: str
) -> tuple[list[str], list[str]]:
    """What has changed since :func:`note`; what is gone has not: what was made from it stands.

    Returns:
        What may have changed the data, which has to be built to know: files, or the code; and the
        keys of other files, whose content has changed.
    """
    files = before[before["path"] != ""]
    generated = not files["key"].str.startswith("data.").any()
    other_code = before.loc[before["key"] == CODE, "sha256"].item() != code
    data, others = ["other code"] * (generated and other_code), []
    for key in map(str, files["key"].unique()):
        noted, found = files[files["key"] == key], now[now["key"] == key]
        if _decides_alone(key, named):
            others += [key] * _differs(noted.iloc[0], found.iloc[0])
        elif key.startswith("data."):
            data += _changed_files(noted, found)
        elif found.empty:
            log.warning("%s, which this run was made from, is no longer there", key)
        elif _changed_files(noted, found):
            others.append(key)
    return list(dict.fromkeys(data)), others


def _changed_sets(
    before: pd.DataFrame,
    suspects: Sequence[str],
    run: Path,
    build: Callable[[], OODDataModule],
) -> list[str]:
    """Sets whose identity is not the noted one, with the first files that made them suspect."""
    sets = before[before["key"].str.startswith(SET)]
    noted = dict(zip(sets["key"].str.removeprefix(SET), sets["sha256"], strict=True))
    if not noted:
        return []
    data = build()
    if gone := [str(path) for path in data.sources.values() if not path.exists()]:
        log.warning("the data of %s cannot be compared: %s is no longer there", run, gone[0])
        return []
    data.setup()
    splits = data.splits
    changed = [n for n in noted if n not in splits or splits[n].identity != noted[n]]
    more = f" and {len(suspects) - 3} more" if len(suspects) > 3 else ""
    return [f"data {', '.join(changed)} ({', '.join(suspects[:3])}{more})"] if changed else []


def _decides_alone(key: str, named: Mapping[str, Path]) -> bool:
    """Whether the content of this one file counts; levels are not part of a set's identity."""
    own = not key.startswith("data.") or key == "data.levels"
    return own and key in named and named[key].is_file()


def _differs(noted: pd.Series, found: pd.Series) -> bool:
    before, now = (tuple(row[list(_ENTRY)]) for row in (noted, found))
    return before != now and bool(noted["sha256"] != _sha256(*now))


def _changed_files(noted: pd.DataFrame, found: pd.DataFrame) -> list[str]:
    """Files that were added, removed or written again."""
    both = pd.concat([noted, found]).drop_duplicates(list(_ENTRY), keep=False)
    return list(both["path"].unique())


def _files(path: Path) -> Iterator[Path]:
    """The file, or all files below the folder; of a run folder, its weights alone."""
    path = path.absolute()
    if path.is_file():
        yield path
        return
    whole = not (path / "config.yaml").exists()
    for place in [path] if whole else [path / name for name in _WEIGHTS]:
        for folder, folders, names in os.walk(place):
            folders.sort()
            yield from (Path(folder, name) for name in sorted(names))


def _entry(path: str) -> tuple[int, int]:
    try:
        found = os.stat(path)
    except OSError:
        return -1, -1
    return found.st_size, found.st_mtime_ns


@cache
def _sha256(path: str, size: int, mtime_ns: int) -> str:
    """Of a file; its size and time are what makes the answer stay right."""
    with open(path, "rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()
