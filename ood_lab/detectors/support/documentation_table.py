"""The tables of ``docs/detectors.md``, made from the classes and their YAML files.

``python -m ood_lab.detectors.support.documentation_table`` updates them; a test compares them
with the page.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path
from pydoc import locate
from typing import Any, cast, get_args

import yaml

from ood_lab.common.documentation_tables import with_table
from ood_lab.detectors.base import Detector, InputType
from ood_lab.scripts import CONF, conf_files

PAGE = Path(__file__).parents[3] / "docs" / "detectors.md"
#: Arguments that have a column of their own, or none.
_NOT_SETTINGS = ("_target_", "fit_split", "force", "seed")
_HEAD = "| key | score | fitted on | settings | source |\n|---|---|---|---|---|\n"
_HEAD_NETWORK = _HEAD.replace("fitted on |", "fitted on | costs |").replace("---|\n", "---|---|\n")


def detector_tables() -> dict[InputType, str]:
    """A table in Markdown for each kind of input that detectors read, one row a YAML."""
    rows = [_row(file) for file in sorted((CONF / "detector").glob("*.yaml"))]
    return {
        reads: (_HEAD_NETWORK if reads == "network" else _HEAD)
        + "\n".join(row for kind, row in rows if kind == reads)
        for reads in get_args(InputType)
    }


def sources() -> Iterator[tuple[str, str, str]]:
    """Key, what is read, and source of every detector, those of the user's own folder too."""
    for file in conf_files("detector"):
        content = yaml.safe_load(file.read_text(encoding="utf-8"))
        node = (content.get("detector") or {}).get(file.stem)
        if node:
            found = cast("type[Detector]", locate(node["_target_"]))
            yield file.stem, found.input_type, found.source


def with_tables(page: str) -> str:
    """The page with the table of today after every ``<!-- table: READS -->``."""
    for reads, table in detector_tables().items():
        page = with_table(page, reads, table)
    return page


def _row(file: Path) -> tuple[InputType, str]:
    content = yaml.safe_load(file.read_text(encoding="utf-8"))
    settings = content["detector"][file.stem]
    found = cast("type[Detector]", locate(settings["_target_"]))
    grid = file.stem in content.get("tuning", {}).get("grids", {})
    fitted = _shown(settings["fit_split"]) if "fit_split" in settings else "–"
    fitted += ", labels" if "labels" in found.reads else ""
    cells = [f"`{file.stem}`", found.formula, fitted]
    cells += [found.cost] if found.input_type == "network" else []
    cells += [", ".join(_settings(settings, grid)) or "–", found.source]
    return found.input_type, "| " + " | ".join(cell.replace("|", "\\|") for cell in cells) + " |"


def _settings(given: dict[str, Any], grid: bool) -> Iterator[str]:
    for key, value in given.items():
        if key not in _NOT_SETTINGS:
            yield f"{key} {_shown(value)}"
    if grid:
        yield "grid"


def _shown(value: Any) -> str:
    """A value as its YAML has it, with both presets where they differ."""
    both = re.fullmatch(r"\$\{preset:(.*)\}", str(value))
    if both is None:
        return yaml.safe_dump(value, default_flow_style=True).split("\n")[0]
    return " | ".join(re.split(r",(?![^\[]*\])", both[1]))


if __name__ == "__main__":
    PAGE.write_text(with_tables(PAGE.read_text(encoding="utf-8")), encoding="utf-8")
