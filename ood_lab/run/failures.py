"""Jobs of a sweep that failed: printed when it happens, and kept with how to repeat them."""

from __future__ import annotations

import csv
import io
import logging
import time
import traceback
from collections.abc import Sequence
from pathlib import Path

from ood_lab.append import append_lines, create_with

log = logging.getLogger(__name__)
COLUMNS = ("time", "overrides", "folder", "error", "traceback")


def record_failure(
    file: Path, overrides: Sequence[str], folder: Path | None, error: Exception
) -> None:
    """Appends one row to ``failures.csv``; parallel jobs take turns.

    Args:
        file: the CSV, made with its header if missing.
        overrides: the command line that repeats this job alone.
        folder: the run folder of the job; None where it did not come so far.
        error: what ended it.
    """
    line = " ".join(str(error).split())
    log.error("this job failed, the others go on: %s", line)
    log.error("its overrides: %s", " ".join(overrides))
    trace = "".join(traceback.format_exception(error))
    row = (
        time.strftime("%Y-%m-%dT%H:%M:%S%z"),
        " ".join(overrides),
        str(folder or ""),
        line,
        trace,
    )
    create_with(file, _csv_line(COLUMNS) + "\n")
    append_lines(file, [_csv_line(row)])


def _csv_line(cells: Sequence[str]) -> str:
    line = io.StringIO()
    csv.writer(line, lineterminator="").writerow(cells)
    return line.getvalue()
