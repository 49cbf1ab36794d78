"""The page of the command line: what ``--help`` prints."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).parents[2]
_OOD_LAB = "from ood_lab.run.commandline.ood_lab_command import main; main()"
_COMMANDS = {
    "python train.py --help": ["train.py", "--help"],
    "python eval.py --help": ["eval.py", "--help"],
    "ood-lab --help": ["-c", _OOD_LAB, "--help"],
}


def page() -> str:
    """Markdown of the page."""
    text = "# Command line\n\nAll settings: [configuration](../configuration/index.md).\n"
    for command, arguments in _COMMANDS.items():
        text += f"\n## `{command}`\n\n```text\n{_output(arguments)}\n```\n"
    return text


def _output(arguments: list[str]) -> str:
    environment = {**os.environ, "PYTHONPATH": str(ROOT), "COLUMNS": "90", "NO_COLOR": "1"}
    made = subprocess.run(
        [sys.executable, *arguments],
        cwd=ROOT,
        env=environment,
        check=True,
        capture_output=True,
        text=True,
    )
    return made.stdout.rstrip()
