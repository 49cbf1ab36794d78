"""What a made data set is, in the form of a short datasheet (arXiv:1803.09010)."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from ood_lab.common.files import packaged_table
from ood_lab.common.installed_packages import package_versions

_FIXED: Mapping[str, Mapping[str, Any]] = packaged_table(__package__, "datasheets.yaml")


def write_datasheet(
    folder: Path,
    ood_set: str,
    facts: Mapping[str, Any],
    made_with: Mapping[str, Any],
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
