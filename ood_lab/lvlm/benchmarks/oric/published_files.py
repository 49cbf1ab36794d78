"""The published files of ORIC, and sets of questions read from them."""

from __future__ import annotations

import json
import logging
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, fields
from pathlib import Path
from typing import Any, Literal

import pandas as pd

from ood_lab.common.arguments import Settings
from ood_lab.common.errors import UserError
from ood_lab.common.files import write_text
from ood_lab.lvlm.annotations import Annotations
from ood_lab.lvlm.annotations.annotation_table import frame_of, read_json
from ood_lab.lvlm.answers.answer_files import Answer
from ood_lab.lvlm.answers.answer_requests import answer_of
from ood_lab.lvlm.benchmarks.oric.question_sets import ITEM, ORIC, QuestionSets, Verdicts, audit_of
from ood_lab.lvlm.chat.base import Reply
from ood_lab.lvlm.image_text.foreign_images import is_builtin, refuse_shipped, shipped_clips
from ood_lab.lvlm.parsers.base import english
from ood_lab.lvlm.questions.question_files import Question, Questions
from ood_lab.lvlm.questions.question_forms import Form

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
class OricItem:
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
    solution: Literal["yes", "no"]


def items_of(table: pd.DataFrame) -> list[OricItem]:
    """The rows of a table of questions, see :data:`ITEM`."""
    return [OricItem(*item) for item in table[list(ITEM)].itertuples(index=False, name=None)]


def table_of(items: Sequence[OricItem]) -> pd.DataFrame:
    """The same as a table, see :data:`ITEM`."""
    return frame_of(items, [item.name for item in fields(OricItem)]).set_axis([*ITEM], axis=1)


def with_article(name: str, released: bool = False) -> str:
    """``a dog``, ``an umbrella``, ``an hour glass``.

    The released code goes by the first letter, and its slip leaves consonants without an article.
    """
    if released:
        return f"an {name}" if name[:1].lower() in "aeiou" else name
    return str(english().a(name))


def problem_of(name: str, released: bool = False) -> list[str]:
    """The four questions about an object."""
    return [prompt.format(with_article(name, released)) for prompt in PROMPTS]


def write_bench(items: Iterable[OricItem], path: Path) -> None:
    """Writes ``oric_bench.json``, byte for byte as the published one is laid out."""
    write_text(json.dumps([asdict(item) for item in items], indent=4), path)


def write_train(items: Iterable[OricItem], path: Path) -> None:
    """Writes ``oric_train.json``: one question of each item, to be reasoned about."""
    rows = [
        asdict(item)
        | {"problem": item.problem[0] + _REASONING}
        | {"solution": f"<SOLUTION>{item.solution}</SOLUTION>"}
        for item in items
    ]
    write_text(json.dumps(rows, indent=4), path)


def read_bench(path: Path) -> list[OricItem]:
    """Reads and checks ``oric_bench.json``.

    Raises:
        UserError: it is missing, no such file, a training file, or asks contradictory questions.
    """
    hint = "problems of oric_bench.json have four questions, those of a training file are a text"
    return _checked(read_json(path, list[OricItem], "ORIC's benchmark", hint), path)


def read_train(path: Path) -> list[OricItem]:
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
    def item(self) -> OricItem:
        right = self.solution == "<SOLUTION>yes</SOLUTION>"
        problem = [self.problem]
        return OricItem(self.id, self.image, self.target_object, problem, "yes" if right else "no")


def _checked(items: list[OricItem], path: Path) -> list[OricItem]:
    known: dict[tuple[str, str], str] = {}
    if not items:
        raise UserError(f"{path} has no questions")
    if len({item.id for item in items}) < len(items):
        raise UserError(f"{path}: an id is used twice")
    if len({len(item.problem) for item in items}) > 1 or not items[0].problem:
        raise UserError(f"{path}: not every item has the same number of questions")
    for item in items:
        right = known.setdefault((item.image, item.target_object), item.solution)
        if right != item.solution:
            raise UserError(f"{path}: '{item.target_object}' is both in {item.image} and not in it")
    return items


