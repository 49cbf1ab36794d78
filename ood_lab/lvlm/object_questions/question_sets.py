"""All questions of a run, set after set, with what is known of them."""

from __future__ import annotations

import logging
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import pandas as pd

from ood_lab.lvlm.annotations import Annotations
from ood_lab.lvlm.object_questions.image_pool import Pool
from ood_lab.lvlm.parsers import NO, YES
from ood_lab.lvlm.questions import question_files
from ood_lab.schema.arrays import Ints
from ood_lab.schema.shift_axes import LEVELS

log = logging.getLogger(__name__)

#: From the name of an object to the texts that ask for it.
Wording = Callable[[str], list[str]]
#: Ends the name of a set that is drawn from another one.
SUBSET = "_subset"
#: Columns of a set: its questions by number, with their texts and the right answer.
ITEM = ("item", "image", "object", "problem", "label")
#: What is known of a question and goes into its ``meta``, where it is known.
_KNOWN = ("split", "p_context", "area_share", "tier", "coco_tier", "cosine", "pair", *LEVELS)


@dataclass(frozen=True)
class QuestionSets:
    """Sets of questions about the images of a pool.

    Attributes:
        pool: the images.
        sets: by name: ``row`` of the image and :data:`ITEM`.
    """

    pool: Pool
    sets: dict[str, pd.DataFrame] = field(default_factory=dict)

    def publish(self, split: str, questions: pd.DataFrame, source: str) -> None:
        """Adds the questions of a file, see ``Pool.located``."""
        self.sets[split] = self.pool.located(questions, source)

    def make(self, split: str, rows: pd.DataFrame, wording: Wording) -> None:
        """Adds questions that were made from the annotations, ``row, object, label``."""
        assert self.pool.annotations is not None
        self.sets[split] = worded(rows, self.pool.annotations, wording)

    def draw(self, split: str, number: int, seed: int) -> None:
        """Adds ``<split>_subset``: ``number`` questions of a set at random, half of each answer.

        A set that has too few adds none, which is reported.
        """
        rows = self.sets[split]
        most = 2 * min(int((rows["label"] == label).sum()) for label in (YES, NO))
        if number > most:
            log.info("%s: no subset of %d, half of each answer: it has %d", split, number, most)
            return
        kept = sorted(rows.groupby("label").sample(number // 2, random_state=seed).index)
        self.sets[split + SUBSET] = rows.loc[kept].reset_index(drop=True)

    @property
    def rows(self) -> Ints:
        """The images of the questions, each once."""
        rows = [table["row"].to_numpy(np.int64) for table in self.sets.values()]
        return np.unique(np.concatenate(rows))

    @property
    def objects(self) -> tuple[str, ...]:
        """The label space: that of the annotations, else the objects of the questions."""
        if self.pool.annotations is not None:
            return self.pool.annotations.categories
        return tuple(sorted({name for table in self.sets.values() for name in table["object"]}))

    def table(self, known: Callable[[pd.DataFrame], pd.DataFrame]) -> pd.DataFrame:
        """All questions with ``split`` and what is known of them.

        Args:
            known: adds columns to the rows of a set.
        """
        parts = [known(rows).assign(split=split) for split, rows in self.sets.items()]
        return pd.concat(parts, ignore_index=True)


def worded(questions: pd.DataFrame, annotations: Annotations, wording: Wording) -> pd.DataFrame:
    """Questions with ``item``, numbered from 1, ``image`` and ``problem``, their texts.

    Args:
        questions: ``row, object, label``.
        annotations: the images.
        wording: gives the texts about an object.
    """
    files = annotations.images["file"].to_numpy(object)
    return questions.assign(
        item=range(1, len(questions) + 1),
        image=files[questions["row"].to_numpy(np.int64)],
        problem=questions["object"].map(lambda name: wording(str(name))),
    )


def meta_of(table: pd.DataFrame) -> list[dict[str, Any]]:
    """What goes into ``meta`` of each question: its set and what is known of it."""
    rows = map(question_files.meta_of, table[[n for n in _KNOWN if n in table]].to_dict("records"))
    return [{k: round(v, 6) if isinstance(v, float) else v for k, v in row.items()} for row in rows]
