"""Calls the real entry points in this process (a new one would import torch again)."""

import os
import runpy
import sys
from collections.abc import Collection
from functools import partial
from pathlib import Path
from unittest import mock

from PIL import Image

from ood_lab.report.rendering import drawing

ROOT = Path(__file__).parents[1]


def call(script: str, *arguments: str, figures: Collection[str] | None = ()) -> int:
    """Runs ``python <script> <arguments>`` and returns its exit status.

    Figures are empty but for the named ones, at which a test looks: to draw all of a run takes
    seconds, and one that fails is a warning only. None = all are drawn.
    """
    environment = {k: v for k, v in os.environ.items() if k != "HYDRA_FULL_ERROR"}
    with (
        mock.patch.object(sys, "argv", [str(ROOT / script), *arguments]),
        mock.patch.dict(os.environ, environment, clear=True),
        only(figures),
    ):
        try:
            runpy.run_path(str(ROOT / script), run_name="__main__")
        except SystemExit as stop:
            return int(stop.code or 0)
    return 0


def only(figures: Collection[str] | None = ()):
    """Within this, no other figures are drawn than the named ones."""
    return mock.patch.object(drawing, "write", partial(write, drawn=figures))


def write(
    figure, folder: Path, drawn: Collection[str] | None, original=drawing.write
) -> str | None:
    """In the place of ``drawing.write``: both files, with an empty picture if not ``drawn``."""
    if drawn is None or figure.name in drawn:
        return original(figure, folder)
    png, svg = (folder / f"{figure.name}.{kind}" for kind in ("png", "svg"))
    Image.new("L", (1, 1)).save(png)
    svg.write_text('<svg xmlns="http://www.w3.org/2000/svg" width="1pt" height="1pt"/>')
    return ""


def run_folders(outputs: Path) -> list[Path]:
    """Folders of finished runs, oldest first."""
    done = sorted(outputs.rglob("DONE"), key=lambda p: p.stat().st_mtime_ns)
    return [path.parent for path in done]
