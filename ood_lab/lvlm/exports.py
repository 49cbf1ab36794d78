"""Questions in the formats of other evaluation packages."""

from __future__ import annotations

import base64
import csv
import io
import json
from collections.abc import Sequence
from pathlib import Path
from typing import Literal

from ood_lab.errors import UserError
from ood_lab.io import write_text
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
    aggregation: mean
    higher_is_better: true
"""
_LMMS_UTILS = '''\
"""What lmms-eval calls for each question; answers are read by ood_lab's parsers."""

from PIL import Image

from ood_lab.lvlm.parsers import parser_named


def doc_to_visual(doc):
    with Image.open(doc["image"]) as image:
        return [image.convert("RGB")]


def doc_to_text(doc, lmms_eval_specific_kwargs=None):
    return doc["text"]


def process_results(doc, results):
    right = float(parser_named(doc["parser"])(results[0]) == doc["answer"])
    return {metric: right for metric in doc["metrics"]}
'''


def export(
    questions: Sequence[Question], source: Path, folder: Path, name: str, form: Format
) -> list[Path]:
    """Writes questions for another package.

    Args:
        questions: what is asked.
        source: folder from which the paths of their images start.
        folder: where to; made if missing.
        name: of the task.
        form: ``vlmevalkit`` (a TSV with images inside), ``lmms_eval`` (YAML, JSONL and a module)
            or ``pope`` (JSONL of the yes/no questions).

    Returns:
        The files.

    Raises:
        UserError: an image cannot be read, or there is no question that the format can hold.
    """
    writers = {"vlmevalkit": _vlmevalkit, "lmms_eval": _lmms_eval, "pope": _pope}
    with_image = [question for question in questions if question.image is not None]
    if not with_image:
        raise UserError(f"no question has an image: there is nothing to export as {form}")
    return writers[form](with_image, source, folder, name)


def _vlmevalkit(questions: Sequence[Question], source: Path, folder: Path, name: str) -> list[Path]:
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
    file = folder / f"{name}.tsv"
    write_text(buffer.getvalue(), file)
    return [file]


def _lmms_eval(questions: Sequence[Question], source: Path, folder: Path, name: str) -> list[Path]:
    lines = [
        json.dumps(
            {
                "question_id": question.question_id,
                "image": str((source / str(question.image)).absolute()),
                "text": question.text,
                "answer": question.answer,
                "parser": question.parser,
                "metrics": _metrics(question),
                "split": str(question.meta.get("split", "")),
                "category": str(question.meta.get("category", "")),
            }
        )
        for question in questions
    ]
    data, yaml, module = (folder / f for f in (f"{name}.jsonl", f"{name}.yaml", "utils.py"))
    write_text("".join(f"{line}\n" for line in lines), data)
    metrics = sorted({metric for question in questions for metric in _metrics(question)})
    task = _LMMS_YAML.format(name=name, folder=folder, data=data.absolute())
    write_text(task + "".join(_LMMS_METRIC.format(name=metric) for metric in metrics), yaml)
    write_text(_LMMS_UTILS, module)
    return [yaml, data, module]


def _metrics(question: Question) -> list[str]:
    """Accuracies that a question counts for: of its kind, and of its split where it has one."""
    whole = f"accuracy_{question.task}"
    split = question.meta.get("split")
    return [whole] if split is None else [whole, f"{whole}_{split}"]


def _pope(questions: Sequence[Question], source: Path, folder: Path, name: str) -> list[Path]:
    asked = [question for question in questions if question.answer in ("yes", "no")]
    lines = [
        json.dumps(
            {
                "question_id": number,
                "image": Path(str(question.image)).name,
                "text": question.text,
                "label": question.answer,
            }
        )
        for number, question in enumerate(asked, 1)
    ]
    file = folder / f"{name}.json"
    write_text("".join(f"{line}\n" for line in lines), file)
    return [file]


def _encoded(image: Path) -> str:
    try:
        return base64.b64encode(image.read_bytes()).decode("ascii")
    except OSError as error:
        raise UserError(f"the image '{image}' cannot be read: {error}") from error
