"""Questions in the formats of other evaluation packages."""

from __future__ import annotations

import base64
import csv
import io
import json
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Literal

from ood_lab.errors import UserError
from ood_lab.io import write_text
from ood_lab.lvlm.oodbench.scoring import bap_needs
from ood_lab.lvlm.parsers import NO, YES
from ood_lab.lvlm.questions import Question

Format = Literal["vlmevalkit", "lmms_eval", "pope"]

_LMMS_YAML = """\
# lmms-eval: python -m lmms_eval --tasks {name} --include_path {folder} --model ...
task: {name}
dataset_path: json
dataset_kwargs:
  data_files:
    test: {data}
test_split: test
output_type: generate_until
doc_to_visual: !function utils.doc_to_visual
doc_to_text: !function utils.doc_to_text
doc_to_target: answer
generation_kwargs:
  max_new_tokens: 64
  temperature: 0
  do_sample: false
process_results: !function utils.process_results
metadata:
  - version: 1.0
metric_list:
"""
_LMMS_METRIC = """\
  - metric: {name}
    aggregation: {aggregation}
    higher_is_better: true
"""
#: What becomes of the answers to single questions, and of those to the questions of a BAP sample.
_MEAN, _SHARE = "mean", "!function utils.share_of_samples"
_LMMS_UTILS = '''\
"""What lmms-eval calls for each question; answers are read by ood_lab's parsers."""

from PIL import Image, ImageOps

from ood_lab.lvlm.parsers import parser_named

#: By metric: kinds of questions of a sample that must all be answered right for it to count.
NEEDS = {needs}


def doc_to_visual(doc):
    with Image.open(doc["image"]) as image:
        return [ImageOps.exif_transpose(image).convert("RGB")]


def doc_to_text(doc, lmms_eval_specific_kwargs=None):
    return doc["text"]


def process_results(doc, results):
    right = float(parser_named(doc["parser"])(results[0]) == doc["answer"])
    answer = {{"sample": doc["sample"], "task": doc["task"], "right": right}}
    return {{
        metric: {{**answer, "needs": NEEDS[metric]}} if metric in NEEDS else right
        for metric in doc["metrics"]
    }}


def share_of_samples(answers):
    """Of the samples with all their questions, the share in which all are answered right."""
    samples = {{}}
    for answer in answers:
        samples.setdefault(answer["sample"], {{}})[answer["task"]] = answer["right"]
    needs = answers[0]["needs"]
    whole = [found for found in samples.values() if set(needs) <= set(found)]
    return sum(all(found[task] for task in needs) for found in whole) / max(len(whole), 1)
'''


def export(
    questions: Sequence[Question],
    source: Path,
    folder: Path,
    name: str,
    form: Format,
    gate_c_on_e: bool = False,
) -> list[Path]:
    """Writes questions for another package.

    A file has questions of one kind (yes or no, counts, ...), since other packages score a file by
    one rule. The task of lmms-eval has all of them: its metrics are those of
    :func:`ood_lab.lvlm.oodbench.scoring.results_of` where an unparsed answer counts as wrong.

    Args:
        questions: what is asked.
        source: folder from which the paths of their images start.
        folder: where to; made if missing.
        name: of the task.
        form: ``vlmevalkit`` (TSVs with images inside), ``lmms_eval`` (YAML, JSONL and a module)
            or ``pope`` (JSONL of questions with yes or no as an answer).
        gate_c_on_e: see :func:`ood_lab.lvlm.oodbench.scoring.bap_table`.

    Returns:
        The files.

    Raises:
        UserError: an image cannot be read, or there is no question that the format can hold.
    """
    with_image = [question for question in questions if question.image is not None]
    if not with_image:
        raise UserError(f"no question has an image: there is nothing to export as {form}")
    if form == "lmms_eval":
        return _lmms_eval(with_image, source, folder, name, bap_needs(gate_c_on_e))
    files = []
    for kind in dict.fromkeys(question.task for question in with_image):
        part = [question for question in with_image if question.task == kind]
        if form == "vlmevalkit":
            files.append(_vlmevalkit(part, source, folder / f"{name}_{kind}.tsv"))
        elif all(question.answer in (YES, NO) for question in part):
            files.append(_pope(part, folder / f"{name}_{kind}.json"))
    if not files:
        raise UserError(f"no question has yes or no as its answer: {form} has no other kind")
    return files


