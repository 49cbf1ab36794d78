"""A plan on disk: made once, read again by every run that resumes it."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import pandas as pd

from ood_lab.common.errors import UserError, reported_as
from ood_lab.common.files import write_text

PLAN, MADE_WITH = "plan.csv", "plan.json"
#: Columns that are text whatever stands in them.
TEXTS = ("label", "style", "prompt", "negative_prompt", "exemplar_label")


def keep_plan(
    folder: Path, made_with: Mapping[str, Any], make: Callable[[], pd.DataFrame]
) -> pd.DataFrame:
    """The plan of ``folder``, which must have been made with the same settings, or a new one.

    Args:
        folder: holds ``plan.csv`` and ``plan.json``; made if missing.
        made_with: everything that determines the plan, plain values.
        make: makes the table.

    Raises:
        UserError: the folder holds another plan, is damaged, or cannot be written.
    """
    if not (folder / MADE_WITH).exists():
        _write(folder / PLAN, make().to_csv(index=False))
    # After the plan, so that its presence means that the plan is whole.
    keep_settings(folder / MADE_WITH, made_with)
    # Names may look like numbers, and "null" and "NA" are words.
    texts = dict.fromkeys(TEXTS, str)
    return pd.read_csv(
        folder / PLAN,
        dtype=texts,
        keep_default_na=False,
    )


def keep_settings(path: Path, made_with: Mapping[str, Any]) -> None:
    """Writes the settings, or checks that those of an earlier run were the same.

    Args:
        path: JSON file.
        made_with: everything that determines the results next to it, plain values.

    Raises:
        UserError: they differ, or the file is damaged or cannot be written.
    """
    described = json.loads(json.dumps(made_with, default=str))
    if not path.exists():
        _write(path, json.dumps(described, indent=1) + "\n")
        return
    with reported_as(f"'{path}' is damaged: remove '{path.parent}'", (OSError, ValueError)):
        before = json.loads(path.read_text(encoding="utf-8"))
    keys = [key for key in {**described, **before} if described.get(key) != before.get(key)]
    if keys:
        raise UserError(
            f"'{path.parent}' was begun with other {', '.join(sorted(keys))}: choose another "
            "task.out, or remove that folder"
        )


def _write(path: Path, text: str) -> None:
    with reported_as(f"'{path}' cannot be written: {{reason}}; set task.out=DIR", OSError):
        write_text(text, path)
