"""The published files: ``oric_bench.json`` and ``oric_train.json``."""

from __future__ import annotations

import json
from collections.abc import Iterable, Sequence
from dataclasses import asdict, dataclass, fields
from pathlib import Path
from typing import Literal

import pandas as pd

from ood_lab.common.errors import UserError
from ood_lab.common.files import write_text
from ood_lab.lvlm.annotations.annotation_files import frame_of, read_json
from ood_lab.lvlm.benchmarks.oric.construction.released_code import Article
from ood_lab.lvlm.object_questions.question_sets import ITEM
from ood_lab.lvlm.parsers import NO, YES
from ood_lab.lvlm.questions.grammar import english

#: The four ways in which an object is asked for; ``{}`` is the object with its article.
PROMPTS = (
    "Is there {} in the image?",
    "Does the image contain {}?",
    "Have you noticed {} in the image?",
    "Can you see {} in the image?",
)
_REASONING = (
    " Please first provide your reasoning or working out on how you would go about solving the "
    "question between <REASONING> and </REASONING> and then your final answer between <SOLUTION> "
    "and (put yes or no here) </SOLUTION>."
)


@dataclass(frozen=True)
class Item:
    """A row of ``oric_bench.json``, whose fields are named and ordered as there.

    Attributes:
        id: from 1.
        image: name of its file.
        target_object: the object of the questions.
        problem: the four questions.
        solution: ``yes`` or ``no``.
    """

    id: int
    image: str
    target_object: str
    problem: list[str]
    solution: str


def items_of(table: pd.DataFrame) -> list[Item]:
    """The rows of a table of questions, see :data:`ITEM`."""
    return [Item(*each) for each in table[list(ITEM)].itertuples(index=False, name=None)]


def table_of(items: Sequence[Item]) -> pd.DataFrame:
    """The same as a table, see :data:`ITEM`."""
    return frame_of(items, *(each.name for each in fields(Item))).set_axis([*ITEM], axis=1)


def with_article(name: str, article: Article = "right") -> str:
    """``a dog``, ``an umbrella``, ``an hour glass``.

    The released code goes by the first letter, and its slip leaves consonants without an article.
    """
    if article == "right":
        return str(english().a(name))
    return f"an {name}" if name[:1].lower() in "aeiou" else name


def problem_of(name: str, article: Article = "right") -> list[str]:
    """The four questions about an object."""
    return [prompt.format(with_article(name, article)) for prompt in PROMPTS]


def write_bench(items: Iterable[Item], path: Path) -> None:
    """Writes ``oric_bench.json``, byte for byte as the published one is laid out."""
    write_text(json.dumps([asdict(item) for item in items], indent=4), path)


def write_train(items: Iterable[Item], path: Path) -> None:
    """Writes ``oric_train.json``: one question of each item, to be reasoned about."""
    rows = [
        asdict(item)
        | {"problem": item.problem[0] + _REASONING}
        | {"solution": f"<SOLUTION>{item.solution}</SOLUTION>"}
        for item in items
    ]
    write_text(json.dumps(rows, indent=4), path)


def read_bench(path: Path) -> list[Item]:
    """Reads and checks ``oric_bench.json``.

    Raises:
        UserError: it is missing, no such file, a training file, or asks contradictory questions.
    """
    hint = "problems of oric_bench.json have four questions, those of a training file are a text"
    return _checked(read_json(path, list[Item], "ORIC's benchmark", hint), path)


def read_train(path: Path) -> list[Item]:
    """Reads and checks ``oric_train.json``; ``problem`` of an item has the one question.

    Raises:
        UserError: it is missing, no such file, or a file of the benchmark.
    """
    hint = (
        "problems of oric_train.json are a text, those of the benchmark have four questions: "
        "training on them would make its results worthless"
    )
    rows = read_json(path, list[_TrainItem], "a training file of ORIC", hint)
    return _checked([row.item for row in rows], path)


@dataclass(frozen=True)
class _TrainItem:
    """A row of ``oric_train.json``."""

    id: int
    image: str
    target_object: str
    problem: str
    solution: Literal["<SOLUTION>yes</SOLUTION>", "<SOLUTION>no</SOLUTION>"]

    @property
    def item(self) -> Item:
        right = YES if self.solution == f"<SOLUTION>{YES}</SOLUTION>" else NO
        return Item(self.id, self.image, self.target_object, [self.problem], right)


def _checked(items: list[Item], path: Path) -> list[Item]:
    known: dict[tuple[str, str], str] = {}
    if not items:
        raise UserError(f"{path} has no questions")
    if len({item.id for item in items}) < len(items):
        raise UserError(f"{path}: an id is used twice")
    if len({len(item.problem) for item in items}) > 1 or not items[0].problem:
        raise UserError(f"{path}: not every item has the same number of questions")
    for row, item in enumerate(items, 1):
        if item.solution not in (YES, NO):
            raise UserError(f"{path}, row {row}: the solution '{item.solution}' is not yes or no")
        right = known.setdefault((item.image, item.target_object), item.solution)
        if right != item.solution:
            raise UserError(f"{path}: '{item.target_object}' is both in {item.image} and not in it")
    return items
