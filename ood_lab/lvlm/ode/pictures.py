"""Images with what is known of them: what questions are asked about."""

from __future__ import annotations

import json
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass, field
from itertools import islice
from pathlib import Path
from typing import Any

import networkx as nx

from ood_lab.errors import UserError
from ood_lab.io import write_text
from ood_lab.lvlm.ode.concepts import CANDIDATES, Attribute
from ood_lab.lvlm.ode.criteria import Kind

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
        meta: what results are divided by: frequency, distance, levels of shift, round.
    """

    file: str
    criterion: str
    kind: Kind
    truth: tuple[str, ...]
    states: tuple[Attribute | None, Attribute | None] = (None, None)
    actions: tuple[Attribute | None, Attribute | None] = (None, None)
    hallu: tuple[str, ...] = ()
    meta: Mapping[str, Any] = field(default_factory=dict)


def candidates_of(
    graph: nx.Graph, truth: Collection[str], detected: Collection[str] = (), most: int = CANDIDATES
) -> tuple[str, ...]:
    """Hallucination candidates of an image: absent neighbours of what it shows.

    By the frequency of the heaviest edge to anything that it shows; ties by name.

    Args:
        graph: T.
        truth: what the image shows.
        detected: what else a detector sees in it.
        most: candidates at most.
    """
    strength: dict[str, int] = {}
    for name in truth:
        for other, about in graph.adj[name].items() if name in graph else ():
            if other not in truth and other not in detected:
                strength[other] = max(strength.get(other, 0), about["frequency"])
    return tuple(sorted(strength, key=lambda name: (-strength[name], name))[:most])


def published_candidates(
    graph: nx.Graph, pictures: Iterable[Picture], most: int = CANDIDATES
) -> list[tuple[str, ...]]:
    """Hallucination candidates of every picture as the published lists were made.

    The edges from the most frequent on, ties in the order of the graph's file: the second end of
    one whose first end is there is a candidate, unless it is there, too; it may come twice.

    Args:
        graph: T, as it is published.
        pictures: only their truth is read.
        most: candidates at most.
    """
    edges = sorted(graph.edges(data="frequency"), key=lambda edge: -edge[2])
    rankings = []
    for truth in (each.truth for each in pictures):
        absent = (second for first, second, _ in edges if first in truth and second not in truth)
        rankings.append(tuple(islice(absent, most)))
    return rankings


def write_pictures(pictures: Iterable[Picture], path: Path) -> None:
    """Writes one picture a line, whole or not at all."""
    write_text("".join(f"{json.dumps(asdict(each))}\n" for each in pictures), path)


def read_pictures(path: Path) -> list[Picture]:
    """Reads :func:`write_pictures`' lines, or ODE's own annotations (a JSON list).

    Raises:
        UserError: the file is missing or neither of the two.
    """
    if not path.is_file():
        raise UserError(f"there is no list of pictures '{path}'")
    text = path.read_text(encoding="utf-8")
    try:
        if text.lstrip().startswith("["):
            return [_published(row) for row in json.loads(text)]
        return [_picture(json.loads(line)) for line in text.splitlines()]
    except (KeyError, TypeError, ValueError) as error:
        raise UserError(f"'{path}' is not a list of pictures: {error!r}") from error


def published_rows(pictures: Sequence[Picture]) -> list[dict[str, Any]]:
    """ODE's own annotations, one row a picture."""
    rows = []
    for number, each in enumerate(pictures, 1):
        pairs = (*each.states, *each.actions)
        rows.append(
            {
                "id": number,
                "type": each.criterion,
                "image": each.file,
                "info_type": each.kind,
                "truth": list(each.truth[:2]),
                "truth_attr": ["" if pair is None else pair.true for pair in pairs],
                "hallu_attr": ["" if pair is None else pair.false for pair in pairs],
                "hallu": list(each.hallu),
            }
        )
    return rows


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
