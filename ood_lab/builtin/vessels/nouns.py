"""The undated things, each with its semantic level and its chain of broader words."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from ood_lab.builtin.vessels.drawings import patterns
from ood_lab.builtin.vessels.drawings.figure import Drawer, Figure, Proportions
from ood_lab.builtin.vessels.drawings.shape_descriptions import Description, number_of, shape_of
from ood_lab.builtin.vessels.drawings.signed_distances import Array, union
from ood_lab.common.files import packaged_table


@dataclass(frozen=True)
class Noun:
    """A thing that can be drawn.

    Attributes:
        level: semantic distance from ding and gui, 1 to 5.
        hypernyms: broader words, narrow to broad.
        draw: its drawer.
    """

    level: int
    hypernyms: tuple[str, ...]
    draw: Drawer


_TABLE = packaged_table(__package__, "nouns.yaml")


def _drawer(entry: Mapping[str, Any]) -> Drawer:
    """The drawer of a thing that the table describes."""
    description, body = Description(entry), shape_of(entry["body"])
    parts = [shape_of(part) for part in entry.get("parts", ())]
    belt = number_of(entry.get("belt", [0, 0, 0.6]))

    def draw(u: Array, v: Array, p: Proportions) -> Figure:
        frame = description.frame(u, v, p)
        main = body(frame)
        return Figure(union(main, *(part(frame) for part in parts)), main, *belt(frame))

    return draw


def _noun(name: str, entry: Mapping[str, Any]) -> Noun:
    kind = _TABLE["kinds"][entry["kind"]]
    draw = _drawer(entry) if "body" in entry else vars(patterns)[name.replace(" ", "_")]
    return Noun(kind["level"], (entry["kind"], *kind["hypernyms"]), draw)


NOUNS = {name: _noun(name, entry) for name, entry in _TABLE["things"].items()}
#: Household and storage vessels: the undated containers of everyday life.
CONTAINERS = tuple(
    name for name, n in NOUNS.items() if n.hypernyms[0] in ("household vessel", "container")
)
#: Broader words of a ding or gui, after its own name.
BRONZE_HYPERNYMS = ("ritual bronze", *NOUNS["hu"].hypernyms)


def nouns_of_level(level: int) -> tuple[str, ...]:
    """Names of the things at one semantic level (1 to 5)."""
    return tuple(name for name, noun in NOUNS.items() if noun.level == level)