def _vlmevalkit(questions: Sequence[Question], source: Path, file: Path) -> Path:
    """``index, image, question, answer, category, l2-category``; an image is there once."""
    buffer = io.StringIO()
    columns = ["index", "image", "question", "answer", "category", "l2-category"]
    table = csv.writer(buffer, delimiter="\t", lineterminator="\n")
    table.writerow(columns)
    first: dict[str, int] = {}
    for index, question in enumerate(questions):
        image = str(question.image)
        # VLMEvalKit reads a short "image" as the index of the row that holds it.
        shown = str(first[image]) if image in first else _encoded(source / image)
        first.setdefault(image, index)
        category, split = (str(question.meta.get(k, "")) for k in ("category", "split"))
        answer = question.answer.capitalize()
        table.writerow([index, shown, question.text, answer, split, category])
    write_text(buffer.getvalue(), file)
    return file


def _lmms_eval(
    questions: Sequence[Question],
    source: Path,
    folder: Path,
    name: str,
    needs: Mapping[str, Sequence[str]],
) -> list[Path]:
    lines = [
        json.dumps(
            {
                "question_id": question.question_id,
                "image": str((source / str(question.image)).absolute()),
                "text": question.text,
                "answer": question.answer,
                "parser": question.parser,
                "task": question.task,
                "sample": question.pair_id or question.question_id,
                "metrics": list(_metrics(question, needs)),
                "split": str(question.meta.get("split", "")),
                "category": str(question.meta.get("category", "")),
            }
        )
        for question in questions
    ]
    data, yaml, module = (folder / f for f in (f"{name}.jsonl", f"{name}.yaml", "utils.py"))
    write_text("".join(f"{line}\n" for line in lines), data)
    metrics: dict[str, Sequence[str] | None] = {}
    for question in questions:
        metrics |= _metrics(question, needs)
    rows = [
        _LMMS_METRIC.format(name=metric, aggregation=_SHARE if metrics[metric] else _MEAN)
        for metric in sorted(metrics)
    ]
    task = _LMMS_YAML.format(name=name, folder=folder, data=data.absolute())
    write_text(task + "".join(rows), yaml)
    shares = {metric: tasks for metric, tasks in metrics.items() if tasks}
    write_text(_LMMS_UTILS.format(needs=json.dumps(shares)), module)
    return [yaml, data, module]


def _metrics(
    question: Question, needs: Mapping[str, Sequence[str]]
) -> dict[str, Sequence[str] | None]:
    """What a question counts for, on the whole and in its split, and what else that needs.

    A question of a BAP sample counts for the shares of samples that need it, any other for the
    accuracy of its kind.
    """
    found: dict[str, Sequence[str] | None] = {
        metric: tasks for metric, tasks in needs.items() if question.task in tasks
    }
    found = found or {f"accuracy_{question.task}": None}
    split = question.meta.get("split")
    ends = ("",) if split is None else ("", f"_{split}")
    return {f"{metric}{end}": tasks for metric, tasks in found.items() for end in ends}


def _pope(questions: Sequence[Question], file: Path) -> Path:
    lines = [
        json.dumps(
            {
                "question_id": number,
                "image": Path(str(question.image)).name,
                "text": question.text,
                "label": question.answer,
            }
        )
        for number, question in enumerate(questions, 1)
    ]
    write_text("".join(f"{line}\n" for line in lines), file)
    return file


def _encoded(image: Path) -> str:
    try:
        return base64.b64encode(image.read_bytes()).decode("ascii")
    except OSError as error:
        raise UserError(f"the image '{image}' cannot be read: {error}") from error
