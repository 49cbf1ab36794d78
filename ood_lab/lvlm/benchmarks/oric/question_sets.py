"""All questions of a run, set after set, with what is known of them."""

from __future__ import annotations

import logging
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from pathlib import Path

import numpy as np
import pandas as pd

from ood_lab.common.arguments import Fields
from ood_lab.common.errors import UserError
from ood_lab.common.grouping import distinct
from ood_lab.lvlm.annotations import Annotations
from ood_lab.lvlm.parsers import NO, YES
from ood_lab.lvlm.questions import question_files
from ood_lab.lvlm.questions.question_files import Questions
from ood_lab.lvlm.scoring.human_verdicts import VERDICT, AuditVerdicts, read_audit
from ood_lab.schema.arrays import Ints, positions
from ood_lab.schema.image_columns import LEVELS

log = logging.getLogger(__name__)

#: ``split`` of ORIC's questions.
ORIC = "oric"
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
    """Sets of questions about the same images, which have a row each.

    Attributes:
        names: of the files of the images: those of the annotations, else as the questions name
            them.
        paths: of these files.
        annotations: of all of them, in the same order; None = nothing is known of them.
        sets: by name: ``row`` of the image and :data:`ITEM`.
    """

    names: Sequence[str]
    paths: Sequence[Path]
    annotations: Annotations | None = None
    sets: dict[str, pd.DataFrame] = field(default_factory=dict)

    @classmethod
    def about(
        cls, annotations: Annotations | None, folder: Path | None, asked: Sequence[str] = ()
    ) -> QuestionSets:
        """No set yet, about annotated images, or about those that the questions name.

        Args:
            annotations: of the images, if any.
            folder: of the images; None = that of the annotations.
            asked: names of the images of all questions, which may repeat.
        """
        names = distinct(asked) if annotations is None else annotations.images["file"].tolist()
        if folder is None:
            root = Path() if annotations is None else annotations.root
            return cls(names, [root / name for name in names], annotations)
        # Annotations may name sub-folders that this folder does not have.
        paths = [folder.absolute() / name for name in names]
        paths = [path if path.is_file() else folder.absolute() / path.name for path in paths]
        return cls(names, paths, annotations)

    def add(self, split: str, questions: pd.DataFrame, source: str) -> None:
        """Adds the questions of a file with the ``row`` of their images, which are named as here.

        Args:
            split: name of the set.
            questions: ``item, image, object, problem, label``.
            source: the file, for messages.

        Raises:
            UserError: an image or an object is not in the annotations, or they say otherwise.
        """
        there, asked = ([Path(n).name for n in names] for names in (self.names, questions["image"]))
        rows = positions(there, asked)
        if self.annotations is not None:
            _check(questions, rows, self.annotations, source)
        self.sets[split] = questions.assign(row=rows, image=[self.names[row] for row in rows])

    def make(self, split: str, rows: pd.DataFrame, wording: Wording) -> None:
        """Adds questions that were made from the annotations, ``row, object, label``."""
        assert self.annotations is not None
        self.sets[split] = worded(rows, self.annotations, wording)

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
    def files(self) -> dict[str, str]:
        """Path of each image, by its name."""
        return {name: str(path) for name, path in zip(self.names, self.paths, strict=True)}

    @property
    def rows(self) -> Ints:
        """The images of the questions, each once."""
        rows = [table["row"].to_numpy(np.int64) for table in self.sets.values()]
        return np.unique(np.concatenate(rows))

    @property
    def missing(self) -> list[Path]:
        """Those of these images that are not there."""
        return [self.paths[row] for row in self.rows if not self.paths[row].is_file()]

    @property
    def objects(self) -> tuple[str, ...]:
        """The label space: that of the annotations, else the objects of the questions."""
        if self.annotations is not None:
            return self.annotations.categories
        return tuple(sorted({name for table in self.sets.values() for name in table["object"]}))


