"""Images with what is known of them, the subject of questions."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

from ood_lab.common.line_files import write_records
from ood_lab.lvlm.annotations.annotation_files import read_json, read_json_lines
from ood_lab.lvlm.benchmarks.ode.construction.concepts import Attribute
from ood_lab.lvlm.benchmarks.ode.construction.criteria import Kind


@dataclass(frozen=True)
class Picture:
    """One image.

    Attributes:
        file: relative to the folder of the list, or absolute.
        criterion: that chose its pair.
        kind: two entities, or an entity in an environment.
        truth: concepts that it shows, the pair first.
        states: of the pair; the true word is what the image shows.
        actions: of the pair.
        hallu: absent concepts that might be said to be there, the most tempting first.
        meta: what results are divided by: frequency, distance, levels of shift, round; a
            ``split`` in place of the criterion.
        numbers: there is one of the first concept, and questions ask how many.
    """

    file: str
    criterion: str
    kind: Kind
    truth: tuple[str, ...]
    states: tuple[Attribute | None, Attribute | None] = (None, None)
    actions: tuple[Attribute | None, Attribute | None] = (None, None)
    hallu: tuple[str, ...] = ()
    meta: Mapping[str, Any] = field(default_factory=dict)
    numbers: bool = True


def write_pictures(pictures: Iterable[Picture], path: Path) -> None:
    """Writes one picture a line, whole or not at all."""
    write_records(map(asdict, pictures), path)


def read_pictures(path: Path) -> list[Picture]:
    """Reads :func:`write_pictures`' lines, or ODE's own annotations (a JSON list).

    Raises:
        UserError: the file is missing or neither of the two.
    """
    name = "a list of pictures"
    if path.is_file() and path.read_bytes().lstrip().startswith(b"["):
        return [each.picture for each in read_json(path, list[_Published], name)]
    return read_json_lines(path, Picture, name)


@dataclass(frozen=True)
class _Published:
    """A row of ODE's own annotations; its attributes are the states of both, then the actions."""

    image: str
    type: str
    info_type: Kind
    truth: tuple[str, ...]
    truth_attr: tuple[str, str, str, str]
    hallu_attr: tuple[str, str, str, str]
    hallu: tuple[str, ...]

    @property
    def picture(self) -> Picture:
        pairs = zip(self.truth_attr, self.hallu_attr, strict=True)
        first, second, *actions = [Attribute(*pair) if pair[0] else None for pair in pairs]
        states = (first, second)
        about = (self.image, self.type, self.info_type, self.truth)
        return Picture(*about, states, (actions[0], actions[1]), self.hallu)
