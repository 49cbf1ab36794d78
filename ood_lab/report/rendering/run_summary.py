"""What a run shows in the terminal when it ends, and when it is run again."""

from __future__ import annotations

import logging
from collections.abc import Callable, Mapping
from pathlib import Path

import pandas as pd

from ood_lab.report.detection.detection_page import detection_blocks
from ood_lab.report.rendering.blocks import Text
from ood_lab.report.rendering.metric_definitions import finding_sentences, percent
from ood_lab.report.rendering.page import SUMMARY, read_summary, write_summary
from ood_lab.report.rendering.table import Head, Table, count_cell, estimate_cell, name_cell
from ood_lab.report.rendering.terminal import print_blocks
from ood_lab.report.results_lookup import RunView
from ood_lab.schema.results import RESULTS, read_results
from ood_lab.schema.run_record import RunRecord

log = logging.getLogger(__name__)
#: Skipped detectors whose reasons a terminal shows.
_REASONS = 3


def show(view: RunView, folder: Path, every: bool = False) -> None:
    """Prints the verdict of a run that scored detectors, and keeps it to be shown again.

    ``every``: before it all tables, with a row for each of many detectors.
    """
    blocks = detection_blocks(view, every)
    if not every:
        blocks = [block for block in blocks if isinstance(block, Text)]
        blocks += [Text(sentence, "note") for sentence in _skipped(view.refused)]
    blocks += view.verdict.blocks() if view.verdict else []
    write_summary(blocks, folder, "detection")
    show_warnings(view.record)
    print_blocks(blocks)


def _skipped(reasons: Mapping[str, str]) -> list[str]:
    """Why detectors were skipped; of many the names, as the report has the reasons."""
    if len(reasons) > _REASONS:
        return [f"Skipped, with the reasons in the report: {', '.join(reasons)}."]
    return [f"skipped {name}: {reason}" for name, reason in reasons.items()]


def show_accuracies(
    results: pd.DataFrame, title: str, folder: Path, show: Callable[[float], str] = percent
) -> None:
    """Prints what a model that was trained or measured gets right, and keeps it.

    Args:
        results: a results table of :data:`~ood_lab.schema.results.ACCURACY`.
        title: of the table.
        folder: of the run.
        show: value → text.
    """
    rows = []
    for row in results.to_dict("records"):
        name = name_cell(str(row["metric"]).replace("_", " "))
        rows.append([name, estimate_cell(row, show), count_cell(float(row["n"]))])
    heads = [Head("metric", "ascending"), Head("value"), Head("n")]
    known = 3 if results["n"].notna().any() else 2
    blocks = [Table(title, heads[:known], [row[:known] for row in rows], spreads=True)]
    write_summary(blocks, folder, "accuracies")
    print_blocks(blocks)


def show_warnings(record: RunRecord) -> None:
    """Says what to know before a number of the run is believed."""
    for warning in record.warnings:
        log.warning(warning)


def show_run(folder: Path) -> None:
    """Prints the tables of a finished run.

    Raises:
        UserError: its results are damaged.
    """
    record = RunRecord.read(folder)
    if (folder / RESULTS).exists():
        read_results(folder)  # whole
    if (folder / SUMMARY).exists():
        show_warnings(record)
        print_blocks(read_summary(folder))
        return
    for sentence in finding_sentences(record.findings):
        log.warning(sentence)
