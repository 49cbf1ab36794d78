"""Calls the real entry points in this process (a new one would import torch again)."""

import os
import runpy
import sys
from pathlib import Path
from unittest import mock

ROOT = Path(__file__).parents[1]


def call(script: str, *arguments: str) -> int:
    """Runs ``python <script> <arguments>`` and returns its exit status."""
    environment = {k: v for k, v in os.environ.items() if k != "HYDRA_FULL_ERROR"}
    with (
        mock.patch.object(sys, "argv", [str(ROOT / script), *arguments]),
        mock.patch.dict(os.environ, environment, clear=True),
    ):
        try:
            runpy.run_path(str(ROOT / script), run_name="__main__")
        except SystemExit as stop:
            return int(stop.code or 0)
    return 0


def run_folders(outputs: Path) -> list[Path]:
    """Folders of finished runs, oldest first."""
    done = sorted(outputs.rglob("DONE"), key=lambda p: p.stat().st_mtime_ns)
    return [path.parent for path in done]
