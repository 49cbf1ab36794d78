"""The published files: ``oric_bench.json`` and ``oric_train.json``."""

from __future__ import annotations

import json
import re
from collections.abc import Iterable, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from ood_lab.common.errors import UserError
from ood_lab.common.files import write_text
from ood_lab.lvlm.benchmarks.oric.construction.released_code import Article
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
_SOLUTION = re.compile(r"<SOLUTION>(yes|no)</SOLUTION>")


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
    write_text(_text([asdict(item) for item in items]), path)


def write_train(items: Iterable[Item], path: Path) -> None:
    """Writes ``oric_train.json``: one question of each item, to be reasoned about."""
    rows = [
        {
            **asdict(item),
            "problem": item.problem[0] + _REASONING,
            "solution": f"<SOLUTION>{item.solution}</SOLUTION>",
        }
        for item in items
    ]
    write_text(_text(rows), path)


def read_bench(path: Path) -> list[Item]:
    """Reads and checks ``oric_bench.json``.

    Raises:
        UserError: it is missing, no such file, a training file, or asks contradictory questions.
    """
    rows = _rows(path)
    if any(isinstance(row.get("problem"), str) for row in rows):
        raise UserError(
            f"{path} is a training file (each problem is one text): give oric_bench.json, whose "
            "problems have four questions"
        )
    return _checked([_item(row, number, path) for number, row in enumerate(rows, 1)], path)


def read_train(path: Path) -> list[Item]:
    """Reads and checks ``oric_train.json``; ``problem`` of an item has the one question.

    Raises:
        UserError: it is missing, no such file, or a file of the benchmark.
    """
    rows = _rows(path)
    if any(isinstance(row.get("problem"), list) for row in rows):
        raise UserError(
            f"{path} is the benchmark (each problem has four questions): training on it would "
            "make its results worthless; give oric_train.json"
        )
    plain = []
    for number, row in enumerate(rows, 1):
        found = _SOLUTION.fullmatch(str(row.get("solution")))
        if found is None:
            raise UserError(f"{path}, row {number}: the solution is not <SOLUTION>yes</SOLUTION>")
        plain.append({**row, "problem": [row.get("problem")], "solution": found[1]})
    return _checked([_item(row, number, path) for number, row in enumerate(plain, 1)], path)


def _text(rows: Sequence[dict[str, Any]]) -> str:
    return json.dumps(rows, indent=4)


def _rows(path: Path) -> list[dict[str, Any]]:
    if not path.is_file():
        raise UserError(f"{path}: there is no such file")
    try:
        rows = json.loads(path.read_text(encoding="utf-8"))
    except ValueError as error:
        raise UserError(f"{path} is not JSON: {error}") from error
    if not isinstance(rows, list) or not all(isinstance(row, dict) for row in rows) or not rows:
        raise UserError(f"{path} is not a list of questions as oric_bench.json has it")
    return rows


def _item(row: dict[str, Any], number: int, path: Path) -> Item:
    try:
        item = Item(**row)
    except TypeError as error:
        wanted = "id, image, target_object, problem, solution"
        raise UserError(f"{path}, row {number}: the fields are not {wanted}") from error
    texts = item.problem if isinstance(item.problem, list) else [None]
    if not texts or not all(isinstance(t, str) for t in (*texts, item.image, item.target_object)):
        raise UserError(f"{path}, row {number}: image, object and questions are not all texts")
    if item.solution not in (YES, NO):
        raise UserError(f"{path}, row {number}: the solution '{item.solution}' is not yes or no")
    return item


def _checked(items: list[Item], path: Path) -> list[Item]:
    known: dict[tuple[str, str], str] = {}
    ids = {item.id for item in items}
    if len(ids) < len(items):
        raise UserError(f"{path}: an id is used twice")
    if len({len(item.problem) for item in items}) > 1:
        raise UserError(f"{path}: not every item has the same number of questions")
    for item in items:
        right = known.setdefault((item.image, item.target_object), item.solution)
        if right != item.solution:
            raise UserError(f"{path}: '{item.target_object}' is both in {item.image} and not in it")
    return items
