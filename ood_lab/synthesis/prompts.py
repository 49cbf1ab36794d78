"""Prompts: every style around every label."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from importlib.resources import files
from pathlib import Path

import yaml

from ood_lab.common.errors import UserError
from ood_lab.common.files import YAML_LOADER, StrPath

#: What a style has in place of the label.
PLACE = "{label}"
_KEYS = ("name", "prompt", "negative_prompt")


@dataclass(frozen=True)
class Style:
    """One look.

    Attributes:
        name: short name.
        prompt: text with ``{label}`` once.
        negative_prompt: what the image must not show; not measured.
    """

    name: str
    prompt: str
    negative_prompt: str = ""


class Prompts:
    """The texts of L labels in S styles, numbered ``label * S + style``.

    Args:
        styles: S looks.
        labels: L names.
    """

    def __init__(self, styles: Sequence[Style], labels: Sequence[str]) -> None:
        self.styles = tuple(styles)
        self.labels = tuple(labels)

    def __len__(self) -> int:
        return len(self.styles) * len(self.labels)

    def parts(self, number: int) -> tuple[Style, str]:
        """Style and label of a prompt."""
        label, style = divmod(number, len(self.styles))
        return self.styles[style], self.labels[label]

    def text(self, number: int) -> str:
        """The prompt itself."""
        style, label = self.parts(number)
        return style.prompt.replace(PLACE, label)

    def file(self, number: int) -> str:
        """Name of its image without ending: number of the label, number of the style."""
        label, style = divmod(number, len(self.styles))
        return f"{label:05d}_{style:02d}"


def read_styles(path: StrPath | None = None) -> list[Style]:
    """Styles of a YAML list of ``{name, prompt, negative_prompt}``.

    Args:
        path: the file; None = the 51 that come with the package.

    Raises:
        UserError: not such a list, an unknown or missing key, no ``{label}``, or a name twice.
    """
    source = files("ood_lab.synthesis").joinpath("styles.yaml") if path is None else Path(path)
    try:
        entries = yaml.load(source.read_text(encoding="utf-8"), YAML_LOADER)
    except (OSError, UnicodeDecodeError, yaml.YAMLError) as error:
        reason = " ".join(str(error).split())
        raise UserError(f"style file '{path}' cannot be read: {reason}") from error
    if not isinstance(entries, list) or not entries:
        raise UserError(f"style file '{path}': write a list of {{name: ..., prompt: ...}}")
    styles = [_style(entry, f"style file '{path}', entry {i}") for i, entry in enumerate(entries)]
    names = [style.name for style in styles]
    twice = sorted({name for name in names if names.count(name) > 1})
    if twice:
        raise UserError(f"style file '{path}' has two styles named '{twice[0]}': rename one")
    return styles


def _style(entry: object, place: str) -> Style:
    if not isinstance(entry, dict):
        raise UserError(f"{place}: write {{name: ..., prompt: ...}}, not '{entry}'")
    unknown = sorted(str(key) for key in entry if key not in _KEYS)
    if unknown:
        raise UserError(f"{place}: unknown key {', '.join(unknown)}; known: {', '.join(_KEYS)}")
    texts = {key: entry.get(key) for key in _KEYS[:2]}
    missing = [key for key, text in texts.items() if not isinstance(text, str) or not text.strip()]
    if missing:
        raise UserError(f"{place}: '{missing[0]}' must be a text")
    if str(entry["prompt"]).count(PLACE) != 1:
        raise UserError(f"{place}: write {PLACE} once in the prompt, where the label goes")
    return Style(**{key: str(text) for key, text in entry.items()})