#: ``Question.task`` of all of them.
TASK = "oric"
_SECOND_LINE: Mapping[Form, str] = {
    "plain": "Please answer the question based on the given image.",
    "cot": "Let's think step-by-step and then answer the question based on the given image.",
}


def plain_text(problem: str, form: Form = "plain") -> str:
    """A question in the form of a prompt."""
    return f"Question: {problem}\n{_SECOND_LINE[form]}"


def questions_of(
    items: Sequence[OricItem],
    files: Mapping[str, str],
    meta: Sequence[Mapping[str, Any]],
    form: Form = "plain",
    parser: str = "default",
    prompts: int = 4,
) -> Iterator[Question]:
    """One question for each item and wording.

    Args:
        items: of one set.
        files: path of each image, by the name that the items have.
        meta: of each item: ``split`` (name of the set) and what results are divided by.
        form: ``plain``, or ``cot``, a chain of thought.
        parser: reads the replies.
        prompts: how many of an item's wordings are used.
    """
    for item, known in zip(items, meta, strict=True):
        for number, problem in enumerate(item.problem[:prompts], 1):
            yield Question(
                question_id=f"{known['split']}/{item.id}/{number}",
                task=TASK,
                image=files[item.image],
                text=plain_text(problem, form),
                answer=item.solution,
                parser=parser,
                pair_id=item.image,
                meta={
                    "category": item.target_object,
                    "item": item.id,
                    "prompt": number,
                    **known,
                },
                reply="steps" if form == "cot" else "word",
            )


@dataclass(frozen=True)
class _Prediction:
    """A row of a file."""

    question_id: str | int
    predicted_answer: Any
    solution: Any = ""


def write_predictions(judgements: pd.DataFrame, folder: Path) -> None:
    """Writes ``predictions_<n>.json`` of each wording: ``question_id, predicted_answer, solution``.

    Args:
        judgements: of one set, see :func:`ood_lab.lvlm.answers.judgements.judge`.
        folder: where to.
    """
    for number, rows in judgements.groupby("prompt", sort=True):
        table = [
            # Of a cut reply without an answer, another parser would take some word for one.
            {
                "question_id": str(row["item"]),
                "predicted_answer": row["parsed"] or ("" if row["cut"] else row["reply"]),
                "solution": row["truth"],
            }
            for row in rows.to_dict("records")
        ]
        write_text(json.dumps(table, indent=4), folder / f"predictions_{number}.json")


def read_predictions(
    questions: Questions, paths: Sequence[Path], without: Collection[str] = ()
) -> dict[str, Answer]:
    """Answers by the id of the question, from one file of each wording.

    Args:
        questions: of one set; those of wordings without a file have no answer.
        paths: of wordings 1, 2, ...
        without: items that are not asked about, though files may have predictions for them.

    Raises:
        UserError: a file is missing or has other fields, another truth, or not exactly the items
            of the questions.
    """
    results: dict[str, Answer] = {}
    for number, path in enumerate(paths, 1):
        rows = read_json(path, list[_Prediction], "ORIC's predictions")
        said = {str(row.question_id): row for row in rows if str(row.question_id) not in without}
        known = {str(q.meta["item"]): q for q in questions if q.meta["prompt"] == number}
        # The file says neither what was asked nor about which image.
        other = sorted(known.keys() ^ said.keys()) or [
            item
            for item, question in known.items()
            if str(said[item].solution).strip().lower() not in ("", question.answer)
        ]
        if other:
            raise UserError(
                f"{path} has predictions for {len(said):,} items, and there are {len(known):,} "
                f"questions; item '{other[0]}' is in one of them only, or has another solution: "
                "these predictions are for other questions"
            )
        for item, question in known.items():
            reply = Reply("", str(said[item].predicted_answer))
            made_with = {"backend": "predictions", "model": path.stem}
            results[question.question_id] = answer_of(question, "", made_with, reply)
    return results


log = logging.getLogger(__name__)

_SPACES = "CLIPScores and least distances"
_FACTS = "sizes and P(object | context): there are no annotations (annotations=coco ...)"


