"""Files of a made data set: answers of slow models, the plan of its images, its datasheet."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable, Mapping
from pathlib import Path
from typing import Any

import pandas as pd

from ood_lab.common.arguments import Fields, Settings
from ood_lab.common.errors import UserError, reported_as
from ood_lab.common.files import packaged_table, write_text
from ood_lab.common.installed_packages import package_versions
from ood_lab.common.line_files import append_lines, create_with, read_records


class Ledger:
    """A JSON-lines file: first what the answers were made with, then ``{"key": ..., ...}`` a line.

    The file only grows: an answer that was paid for is never written a second time, so that
    nothing can take it away. A line that a killed run left unfinished is passed over.

    Args:
        path: the file; made if missing.
        made_with: model, question and whatever else changes the answers.

    Raises:
        UserError: the file holds answers that were made with something else.
    """

    def __init__(self, path: Path, made_with: Settings) -> None:
        self.path = path
        header = json.dumps({"made_with": dict(made_with)})
        create_with(path, f"{header}\n")
        records = list(read_records(path))
        if not records:  # of a run that was killed, or found the disk full, before its first line
            append_lines(path, [header])
        elif records[0] != json.loads(header):
            raise UserError(
                f"'{path}' holds answers to other questions or of another model: choose another "
                "task.out, or remove the file"
            )
        self.answers: dict[str, Fields] = {r.pop("key"): r for r in records if "key" in r}

    def add(self, answers: Iterable[tuple[str, Mapping[str, Any]]]) -> None:
        """Keeps answers by key, each on disk as soon as it exists."""
        for key, answer in answers:
            self.answers[key] = dict(answer)
            append_lines(self.path, [json.dumps({"key": key, **answer})])


PLAN, MADE_WITH = "plan.csv", "plan.json"
#: Columns that are text whatever stands in them.
TEXTS = ("label", "style", "prompt", "negative_prompt", "exemplar_label")


def keep_plan(folder: Path, made_with: Settings, make: Callable[[], pd.DataFrame]) -> pd.DataFrame:
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


def keep_settings(path: Path, made_with: Settings) -> None:
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


_FIXED: Mapping[str, Mapping[str, Any]] = packaged_table(__package__, "datasheets.yaml")


def write_datasheet(
    folder: Path,
    ood_set: str,
    facts: Mapping[str, Any],
    made_with: Settings,
    licences: Mapping[str, str] | None = None,
    **words: str,
) -> None:
    """Writes ``datasheet.md``: a heading a section; facts are a list ``- **name**: value``.

    Args:
        folder: of the images.
        ood_set: its name in the command that evaluates it, and in ``datasheets.yaml``.
        facts: what it has, and how much of it.
        made_with: models and settings.
        licences: of the models, before that of the images.
        words: fill its title and its intended use.
    """
    fixed = _FIXED[ood_set]
    licence = fixed["licence"]
    sections: dict[str, Mapping[str, Any] | str] = {
        "What it is": facts,
        "How it was made": {**fixed["method"], **made_with},
        "Versions": package_versions(fixed["packages"]),
        "Licence": licence if isinstance(licence, str) else {**(licences or {}), **licence},
        "Intended use": fixed["use"].format(**words),
        "How to use it": f"`data=folder data.ood.{ood_set}=manifest.csv` with this folder's path.",
    }
    lines = [f"# {fixed['title'].format(**words)}"]
    for heading, content in sections.items():
        lines += ["", f"## {heading}", ""]
        if isinstance(content, str):
            lines.append(content)
        else:
            lines += [f"- **{name}**: {value}" for name, value in content.items()]
    (folder / "datasheet.md").write_text("\n".join(lines) + "\n")
