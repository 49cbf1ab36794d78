"""What a run shows in the terminal when it ends, and when it is run again."""

from __future__ import annotations

import logging
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import pandas as pd

from ood_lab.common.files import read_json
from ood_lab.report.detection.detection_page import detection_blocks
from ood_lab.report.rendering.blocks import Text
from ood_lab.report.rendering.metric_definitions import finding_sentences, percent
from ood_lab.report.rendering.page import SUMMARY, read_summary, write_summary
from ood_lab.report.rendering.table import Head, Table, count_cell, estimate_cell, name_cell
from ood_lab.report.rendering.terminal import print_blocks
from ood_lab.report.verdict import Verdict
from ood_lab.schema.results import RESULTS, read_results

log = logging.getLogger(__name__)
#: Skipped detectors whose reasons a terminal shows.
_REASONS = 3


def show(
    results: pd.DataFrame,
    manifest: Mapping[str, Any],
    best: pd.DataFrame | None,
    folder: Path,
    verdict: Verdict,
    every: bool = False,
) -> None:
    """Prints the verdict of a run that scored detectors, and keeps it to be shown again.

    ``every``: before it all tables, with a row for each of many detectors.
    """
    blocks = detection_blocks(
        results,
        fpr95_positive=manifest["fpr95_positive"],
        significance=best,
        reads=reads_of(manifest),
        refused=manifest["refused"],
        title=manifest["title"],
        findings=manifest.get("findings", ()),
        every=every,
        verdict=verdict,
    )
    if not every:
        blocks = [block for block in blocks if isinstance(block, Text)]
        blocks += [Text(sentence, "note") for sentence in _skipped(manifest["refused"])]
    blocks += verdict.blocks()
    write_summary(blocks, folder, "detection")
    show_warnings(manifest)
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


def reads_of(manifest: Mapping[str, Any]) -> dict[str, str]:
    """What the detectors of a run look at, by name."""
    detectors = manifest.get("detectors", {})
    return {name: facts["input_type"] for name, facts in detectors.items() if "input_type" in facts}


def show_warnings(manifest: Mapping[str, Any]) -> None:
    """Says what to know before a number of the run is believed."""
    for warning in manifest.get("warnings", ()):
        log.warning(warning)


def show_run(folder: Path) -> None:
    """Prints the tables of a finished run.

    Raises:
        UserError: its results are damaged, or of an earlier version.
    """
    manifest = read_json(folder / "manifest.json")
    if (folder / RESULTS).exists():
        read_results(folder)  # whole, and of this version
    if (folder / SUMMARY).exists():
        show_warnings(manifest)
        print_blocks(read_summary(folder))
        return
    for sentence in finding_sentences(manifest.get("findings", ())):
        log.warning(sentence)
