"""All questions of a run, set after set, with what is known of them."""

from __future__ import annotations

import logging
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from functools import cached_property
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


@dataclass(frozen=True)
class Pool:
    """Images by their row.

    Attributes:
        names: of their files: those of the annotations, else as the questions name them.
        paths: of their files.
        annotations: of all of them, in the same order; None = nothing is known of them.
    """

    names: Sequence[str]
    paths: Sequence[Path]
    annotations: Annotations | None = None

    @classmethod
    def of(
        cls, annotations: Annotations | None, folder: Path | None, asked: Sequence[str] = ()
    ) -> Pool:
        """Annotated images, or those that the questions ask about.

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

    @cached_property
    def files(self) -> dict[str, str]:
        """Path of each image, by its name."""
        return {name: str(path) for name, path in zip(self.names, self.paths, strict=True)}

    def missing(self, rows: Ints) -> list[Path]:
        """Those of some images that are not there, each once."""
        return [self.paths[row] for row in np.unique(rows) if not self.paths[row].is_file()]

    def located(self, questions: pd.DataFrame, source: str) -> pd.DataFrame:
        """Questions of a file with the ``row`` of their images, which are then named as here.

        Args:
            questions: ``item, image, object, problem, label``.
            source: the file, for messages.

        Raises:
            UserError: an image or an object is not in the annotations, or they say otherwise.
        """
        there, asked = ([Path(n).name for n in names] for names in (self.names, questions["image"]))
        rows = positions(there, asked)
        table = questions.assign(row=rows)
        if self.annotations is not None:
            _check(table, self.annotations, source)
        return table.assign(image=[self.names[row] for row in rows.tolist()])


def _check(questions: pd.DataFrame, annotations: Annotations, source: str) -> None:
    pairs = zip(annotations.objects["image"], annotations.objects["category"], strict=True)
    there, ids = set(pairs), annotations.images["image"].tolist()
    remedy = "choose the annotations of its images, or give only their folder, task.images=DIR"
    for number, image, name, _, label, row in questions.itertuples(index=False, name=None):
        if row < 0:
            raise UserError(
                f"{source}: the image {image} of question {number} is not among the "
                f"{len(ids):,} of {annotations.name}: {remedy}"
            )
        if name not in annotations.categories:
            raise UserError(
                f"{source}: question {number} asks for '{name}', which {annotations.name} does "
                f"not annotate: {remedy}"
            )
        if ((ids[row], name) in there) != (label == YES):
            raise UserError(
                f"{source}: question {number} has the answer {label}, but {annotations.name} "
                f"says otherwise of '{name}' in {image}: {remedy}"
            )


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
    """Sets of questions about the images of a pool.

    Attributes:
        pool: the images.
        sets: by name: ``row`` of the image and :data:`ITEM`.
    """

    pool: Pool
    sets: dict[str, pd.DataFrame] = field(default_factory=dict)

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
_ID, _CHOSEN = "question_id", "chosen"


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
        if _CHOSEN in audit:  # objects that were considered and not chosen are no questions
            audit = audit[audit[_CHOSEN].str.lower() == "true"]
        given = audit[audit[VERDICT] != ""].drop_duplicates([*CONTENT, VERDICT])
        if (twice := given.duplicated(list(CONTENT))).any():
            row = given.loc[twice].iloc[0]
            asked = f"'{row['object']}' in {row['image']}"
            raise UserError(f"{path} both accepts and rejects {asked}: keep one verdict")
        return cls(audit=given, path=Path(path))

    def check_questions(self, questions: pd.DataFrame) -> None:
        """Rejects verdicts on other questions.

        Args:
            questions: all that there are, rejected ones too: ``image, object, label``, and
                ``question_id`` where they have numbers that last.

        Raises:
            UserError: a verdict belongs to none of them.
        """
        numbered = self.audit is not None and _ID in self.audit and _ID in questions
        self.check(
            questions,
            ("question {question_id}: " if numbered else "")
            + "nothing asks whether '{object}' is in {image} with the answer {label}; the audit "
            "belongs to other questions",
            [_ID] if numbered else (),
        )

    def check_asked(self, questions: Questions) -> None:
        """Rejects verdicts on other questions than ORIC's set has; see :meth:`check_questions`."""
        if len(content := _content(questions)):
            self.check_questions(content)

    def without_rejected(self, questions: Questions) -> tuple[Questions, set[str]]:
        """Questions but for those of ORIC's set that people reject, and the items of these.

        Args:
            questions: of all sets, with ``split, category, item`` in ``meta``. An item has
                several wordings and forms, about the image that its questions are paired by.
        """
        content = _content(questions)
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
