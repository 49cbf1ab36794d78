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
from ood_lab.report.ode_tables import ode_tables
from ood_lab.report.oodbench_tables import oodbench_tables
from ood_lab.report.oric_tables import oric_tables
from ood_lab.report.protocol import finding_sentences

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
    if not results.exists():
        for sentence in finding_sentences(manifest.get("findings", ())):
            log.warning(sentence)
        return
    if "oric" in manifest:
        Console().print(oric_tables(read_table(results), folder, manifest))
    elif "ode" in manifest:
        Console().print(ode_tables(read_table(results), folder, manifest))
    elif "questions" in manifest:  # of a vision-language benchmark
        Console().print(oodbench_tables(read_table(results), manifest))
    else:
        show(read_table(results), manifest, read_table(best) if best.exists() else None)
        return
    show_warnings(manifest)
