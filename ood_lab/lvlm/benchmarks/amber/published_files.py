"""AMBER's files: images to describe, and yes/no questions about them."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property

from ood_lab.common.errors import UserError
from ood_lab.common.grouping import distinct
from ood_lab.lvlm.annotations.annotation_table import read_json
from ood_lab.lvlm.questions.question_files import (
    ACTION,
    EXISTENCE,
    GENERATIVE,
    NUMBER,
    RELATION,
    STATE,
    Question,
    Questions,
    existing,
    image_in,
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


@dataclass
class _Annotation:
    """What an image shows and what might be said to be there; of a question, its answer."""

    id: int
    type: str
    truth: str | list[str]
    hallu: list[str] | None = None


@dataclass
class _Query:
    id: int
    image: str
    query: str


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
        return distinct(words)

    @cached_property
    def associates(self) -> Mapping[str, Sequence[str]]:
        """Of an object, the words that stand for it."""
        file = existing(existing(self.path) / "relation.json")
        return read_json(file, dict[str, list[str]], "words by the name of their object")

    @property
    def safe_words(self) -> Sequence[str]:
        """Words that never count as hallucinated."""
        return existing(existing(self.path) / "safe_words.txt").read_text(encoding="utf-8").split()

    def questions(self, parser: str) -> Questions:
        """All questions of the file, in its order.

        Args:
            parser: reads the answers to the yes/no questions.
        """
        place, images = existing(self.path), existing(self.images)
        truths, queries = place / "annotations.json", place / "query" / f"{self.query}.json"
        annotations = read_json(truths, list[_Annotation], "AMBER's annotations")
        by_id = {about.id: about for about in annotations}
        results = []
        for row in read_json(queries, list[_Query], "AMBER's questions"):
            where = f"{truths}, id {row.id}"
            if row.id not in by_id:
                raise UserError(f"{queries}: {where} is missing")
            about = by_id[row.id]
            if about.type not in TYPES:
                kinds = ", ".join(TYPES)
                raise UserError(f"{where}: '{about.type}' is none of AMBER's types: {kinds}")
            question = Question(
                question_id=str(row.id),
                task=TYPES[about.type],
                image=image_in(images, row.image, queries),
                text=row.query,
                answer="",
                parser=parser,
                pair_id=row.image,
                meta={"split": _ONLY},
            )
            results.append(_with_truth(question, about, where))
        return results


def _with_truth(question: Question, about: _Annotation, where: str) -> Question:
    """The question with its right answer; ``where`` is the place of the truth."""
    if question.task != GENERATIVE:
        return replace(question, answer=yes_or_no(about.truth, where))
    if isinstance(about.truth, str) or about.hallu is None:
        raise UserError(f"{where}: truth and hallu of a caption are lists of objects")
    return replace(
        question,
        answer=true_caption(about.truth),
        parser="caption",
        meta={**question.meta, "truth": about.truth, "hallu": about.hallu},
        reply="text",
    )
