"""AMBER's files: images to describe, and yes/no questions about them."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any

from ood_lab.common.errors import UserError
from ood_lab.lvlm.annotations.annotation_table import read_json
from ood_lab.lvlm.questions.question_files import (
    ACTION,
    EXISTENCE,
    GENERATIVE,
    NUMBER,
    RELATION,
    STATE,
    Question,
    entry,
    existing,
    image_in,
    read_json_list,
    true_caption,
    yes_or_no,
)

#: ``type`` in ``annotations.json`` → ``Question.task``.
TYPES = {
    "generative": GENERATIVE,
    "discriminative-hallucination": EXISTENCE,
    "discriminative-attribute-state": STATE,
    "discriminative-attribute-number": NUMBER,
    "discriminative-attribute-action": ACTION,
    "discriminative-relation": RELATION,
    "relation": RELATION,
}
#: The set that all questions belong to.
_ONLY = "amber"


@dataclass(frozen=True)
class AmberFiles:
    """AMBER's folder ``data``: ``annotations.json``, ``relation.json``, ``safe_words.txt``.

    Args:
        path: the folder ``data``.
        images: folder of the images.
        query: file in its folder ``query``, without ``.json``: ``query_all``,
            ``query_generative``, ``query_discriminative``, or one of its ``-existence``,
            ``-attribute`` and ``-relation``.

    Raises:
        UserError: a file, an image or an entry is missing, or a query has no annotation.
    """

    path: str
    images: str
    query: str = "query_all"

    @property
    def vocabulary(self) -> Sequence[str]:
        """The words of ``relation.json``: objects and what stands for them."""
        words = [*self.associates, *(w for rest in self.associates.values() for w in rest)]
        return list(dict.fromkeys(words))

    @cached_property
    def associates(self) -> Mapping[str, Sequence[str]]:
        """Of an object, the words that stand for it."""
        file = existing(existing(self.path) / "relation.json")
        return read_json(file, dict[str, list[str]], "words by the name of their object")

    @property
    def safe_words(self) -> Sequence[str]:
        """Words that never count as hallucinated."""
        return existing(existing(self.path) / "safe_words.txt").read_text(encoding="utf-8").split()

    def questions(self, parser: str) -> list[Question]:
        """All questions of the file, in its order.

        Args:
            parser: reads the answers to the yes/no questions.
        """
        place, images = existing(self.path), existing(self.images)
        truths, queries = place / "annotations.json", place / "query" / f"{self.query}.json"
        known = {
            int(entry(row, "id", truths, number)): row
            for number, row in enumerate(read_json_list(truths), 1)
        }
        results = []
        for number, row in enumerate(read_json_list(queries), 1):
            name = int(entry(row, "id", queries, number))
            if name not in known:
                raise UserError(f"{queries}, record {number}: {truths} has no id {name}")
            task = _task(known[name], truths, name)
            image = str(entry(row, "image", queries, number))
            about: dict[str, Any] = {
                "question_id": str(name),
                "image": image_in(images, image, queries),
                "text": str(entry(row, "query", queries, number)),
                "pair_id": image,
            }
            if task == GENERATIVE:
                results.append(_caption(about, known[name], truths))
            else:
                truth = yes_or_no(
                    entry(known[name], "truth", truths, name), f"{truths}, record {name}"
                )
                meta = {"split": _ONLY}
                results.append(Question(**about, task=task, answer=truth, parser=parser, meta=meta))
        return results


def _task(about: dict[str, Any], file: Path, name: int) -> str:
    kind = str(entry(about, "type", file, name))
    if kind not in TYPES:
        raise UserError(f"{file}, id {name}: '{kind}' is none of AMBER's types: {', '.join(TYPES)}")
    return TYPES[kind]


def _caption(question: dict[str, Any], about: dict[str, Any], file: Path) -> Question:
    words = {key: entry(about, key, file, question["question_id"]) for key in ("truth", "hallu")}
    if wrong := [key for key, value in words.items() if not isinstance(value, list)]:
        raise UserError(f"{file}, id {question['question_id']}: '{wrong[0]}' is no list of objects")
    return Question(
        **question,
        task=GENERATIVE,
        answer=true_caption(words["truth"]),
        parser="caption",
        meta={"split": _ONLY, **words},
        reply="text",
    )