@dataclass(frozen=True)
class PublishedSets:
    """A benchmark's published questions, and those of other files next to them.

    Attributes:
        sets: by name, the questions (``item, image, object, problem, label``) and their file.
        folder: of the images; None = that of the annotations.
        recorded: the answers are given, so that no model looks at an image.
        foreign_clip: a shipped CLIP may judge images that it knows nothing of.
        settings: the configuration.
    """

    sets: Mapping[str, tuple[pd.DataFrame, str]]
    folder: Path | None
    recorded: bool
    foreign_clip: bool
    settings: Settings

    @property
    def _bench(self) -> str:
        """The file of the benchmark."""
        return self.sets[ORIC][1]

    def check(self, groups: tuple[str, ...]) -> None:
        """Rejects images that are nowhere, and a shipped CLIP that knows nothing of them.

        Args:
            groups: of the CLIPs that judge them, ``clip`` or ``image_text``.

        Raises:
            UserError: neither a folder nor annotations are given, or there is such a CLIP.
        """
        if self.folder is None and not self.is_annotated and not self.recorded:
            raise UserError("task.bench: where are its images? Give task.images=DIR")
        if self._is_foreign:
            refuse_shipped(self.settings, self._bench, groups)

    @property
    def is_annotated(self) -> bool:
        """Whether the annotations are of these images; builtin ones are not of a given folder."""
        node = self.settings.get("annotations")
        return bool(node) and (self.folder is None or not is_builtin(node or {}))

    @property
    def _is_foreign(self) -> bool:
        """Whether a shipped CLIP knows nothing of the images."""
        builtin = self.is_annotated and is_builtin(self.settings["annotations"])
        return not self.foreign_clip and not builtin

    def read(
        self, annotations: Annotations | None, verdicts: Verdicts
    ) -> tuple[QuestionSets, pd.DataFrame]:
        """The sets without the benchmark's questions that people reject.

        Returns:
            The sets, and all of the benchmark's questions for people to look at, see
            :func:`~ood_lab.lvlm.benchmarks.oric.question_sets.audit_of`.

        Raises:
            UserError: the annotations say otherwise, an image is missing and no answers are
                given, the verdicts are on other questions, or none is left.
        """
        names = [name for questions, _ in self.sets.values() for name in questions["image"]]
        sets = QuestionSets.about(annotations, self.folder, names)
        for name, (questions, source) in self.sets.items():
            sets.add(name, questions, source)
        audit = audit_of(sets.sets[ORIC], verdicts)
        verdicts.check_questions(audit)
        kept = ~verdicts.rejects(audit)
        if not kept.any():
            raise UserError(f"{verdicts.path} rejects every question of {self._bench}")
        sets.sets[ORIC] = sets.sets[ORIC][kept].reset_index(drop=True)
        if not self.recorded and (lost := self._lost(sets)):
            raise UserError(f"{lost}: give their folder, task.images=DIR")
        return sets, audit

    def _lost(self, sets: QuestionSets) -> str:
        """How many images are missing, in words; empty where none is."""
        missing, images = sets.missing, f"{len(sets.rows):,} images of {self._bench}"
        if not missing:
            return ""
        where = f"'{missing[0].parent}' ('{missing[0].name}' for one)"
        return f"{len(missing):,} of the {images} are not in {where}"

    def without_space(self, sets: QuestionSets) -> str | None:
        """Why no CLIP can look at the images, in words; None where one can."""
        if lost := self._lost(sets):
            return lost
        if not self.settings.get("clip"):
            return "no CLIP is chosen (clip=vit_b32)"
        for label, knows in shipped_clips(self.settings, "clip") if self._is_foreign else ():
            return f"{label} knows only {knows}; choose a real CLIP (clip=vit_b32)"
        return None

    def unknown(self, without_space: str | None) -> list[str]:
        """What cannot be known of the questions, a sentence each, which is reported.

        Args:
            without_space: see the method of this name.
        """
        unknown = [f"{_SPACES}: {without_space}"] if without_space else []
        unknown += [] if self.is_annotated else [_FACTS]
        for item in unknown:
            log.warning("not known of %s: %s", self._bench, item)
        return unknown
