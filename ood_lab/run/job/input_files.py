"""The files a run was made from, recorded in its folder, and which have changed since.

If names and stamps are the same, nothing has changed, and a finished run can be shown again.
Where they differ, contents decide: the SHA-256 of a single file, the identities of the data's sets.
"""

from __future__ import annotations

import csv
import logging
import os
import re
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING

import pandas as pd

from ood_lab.common.arguments import Settings
from ood_lab.common.english import first_of
from ood_lab.common.file_records import Stamp, ends_sha256, file_sha256, stamp
from ood_lab.common.files import read_table, write_table
from ood_lab.common.grouping import distinct
from ood_lab.common.installed_packages import target_sources
from ood_lab.run.building import checkpoints
from ood_lab.run.commandline.composition import leaves
from ood_lab.run.job.run_directory import RunFolder
from ood_lab.run.job.run_identity import telling

if TYPE_CHECKING:
    from ood_lab.data.datamodules.base import OODDataModule

log = logging.getLogger(__name__)

FILE = "inputs.parquet"
#: Key of the images that the sets list, wherever they are.
IMAGES = "data.images"
#: Key of the row whose ``sha256`` names the code version; generated data has no files to check.
CODE = "code"
#: Prefix of a set's name, in rows whose ``sha256`` is its identity.
SET = "data.identity."
#: What can be told about a file without reading its contents.
_ENTRY = ("path", *Stamp._fields)
#: Settings that are names even if a folder happens to be called the same.
_NAMES = ("name", "_target_")
#: Folders beside the code of a network that change without it.
_NO_INPUT = ("__pycache__", ".git")
#: The parts of a run folder that other runs read: weights, and answers they are compared with.
_READ = ("checkpoints", "laid", "clip", "judged.parquet")


def changes_of(
    run: RunFolder, settings: Settings, code: str, data: Callable[[], OODDataModule]
) -> list[str]:
    """Descriptions of everything that has changed since the run folder was made from it.

    Empty if nothing has been made yet, and if what it was made from is gone: its results can then
    be neither checked nor reproduced.

    Args:
        run: the folder.
        settings: the resolved configuration of the run.
        code: version and commit of this package.
        data: returns the DataModule, which is set up here if the files are not enough.

    Raises:
        UserError: the record of the inputs is damaged, or the data has become unusable.
    """
    if not (run.path / FILE).exists():
        return ["nothing says what it was made from"] * run.done
    named = _named_paths(settings, run.path)
    noted = read_table(run.path / FILE)
    now = _look(named, _listed_images(run.path))
    suspects, others = _compare(noted, now, named, code)
    sets = _changed_sets(noted, suspects, run.path, data) if suspects else []
    return [f"{key}={named[key]}" for key in others] + sets


def note(folder: Path, settings: Settings, code: str, identities: Mapping[str, str]) -> None:
    """Records what a run is made from in its folder, which holds the lists of its sets.

    The identities are those of its sets; empty if it has read none.
    """
    named = _named_paths(settings, folder)
    table = _look(named, _listed_images(folder) if identities else ())
    single = table["key"].map(lambda key: _decides_alone(key, named)).astype(bool)
    entries = table.loc[single, list(_ENTRY)].itertuples(index=False, name=None)
    table.loc[single, "sha256"] = [_sha256(*entry) for entry in entries]
    facts = {CODE: code} | {f"{SET}{name}": identity for name, identity in identities.items()}
    rows = [(key, "", 0, 0, 0, fact) for key, fact in facts.items()]
    write_table(pd.concat([table, pd.DataFrame(rows, columns=table.columns)]), folder / FILE)


def files_of_training(settings: Settings, folder: Path) -> list[tuple[str, ...]]:
    """Key, name and content of the files that the settings name outside of the data.

    Of a single file the SHA-256 is its content; of the files of a folder, size, time and ends.
    """
    named = {
        k: p for k, p in _named_paths(settings, folder).items() if k.partition(".")[0] != "data"
    }
    rows = _look(named, ()).itertuples(index=False, name=None)
    return [
        (key, Path(path).name, _sha256(path, *entry))
        if _decides_alone(key, named)
        else (key, path, *map(str, entry[:2]), ends_sha256(path) if entry[0] >= 0 else "")
        for key, path, *entry, _ in rows
    ]


def training_images(run: Path) -> tuple[str, list[str]] | None:
    """Identity and addresses of the images that a run was trained on; None without a record."""
    file = run / "splits" / "train.csv"
    if not (file.exists() and (run / FILE).exists()):
        return None
    noted = read_table(run / FILE)
    identity = noted.loc[noted["key"] == f"{SET}train", "sha256"]
    paths = pd.read_csv(file, usecols=["path"], dtype=str)["path"]
    return ("" if identity.empty else str(identity.iloc[0])), paths.tolist()


