"""AMBER's annotations (arXiv 2311.07397) as concepts."""

from __future__ import annotations

import re
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal

from ood_lab.common.errors import UserError
from ood_lab.common.grouping import distinct, grouped
from ood_lab.lvlm.annotations.annotation_table import read_json
from ood_lab.lvlm.concepts.concepts import Attribute, AttributesByName, Concepts

#: Files of AMBER and of ODE, by what they hold; the first that is there is read.
FILES = {
    "annotations": (
        "annotations.json",
        "amber_annotations.json",
        "BaseInfo/amber_annotations.json",
    ),
    "properties": ("object-properties.json", "BaseInfo/object-properties.json"),
    "attributes": ("attribute.json", "BaseInfo/attribute.json"),
    "relation": ("relation.json",),
    "safe words": ("safe_words.txt",),
}
_STATE = re.compile(r"Is the (\w+) (\w+) in this image")
_ACTION = re.compile(r"Does the (\w+) (\w+) in this image")


@dataclass
class _Annotation:
    """Of an image; of a question, the truth is its answer."""

    type: str = ""
    truth: Any = ()
    hallu: Any = ()


@dataclass
class _Property:
    property: Literal["entity", "environment", "virtual"]


@dataclass
class _Query:
    query: str


@dataclass(frozen=True)
class AmberConcepts:
    """Reads a folder with AMBER's annotations, object properties and attribute questions.

    Attribute questions come in pairs, the right one first. Those of one word, about the same
    noun, are read; several words and numbers are not, as in ODE's own reader.

    Args:
        path: folder, as ODE ships it or with AMBER's own file names.
        name: of the data, for tables.
    """

    path: str
    name: str = "amber"

    def read(self) -> Concepts:
        """Reads all files.

        Raises:
            UserError: a file is missing or not what it should be.
        """
        folder = Path(self.path).expanduser()
        results = {what: _find(folder, what) for what in FILES}
        rows = read_json(results["annotations"], list[_Annotation], "AMBER's annotations")
        rows = [row for row in rows if row.type == "generative"]
        properties = read_json(results["properties"], dict[str, _Property], "types of concepts")
        queries = read_json(results["attributes"], list[_Query], "questions about attributes")
        states, actions = attribute_pairs([item.query for item in queries])
        return Concepts(
            name=self.name,
            truth=[row.truth for row in rows],
            hallu=[row.hallu for row in rows],
            types={name: about.property for name, about in properties.items()},
            states=states,
            actions=actions,
            associates=read_json(results["relation"], dict[str, list[str]], "words by object"),
            safe_words=results["safe words"].read_text(encoding="utf-8").split(),
        )


def attribute_pairs(
    queries: list[str],
) -> tuple[AttributesByName, AttributesByName]:
    """States and actions of every noun, each distinct (true, false) pair once, in order.

    Args:
        queries: questions, two a pair: first the one whose answer is yes.
    """

    def pairs(pattern: re.Pattern[str]) -> AttributesByName:
        right, wrong = (map(pattern.search, queries[start::2]) for start in (0, 1))
        both = [(a, b) for a, b in zip(right, wrong, strict=False) if a and b and a[1] == b[1]]
        return grouped(distinct((a[1], Attribute(a[2], b[2])) for a, b in both))

    return pairs(_STATE), pairs(_ACTION)


def _find(folder: Path, what: str) -> Path:
    for name in FILES[what]:
        if (folder / name).is_file():
            return folder / name
    raise UserError(f"'{folder}' has no {FILES[what][0]}: give the folder of AMBER's annotations")
