"""Images with what is known of them, the subject of questions."""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

from ood_lab.common.errors import UserError
from ood_lab.common.files import write_text
from ood_lab.lvlm.benchmarks.ode.construction.concepts import Attribute
from ood_lab.lvlm.benchmarks.ode.construction.criteria import Kind

#: ``truth_attr`` and ``hallu_attr`` of the published rows: state of both, then action of both.
_ATTRIBUTES = 4


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
    write_text("".join(f"{json.dumps(asdict(each))}\n" for each in pictures), path)


def read_pictures(path: Path) -> list[Picture]:
    """Reads :func:`write_pictures`' lines, or ODE's own annotations (a JSON list).

    Raises:
        UserError: the file is missing or neither of the two.
    """
    if not path.is_file():
        raise UserError(f"there is not a list of pictures '{path}'")
    text = path.read_text(encoding="utf-8")
    try:
        if text.lstrip().startswith("["):
            return [_published(row) for row in json.loads(text)]
        return [_picture(json.loads(line)) for line in text.splitlines()]
    except (KeyError, TypeError, ValueError) as error:
        raise UserError(f"'{path}' is not a list of pictures: {error!r}") from error


def _picture(row: dict[str, Any]) -> Picture:
    for key in ("states", "actions"):
        row[key] = tuple(None if pair is None else Attribute(*pair) for pair in row[key])
    return Picture(**row | {key: tuple(row[key]) for key in ("truth", "hallu")})


def _published(row: Mapping[str, Any]) -> Picture:
    pairs = [
        Attribute(true, false) if true else None
        for true, false in zip(row["truth_attr"], row["hallu_attr"], strict=True)
    ]
    if len(pairs) != _ATTRIBUTES:
        raise ValueError(f"{row['image']} has {len(pairs)} attributes, not {_ATTRIBUTES}")
    return Picture(
        file=row["image"],
        criterion=row["type"],
        kind=row["info_type"],
        truth=tuple(row["truth"]),
        states=(pairs[0], pairs[1]),
        actions=(pairs[2], pairs[3]),
        hallu=tuple(row["hallu"]),
    )
