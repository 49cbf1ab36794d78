"""What a run shows in the terminal when it ends, and when it is run again."""

from __future__ import annotations

import json
import logging
from collections.abc import Mapping, Sequence
from dataclasses import asdict
from pathlib import Path

from pydantic import TypeAdapter

from ood_lab.common.files import read_json, write_text
from ood_lab.report.rendering.blocks import Block, Text, printed
from ood_lab.report.rendering.metric_definitions import finding_sentences
from ood_lab.report.rendering.table import (
    Table,
)
from ood_lab.report.rendering.terminal import print_blocks
from ood_lab.schema.results import RESULTS, read_results
from ood_lab.schema.run_record import RunRecord

log = logging.getLogger(__name__)
#: What a run shows first, on its page and in the terminal, is kept beside its results.
SUMMARY = "summary.json"
#: Parts of it that are shown whole.
_WHOLE = "whole"
_BLOCKS = TypeAdapter(list[Table | Text])
#: Lines that a run ends with in a terminal; its page has the rest.
LINES = 25


def show_blocks(
    blocks: Sequence[Block], folder: Path, part: str, lines: int | None = LINES
) -> None:
    """Prints what a run shows first, and keeps it in ``summary.json`` to be shown again.

    Args:
        blocks: in order.
        folder: of the run.
        part: of the run that shows them; the others are kept.
        lines: of the terminal, see :func:`print_blocks`; None where there is no page with all.
    """
    parts = read_json(folder / SUMMARY) if (folder / SUMMARY).exists() else {}
    parts[part] = [{"kind": block.kind, **asdict(block)} for block in printed(blocks)]
    if lines is None:
        parts[_WHOLE] = [*parts.get(_WHOLE, ()), part]
    # A number of numpy becomes one of Python.
    text = json.dumps(parts, ensure_ascii=False, default=lambda number: number.item())
    write_text(text, folder / SUMMARY)
    print_blocks(blocks, lines=lines)


def read_summary(folder: Path) -> dict[str, list[Table | Text]]:
    """What :func:`show_blocks` has kept, by part.

    Raises:
        UserError: the file is missing or damaged.
    """
    parts = read_json(folder / SUMMARY).items()
    return {name: _BLOCKS.validate_python(blocks) for name, blocks in parts if name != _WHOLE}


def show_warnings(record: RunRecord) -> None:
    """Says what to know before a number of the run is believed."""
    for warning in record.warnings:
        log.warning(warning)


def show_run(folder: Path, tables: Mapping[str, Sequence[Block]]) -> None:
    """Prints the tables of a finished run; ``tables`` replace those of a part of it.

    Raises:
        UserError: its results are damaged.
    """
    record = RunRecord.read(folder)
    if (folder / RESULTS).exists():
        read_results(folder)  # whole
    if (folder / SUMMARY).exists():
        show_warnings(record)
        uncut = read_json(folder / SUMMARY).get(_WHOLE, ())
        for part, blocks in {**read_summary(folder), **tables}.items():
            print_blocks(blocks, lines=None if part in (*uncut, *tables) else LINES)
        return
    for sentence in finding_sentences(record.findings):
        log.warning(sentence)