def _check(questions: pd.DataFrame, rows: Ints, annotations: Annotations, source: str) -> None:
    """Rejects questions to which the annotations have no answer, or another one."""
    ids = annotations.images["image"].tolist()
    there = set(zip(annotations.objects["image"], annotations.objects["category"], strict=True))
    for row, question in zip(rows.tolist(), questions.to_dict("records"), strict=True):
        name, image = question["object"], question["image"]
        is_annotated = row >= 0 and name in annotations.categories
        if not is_annotated or ((ids[row], name) in there) != (question["label"] == YES):
            says = "says otherwise" if is_annotated else "says nothing"
            raise UserError(
                f"{source}: question {question['item']} has the answer {question['label']}, but "
                f"{annotations.name} {says} of '{name}' in {image}: choose the annotations of its "
                "images, or give only their folder, task.images=DIR"
            )


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


def meta_of(table: pd.DataFrame) -> list[Fields]:
    """What goes into ``meta`` of each question: its set and what is known of it."""
    rows = map(question_files.meta_of, table[[n for n in _KNOWN if n in table]].to_dict("records"))
    return [{k: round(v, 6) if isinstance(v, float) else v for k, v in row.items()} for row in rows]


#: What is asked: the content of a question, whatever its number.
CONTENT = ("image", "object", "label")
_ID = "question_id"


@dataclass(frozen=True)
class Verdicts(AuditVerdicts):
    """Verdicts on questions; rows of an ``audit.csv`` that are none are skipped."""

    keys: Sequence[str] = CONTENT

    @classmethod
    def read(cls, path: str | None) -> Verdicts:
        """Those of a file.

        Raises:
            UserError: see :func:`ood_lab.lvlm.scoring.human_verdicts.read_audit`; or the file says
                both of one question.
        """
        if path is None:
            return cls()
        audit = read_audit(Path(path), CONTENT)
        given = audit[audit[VERDICT] != ""].drop_duplicates([*CONTENT, VERDICT])
        if (twice := given.duplicated(list(CONTENT))).any():
            row = given.loc[twice].iloc[0]
            asked = f"'{row['object']}' in {row['image']}"
            raise UserError(f"{path} both accepts and rejects {asked}: keep one verdict")
        return cls(audit=given, path=Path(path))

    def check_questions(self, questions: pd.DataFrame) -> None:
        """Rejects verdicts on other questions.

        Args:
            questions: all that there are, rejected ones too: ``image, object, label``.

        Raises:
            UserError: a verdict belongs to none of them.
        """
        self.check(
            questions,
            "nothing asks whether '{object}' is in {image} with the answer {label}; the audit "
            "belongs to other questions",
        )

    def without_rejected(self, questions: Questions) -> tuple[Questions, set[str]]:
        """Questions but for those of ORIC's set that people reject, and the items of these.

        Args:
            questions: of all sets, with ``split, category, item`` in ``meta``. An item has
                several wordings and forms, about the image that its questions are paired by.

        Raises:
            UserError: there are questions of ORIC's set, and a verdict belongs to none of them.
        """
        content = _content(questions)
        if len(content):
            self.check_questions(content)
        items = set(content.loc[self.rejects(content), "item"])
        gone = set(content.index[content["item"].isin(items)])
        return [q for q in questions if q.question_id not in gone], items


def _content(questions: Questions) -> pd.DataFrame:
    """What the questions of ORIC's set ask, by their id, with the number of their item."""
    rows = {
        q.question_id: (q.pair_id, q.meta["category"], q.answer, str(q.meta["item"]))
        for q in questions
        if q.meta["split"] == ORIC
    }
    return pd.DataFrame.from_dict(rows, orient="index", columns=[*CONTENT, "item"])


def audit_of(questions: pd.DataFrame, verdicts: Verdicts) -> pd.DataFrame:
    """Questions for people to look at: ``question_id``, content, wording, ``verdict``.

    Args:
        questions: ``item, image, object, problem, label``.
        verdicts: those that were given.
    """
    table = questions.rename(columns={"item": _ID})[[_ID, *CONTENT]]
    table = table.assign(question=[problem[0] for problem in questions["problem"]])
    return table.assign(**{VERDICT: verdicts.of(table)})
