"""Prompts: every style around every label."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from importlib.resources import files
from pathlib import Path
from typing import Annotated

import yaml
from annotated_types import Len
from pydantic import ConfigDict, StringConstraints, TypeAdapter, ValidationError
from pydantic.dataclasses import dataclass as pydantic_dataclass

from ood_lab.common.errors import UserError, reported_as
from ood_lab.common.files import YAML_LOADER, StrPath

#: What a style has in place of the label.
PLACE = "{label}"
#: A text that is not blank.
Words = Annotated[str, StringConstraints(pattern=r"\S")]
#: The same in the style files of Stable Diffusion XL, and a name that the paper spells otherwise.
_SDXL_PLACE, _SPELLING = "{prompt}", {"pointillism": "pointilism"}


@pydantic_dataclass(frozen=True, config=ConfigDict(extra="forbid"))
class PromptStyle:
    """One look.

    Attributes:
        name: short name.
        prompt: text with ``{label}`` once.
        negative_prompt: what the image must not show; not measured.
    """

    name: Words
    prompt: str
    negative_prompt: str = ""

    def __post_init__(self) -> None:
        if self.prompt.count(PLACE) != 1:
            raise ValueError(f"write {PLACE} once in the prompt, where the label goes")


@dataclass(frozen=True)
class Prompts:
    """The texts of L labels in S styles, numbered ``label * S + style``.

    Args:
        styles: S looks.
        labels: L names.
    """

    styles: Sequence[PromptStyle]
    labels: Sequence[str]

    def __len__(self) -> int:
        return len(self.styles) * len(self.labels)

    def parts(self, number: int) -> tuple[PromptStyle, str]:
        """PromptStyle and label of a prompt."""
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


def read_styles(path: StrPath | None = None) -> list[PromptStyle]:
    """Styles of a YAML or JSON list of ``{name, prompt, negative_prompt}``.

    Of a style file of Stable Diffusion XL (``{prompt}`` for the label, names as
    ``artstyle-art nouveau``) those of Syn-IS are taken.

    Args:
        path: the file; None = the 51 of Syn-IS, in our words.

    Raises:
        UserError: not such a list, an unknown or missing key, no ``{label}``, a name twice, or a
            file of Stable Diffusion XL without one of Syn-IS.
    """
    source = files("ood_lab.synthesis").joinpath("styles.yaml") if path is None else Path(path)
    named = f"style file '{path}'"
    damage = (OSError, UnicodeDecodeError, yaml.YAMLError, KeyError, TypeError)
    with reported_as(f"{named} cannot be read: {{reason}}", damage):
        entries = yaml.load(source.read_text(encoding="utf-8"), YAML_LOADER)
        if _SDXL_PLACE in str(entries):
            entries = _of_syn_is(entries, named)
    try:
        styles = TypeAdapter(Annotated[list[PromptStyle], Len(1)]).validate_python(entries)
    except ValidationError as error:
        first = error.errors()[0]
        entry = " ".join(map(str, first["loc"]))
        raise UserError(
            f"{named}, entry {entry}: {first['msg']}; write a list of {{name: ..., prompt: ...}}"
        ) from error
    counts = Counter(style.name for style in styles)
    if twice := sorted(name for name, count in counts.items() if count > 1):
        raise UserError(f"{named} has two styles named '{twice[0]}': rename one")
    return styles


def _of_syn_is(entries: Sequence[Mapping[str, str]], place: str) -> list[dict[str, str]]:
    """The styles of Syn-IS among those of Stable Diffusion XL, under their names in the paper."""
    names = [entry["name"].partition("-")[2] for entry in entries]
    by_name = dict(zip((_SPELLING.get(name, name) for name in names), entries, strict=True))
    wanted = [style.name for style in read_styles()]
    if missing := [name for name in wanted if name not in by_name]:
        raise UserError(f"{place} lacks {', '.join(missing)} of Syn-IS: join the style files")
    return [
        {**by_name[n], "name": n, "prompt": by_name[n]["prompt"].replace(_SDXL_PLACE, PLACE)}
        for n in wanted
    ]
