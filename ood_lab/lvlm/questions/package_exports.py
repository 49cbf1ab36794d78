"""Questions in the formats of other evaluation packages."""

from __future__ import annotations

import base64
import json
import logging
import os
import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from importlib.resources import files
from pathlib import Path
from string import Template
from typing import Literal

import pandas as pd

from ood_lab.common.errors import UserError, reported_as
from ood_lab.common.files import write_text
from ood_lab.common.line_files import write_records
from ood_lab.lvlm.parsers import NO, PARSERS, YES
from ood_lab.lvlm.questions.question_files import LONGEST, Question, Questions
from ood_lab.lvlm.questions.question_forms import COT, apart

log = logging.getLogger(__name__)

Format = Literal["vlmevalkit", "lmms_eval", "pope"]


@dataclass(frozen=True)
class GroupMetric:
    """A metric that counts groups of questions: one is right if all that it needs are.

    Args:
        needs: kinds of questions that a group must have, and that must be answered right; a
            group that lacks one of them is not counted.
        key: in ``meta``, of the group; None = the group is what shares a ``pair_id``.
        alone: whether these questions also count for the accuracy of their kind.
    """

    needs: Sequence[str]
    key: str | None = None
    alone: bool = False

    def group(self, question: Question) -> str | None:
        """Name of the group of a question; None where it counts for none."""
        if question.task not in self.needs:
            return None
        if self.key is None:
            return question.pair_id or question.question_id
        group = question.meta.get(self.key)
        return None if group is None else str(group)


#: By name.
GroupMetrics = Mapping[str, GroupMetric]
#: A metric at the end of the task.
_LMMS_METRIC = """\
  - metric: {name}
    aggregation: {aggregation}
    higher_is_better: true
"""
#: Of the tasks' names there, since lmms-eval has a ``pope`` and an ``mme`` of its own.
LMMS_PREFIX = "ood_lab_"
#: What becomes of the answers to single questions, and of those to groups of them.
_MEAN, _SHARE = "mean", "!function utils.share_of_groups"


def export(
    questions: Questions,
    source: Path,
    folder: Path,
    name: str,
    form: Format,
    wholes: GroupMetrics | None = None,
) -> list[Path]:
    """Writes questions for another package.

    A file has questions of one kind (yes or no, counts, ...), since other packages score a file by
    one rule. The task of lmms-eval has all that a parser reads, no captions: its metrics are the
    accuracy of every kind and of ``wholes``, over all questions and over each set, where an
    unparsed answer counts as wrong. What a format cannot hold is skipped, with a message.

    Args:
        questions: to be written.
        source: folder from which the paths of their images start.
        folder: where to; made if missing.
        name: of the task.
        form: ``vlmevalkit`` (TSVs with images inside), ``lmms_eval`` (YAML, JSONL and a module)
            or ``pope`` (JSONL of questions with yes or no as an answer).
        wholes: metrics of groups of questions, by name.

    Returns:
        The files.

    Raises:
        UserError: an image cannot be read, or there is no question that the format can hold.
    """
    with_image = [question for question in questions if len(question.images) == 1]
    if not with_image:
        raise UserError(f"no question has an image: there is nothing to export as {form}")
    kept = [question for question in with_image if _HOLDS[form](question)]
    if not kept:
        raise UserError(f"no question has yes or no as its answer: {form} has no other kind")
    if len(kept) < len(questions):
        log.info(
            "%s has no place for %d questions (no image or several, a caption): left out",
            form,
            len(questions) - len(kept),
        )
    if form == "lmms_eval":
        return _lmms_eval(kept, source, folder, name, wholes or {})
    write, ending = (_vlmevalkit, "tsv") if form == "vlmevalkit" else (_pope, "json")
    return [
        write([q for q in kept if q.task == kind], source, folder / f"{name}_{kind}.{ending}")
        for kind in dict.fromkeys(question.task for question in kept)
    ]


def export_forms(
    questions: Questions,
    source: Path,
    folder: Path,
    name: str,
    forms: Sequence[Format],
    wholes: GroupMetrics,
) -> None:
    """Writes questions in several formats, those with a chain of thought in folders of their own.

    Args:
        questions: to be written, in one form or in both.
        source: folder from which the paths of their images start.
        folder: of a folder for each format.
        name: of the task.
        forms: see :func:`export`.
        wholes: see :func:`export`.
    """
    first, beside = apart(questions)
    for form in forms:
        export(first, source, folder / form, name, form, wholes)
        log.info("questions for %s: %s", form, folder / form)
        if beside:
            place = folder / f"{form}_{COT}"
            export(beside, source, place, f"{name}_{COT}", form, wholes)
            log.info("the same with a chain of thought: %s", place)