def _named_paths(settings: Settings, folder: Path) -> dict[str, Path]:
    """Files and folders that the hashed settings name, by key; keys of the data start ``data.``.

    Of a ``_target_`` that is no library's, the files of its code. Folders that contain the run
    folder are where results go, not what they are made from.
    """
    ckpt = settings.get("ckpt")
    found = {"ckpt": checkpoints.weights_file(Path(ckpt))} if ckpt else {}
    above = folder.absolute().parents
    for key, value in leaves(telling(settings)):
        if not isinstance(value, str) or not value or key == "ckpt":
            continue
        if key.endswith("_target_"):
            sources = target_sources(value)
            found |= {f"{key} ({module})": file for module, file in sources.items()}
        path = Path(value.removeprefix("local-dir:"))
        name = key.rpartition(".")[2] in _NAMES and not value.startswith("local-dir:")
        if not name and os.path.exists(path) and path.absolute() not in above:
            found[key] = path
    return found


def _look(named: Mapping[str, Path], images: Iterable[str]) -> pd.DataFrame:
    """``key, path``, stamp and ``sha256`` of every file, without reading its contents."""
    rows = [(key, str(file)) for key, path in named.items() for file in _files(path)]
    seen = {path for _, path in rows}
    rows += [(IMAGES, path) for path in dict.fromkeys(images) if path not in seen]
    facts = [(key, path, *stamp(path), "") for key, path in rows]
    return pd.DataFrame(facts, columns=["key", *_ENTRY, "sha256"])


def _listed_images(run: Path) -> Iterator[str]:
    """Paths of the images, and masks, in the lists of sets that a run folder keeps."""
    for file in sorted((run / "splits").glob("*.csv")):
        with file.open(newline="", encoding="utf-8") as lines:
            for row in csv.DictReader(lines):
                named = (row[k] for k in ("path", "mask") if os.path.isabs(row.get(k) or ""))
                # Of an image in a shard, the shard.
                yield from (re.sub(r"\.tar#.*", ".tar", path, flags=re.DOTALL) for path in named)


def _compare(
    before: pd.DataFrame, now: pd.DataFrame, named: Mapping[str, Path], code: str
) -> tuple[list[str], list[str]]:
    """Finds what has changed since :func:`note`; a file that is gone does not count as changed.

    Returns:
        Files, or the code, that may have changed the data (only building it can tell); and the
        keys of other files whose content has changed.
    """
    files = before[before["path"] != ""]
    generated = not files["key"].str.startswith("data.").any()
    other_code = before.loc[before["key"] == CODE, "sha256"].item() != code
    data, others = ["other code"] * (generated and other_code), []
    both = pd.concat([files, now[now["key"].isin(files["key"])]])
    # Rows of files that were added, removed or rewritten: the noted ones come first.
    changed = both.drop_duplicates(["key", *_ENTRY], keep=False)
    for key, rows in ((str(k), rows) for k, rows in changed.groupby("key", sort=False)):
        if _decides_alone(key, named):
            content = _sha256(*rows[list(_ENTRY)].iloc[-1])
            others += [key] * (rows["sha256"].iloc[0] != content)
        elif key.startswith("data."):
            data += list(rows["path"])
        elif key not in set(now["key"]):
            log.warning("%s, which this run was made from, is no longer there", key)
        else:
            others.append(key)
    return distinct(data), others


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
    return [f"data {', '.join(changed)} ({first_of(suspects)})"] if changed else []


def _decides_alone(key: str, named: Mapping[str, Path]) -> bool:
    """True if this is a single file whose content counts, as no set's identity covers it."""
    own = not key.startswith("data.") or key == "data.levels"
    return own and key in named and named[key].is_file()


def _files(path: Path) -> Iterator[Path]:
    """The file, or all files below the folder; of a run folder, what other runs read of it."""
    path = path.absolute()
    whole = not (path / "config.yaml").exists()
    for place in [path] if whole else [path / name for name in _READ]:
        if place.is_file():
            yield place
        for folder, folders, names in os.walk(place):
            folders[:] = sorted(set(folders) - set(_NO_INPUT))
            yield from (Path(folder, name) for name in sorted(names))


@cache
def _sha256(path: str, *_: int) -> str:
    """SHA-256 of a file, cached by path and stamp so that a rewritten file is read again."""
    return file_sha256(path)
