"""Facts about images, gathered by threads and remembered while an image does not change."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterable, Sequence
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
from lightning.pytorch.utilities import rank_zero_only
from rich.console import Console
from rich.progress import track

from ood_lab.common.english import first_of
from ood_lab.common.errors import one_line
from ood_lab.common.file_records import Stamp
from ood_lab.common.files import StrPath, write_table
from ood_lab.data.sources.image_stores import FILES, Store

Facts = dict[str, Any]
_KEY = ["path", *Stamp._fields]
_CHUNK = 64


def file_facts(
    paths: Iterable[str],
    compute: Callable[[str], Facts],
    kind: str,
    cache_dir: StrPath | None = None,
    store: Store = FILES,
) -> pd.DataFrame:
    """Applies ``compute`` to every image, except where its answer is known.

    An answer is known while the path and the stamp of the file there are the same
    (:meth:`Store.stat`).
    Answers with a non-empty ``error`` are not remembered: a disk may have been away for a moment.

    Args:
        paths: addresses; repetitions are computed once.
        compute: returns the same plain-typed keys for every image, and never raises.
        kind: what is computed; names the file in the cache and the progress bar.
        cache_dir: folder of the cache; None = remember nothing.
        store: where the images lie.

    Returns:
        One row a path, in the given order: ``path``, its stamp and the keys of ``compute``.
    """
    wanted = pd.DataFrame({"path": list(paths)})
    stamps = [(path, *store.stat(path)) for path in wanted["path"].drop_duplicates()]
    unique = pd.DataFrame(stamps, columns=_KEY)
    memory = None
    if cache_dir and store.changeless:
        memory = Path(cache_dir) / "files" / f"{kind.replace(' ', '_')}.parquet"
    remembered = _load(memory)
    todo, facts = unique, None
    if remembered is not None:
        merged = unique.merge(remembered, on=_KEY, how="left", indicator=True)
        todo = merged.loc[merged["_merge"] == "left_only", _KEY]
        facts = merged.loc[merged["_merge"] == "both"].drop(columns="_merge")
    if len(todo) or facts is None:
        answers = _in_threads(todo["path"].tolist(), compute, kind, store.threads)
        fresh = pd.concat([todo.reset_index(drop=True), pd.DataFrame(answers)], axis=1)
        if memory is not None and len(todo):
            _save(memory, remembered, fresh)
        facts = fresh if facts is None else pd.concat([facts, fresh])
    if facts["path"].tolist() == wanted["path"].tolist():
        return facts.reset_index(drop=True)
    return wanted.merge(facts, on="path", how="left", validate="many_to_one")


def content_hashes(
    paths: Iterable[str],
    cache_dir: StrPath | None = None,
    store: Store = FILES,
) -> np.ndarray:
    """:meth:`Store.sha256` of every image; ``""`` for one that cannot be read."""
    compute = partial(_hash, read=store.sha256)
    return file_facts(paths, compute, "reading files", cache_dir, store)["sha256"].to_numpy(object)


def stand_ins(paths: Iterable[str], cache_dir: StrPath | None, store: Store) -> list[str]:
    """Size, time and :meth:`Store.ends` of every image: a copy that keeps its time has the same.

    The rest of its stamp would be another on every machine.
    """
    compute = partial(_hash, read=store.ends)
    facts = file_facts(paths, compute, "reading the ends of files", cache_dir, store)
    rows = facts[["bytes", "mtime_ns", "sha256"]].itertuples(index=False, name=None)
    return [f"{size} {time} {ends}" for size, time, ends in rows]


def unreadable(facts: pd.DataFrame, images: str) -> str:
    """Says how many of the ``images`` have an ``error``, and which are the first."""
    bad = facts[facts["error"] != ""].drop_duplicates("path")
    first = first_of([f"'{row.path}' ({row.error})" for row in bad.itertuples()])
    return f"{len(bad):,} of {facts['path'].nunique():,} {images} cannot be read: {first}"


def _hash(path: str, read: Callable[[str], str]) -> Facts:
    try:
        return {"sha256": read(path), "error": ""}
    except Exception as error:  # data sets of others raise anything
        # The path is named by whoever reports it.
        reason = (isinstance(error, OSError) and error.strerror) or one_line(error)
        return {"sha256": "", "error": reason}


def _in_threads(
    paths: Sequence[str], compute: Callable[[str], Facts], kind: str, threads: int | None
) -> list[Facts]:
    """``compute`` of every path, in order, under a progress bar (on a terminal, rank 0)."""
    chunks = [paths[i : i + _CHUNK] for i in range(0, len(paths), _CHUNK)]
    console = Console(stderr=True)
    hidden = not console.is_terminal or rank_zero_only.rank != 0  # type: ignore[attr-defined]
    # PIL and hashlib let go of the interpreter lock while they work.
    with ThreadPoolExecutor(threads or min(32, 2 * (os.cpu_count() or 1))) as pool:
        answers = pool.map(lambda chunk: [compute(path) for path in chunk], chunks)
        bar = track(answers, kind, len(chunks), console=console, transient=True, disable=hidden)
        return [facts for part in bar for facts in part]


def _load(memory: Path | None) -> pd.DataFrame | None:
    if memory is None or not memory.exists():
        return None
    try:
        return pd.read_parquet(memory)
    except (OSError, ValueError):  # cut short by a full disk: as good as absent
        return None


def _save(memory: Path, remembered: pd.DataFrame | None, fresh: pd.DataFrame) -> None:
    """Adds the fresh answers; several processes may do so at once, none sees half a file."""
    table = fresh[fresh["error"] == ""]
    if remembered is not None:
        table = pd.concat([remembered[~remembered["path"].isin(fresh["path"])], table])
    write_table(table, memory)