#: Which questions a format can hold.
_HOLDS: Mapping[Format, Callable[[Question], bool]] = {
    "vlmevalkit": lambda question: True,
    "lmms_eval": lambda question: question.parser in PARSERS,
    "pope": lambda question: question.answer in (YES, NO),
}


def _vlmevalkit(questions: Questions, source: Path, file: Path) -> Path:
    """``index, image, question, answer, category, l2-category``; an image is there once."""
    columns = ["index", "image", "question", "answer", "category", "l2-category"]
    rows, first = [], dict[str, int]()
    for index, question in enumerate(questions):
        image = str(question.image)
        # VLMEvalKit reads a short "image" as the index of the row that holds it.
        shown = str(first[image]) if image in first else _encoded(source / image)
        first.setdefault(image, index)
        category, split = (str(question.meta.get(k, "")) for k in ("category", "split"))
        rows.append((index, shown, question.text, question.answer.capitalize(), split, category))
    table = pd.DataFrame(rows, columns=columns)
    write_text(table.to_csv(sep="\t", index=False, lineterminator="\n"), file)
    return file


def _lmms_eval(
    questions: Questions, source: Path, folder: Path, name: str, wholes: GroupMetrics
) -> list[Path]:
    name = f"{LMMS_PREFIX}{name}"
    metrics: dict[str, Sequence[str] | None] = {}
    records = []
    for question in questions:
        counts_for = list(_metrics(question, wholes))
        metrics |= {metric: needs for metric, needs, _ in counts_for}
        record = {
            "question_id": question.question_id,
            "image": str((source / str(question.image)).absolute()),
            "text": question.text,
            "answer": question.answer,
            "parser": question.parser,
            "task": question.task,
            "metrics": [metric for metric, _, _ in counts_for],
            "groups": [group for _, _, group in counts_for],
            "split": str(question.meta.get("split", "")),
            "category": str(question.meta.get("category", "")),
        }
        records.append(record)
    data, yaml, module = (folder / f for f in (f"{name}.jsonl", f"{name}.yaml", "utils.py"))
    write_records(records, data)
    rows = [
        _LMMS_METRIC.format(name=metric, aggregation=_SHARE if metrics[metric] else _MEAN)
        for metric in sorted(metrics)
    ]
    longest = max(LONGEST[question.reply] for question in questions)
    task = _lmms_file("task.yaml", name=name, folder=folder, data=data.absolute(), longest=longest)
    write_text(task + "".join(rows), yaml)
    shares = {metric: tasks for metric, tasks in metrics.items() if tasks}
    write_text(_lmms_file("utils.py", needs=json.dumps(shares)), module)
    return [yaml, data, module]


def _lmms_file(file: str, **values: object) -> str:
    """A file of a task of lmms-eval, with its values filled in."""
    template = files(__package__).joinpath("lmms_eval", f"{file}.txt").read_text(encoding="utf-8")
    return Template(template).substitute(values)


def _metrics(
    question: Question, wholes: GroupMetrics
) -> Iterator[tuple[str, Sequence[str] | None, str]]:
    """What a question counts for, on the whole and in its set.

    Yields:
        The metric, what else its groups need (None: it is no metric of groups), and the group.
    """
    results: list[tuple[str, Sequence[str] | None, str]] = []
    own = {name: whole for name, whole in wholes.items() if whole.group(question) is not None}
    if all(whole.alone for whole in own.values()):
        results.append((f"accuracy_{question.task}", None, ""))
    results += [(name, whole.needs, str(whole.group(question))) for name, whole in own.items()]
    split = question.meta.get("split")
    ends = ("",) if split is None else ("", f"_{re.sub(r'[^A-Za-z0-9_.-]+', '_', str(split))}")
    for metric, needs, group in results:
        for end in ends:
            yield f"{metric}{end}", needs, group


def _pope(questions: Questions, source: Path, file: Path) -> Path:
    images = [(source / str(question.image)).absolute() for question in questions]
    root = os.path.commonpath([image.parent for image in images])
    records = [
        {
            "question_id": number,
            "image": str(image.relative_to(root)),
            "text": question.text,
            "label": question.answer,
        }
        for number, (question, image) in enumerate(zip(questions, images, strict=True), 1)
    ]
    write_records(records, file)
    log.info("the images of %s are in %s", file, root)
    return file


def _encoded(image: Path) -> str:
    with reported_as(f"the image '{image}' cannot be read: {{reason}}", OSError):
        return base64.b64encode(image.read_bytes()).decode("ascii")
