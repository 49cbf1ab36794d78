"""What a run shows in the terminal when it ends, and when it is asked for again."""

from __future__ import annotations

import logging
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pandas as pd
from rich.console import Console

from ood_lab.io import read_json, read_table
from ood_lab.report.console import console_tables
from ood_lab.report.page import SUMMARY, read_summary
from ood_lab.report.protocol import finding_sentences
from ood_lab.report.terminal import Printed
from ood_lab.results import read_results

log = logging.getLogger(__name__)


def show(results: pd.DataFrame, manifest: Mapping[str, Any], best: pd.DataFrame | None) -> None:
    """Prints the tables of a run."""
    table = console_tables(
        results,
        protocol=manifest["protocol"],
        significance=best,
        reads=reads_of(manifest),
        refused=manifest["refused"],
        title=manifest["title"],
        findings=manifest.get("findings", ()),
    )
    Console().print(table)
    show_warnings(manifest)


def reads_of(manifest: Mapping[str, Any]) -> dict[str, str]:
    """What the detectors of a run look at, by name."""
    detectors = manifest.get("detectors", {})
    return {name: facts["reads"] for name, facts in detectors.items() if "reads" in facts}


def show_warnings(manifest: Mapping[str, Any]) -> None:
    """Says what to know before a number of the run is believed."""
    for warning in manifest.get("warnings", ()):
        log.warning(warning)


def show_run(folder: Path) -> None:
    """Prints the tables of a finished run."""
    results, best = folder / "results.parquet", folder / "best.parquet"
    manifest = read_json(folder / "manifest.json")
    if not results.exists() and not (folder / SUMMARY).exists():
        for sentence in finding_sentences(manifest.get("findings", ())):
            log.warning(sentence)
        return
    if (folder / SUMMARY).exists():
        Console().print(Printed(read_summary(folder)))
        show_warnings(manifest)
    else:
        show(read_results(folder), manifest, read_table(best) if best.exists() else None)
