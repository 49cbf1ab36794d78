"""Where finished runs lie."""

from __future__ import annotations

import glob
from collections.abc import Sequence
from pathlib import Path

from ood_lab.common.errors import UserError


def finished_runs(
    runs: str | Sequence[str], tables: Sequence[str] = ("results.parquet",)
) -> list[Path]:
    """Folders with ``DONE`` and one of ``tables`` among what the globs match, or below it.

    Raises:
        UserError: there is none, or a pattern matches nothing.
    """
    patterns = [runs] if isinstance(runs, str) else list(runs)
    found: set[Path] = set()
    for pattern in patterns:
        matches = sorted(Path(p) for p in glob.glob(pattern, recursive=True) if Path(p).is_dir())
        if not matches:
            raise UserError(f"task.runs={pattern} matches no folder: name run folders or a parent")
        searched: set[Path] = set()
        for match in matches:
            # `**` matches every folder below the first one as well.
            if not searched.intersection(match.parents):
                searched.add(match)
                found |= {done.parent for done in match.rglob("DONE")}
    whole = sorted(path for path in found if any((path / table).exists() for table in tables))
    if not whole:
        raise UserError(
            f"task.runs={', '.join(patterns)} contains no finished run (DONE and "
            f"{' or '.join(tables)}): name folders written by train.py or eval.py"
        )
    return whole
