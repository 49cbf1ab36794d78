"""A finished run, read back from its folder: the one reader of what runs leave."""

from __future__ import annotations

import glob
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any

import pandas as pd

from ood_lab.common.errors import UserError
from ood_lab.common.file_records import damaged
from ood_lab.common.files import read_config, read_table
from ood_lab.schema.results import RESULTS, read_results
from ood_lab.schema.run_record import RunRecord

#: The single answers of a benchmark of questions.
JUDGED = "judged.parquet"


@dataclass(frozen=True)
class FinishedRun:
    """One run folder ``<name>/<config hash>/seed=<s>``; a part is read when it is first used.

    Reading a part that is missing, damaged or not of the declared form raises a UserError that
    names its file.

    Attributes:
        folder: of the run.
    """

    folder: Path

    def __str__(self) -> str:
        """The folder, as messages name a run."""
        return str(self.folder)

    @property
    def done(self) -> bool:
        """True once the run has finished."""
        return (self.folder / "DONE").exists()

    @property
    def label(self) -> str:
        """``<name>/<config hash>/seed=<s>``, by which a run is known elsewhere."""
        return "/".join(self.folder.absolute().parts[-3:])

    @property
    def name(self) -> str:
        """``<name>`` of the folder."""
        return self.folder.absolute().parents[1].name

    @cached_property
    def record(self) -> RunRecord:
        """How its numbers came about."""
        return RunRecord.read(self.folder)

    @cached_property
    def config(self) -> dict[str, Any]:
        """Its configuration."""
        return read_config(self.folder)

    @cached_property
    def results(self) -> pd.DataFrame:
        """Its results table."""
        return read_results(self.folder)

    @cached_property
    def judged(self) -> pd.DataFrame:
        """The single answers of a benchmark of questions."""
        return read_table(self.folder / JUDGED)

    def has(self, *files: str) -> bool:
        """Whether the folder has all of these files."""
        return all((self.folder / file).is_file() for file in files)

    def check(self) -> None:
        """Compares its files with the sizes and hashes of the record.

        Raises:
            UserError: a file is missing, cut short or changed.
        """
        if damage := next(damaged(self.folder, self.record.files), None):
            raise UserError(f"{damage}: restore it, or repeat that run with force=true")


def finished_runs(runs: str | Sequence[str]) -> list[FinishedRun]:
    """The folders with ``DONE`` and results among what the globs match, or below it.

    Raises:
        UserError: there is none, or a pattern matches nothing.
    """
    patterns = [runs] if isinstance(runs, str) else list(runs)
    finished: set[Path] = set()
    for pattern in patterns:
        matches = {Path(p) for p in glob.glob(pattern, recursive=True) if Path(p).is_dir()}
        if not matches:
            raise UserError(f"task.runs={pattern} matches no folder: name run folders or a parent")
        for match in matches:
            # `**` matches every folder below the first one as well.
            if not matches.intersection(match.parents):
                finished |= {file.parent for file in match.rglob("DONE")}
    complete = [run for run in map(FinishedRun, sorted(finished)) if run.has(RESULTS)]
    if not complete:
        raise UserError(
            f"task.runs={', '.join(patterns)} contains no finished run (DONE and "
            f"{RESULTS}): name folders written by train.py or eval.py"
        )
    return complete
