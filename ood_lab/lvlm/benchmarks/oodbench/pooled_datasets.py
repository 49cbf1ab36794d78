"""Questions about several data sets, each with its own labels and division, asked together."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

from ood_lab.common.errors import UserError
from ood_lab.common.files import read_config
from ood_lab.lvlm.benchmarks.oodbench.scoring import DATASET
from ood_lab.lvlm.questions.question_files import Question, read_questions
from ood_lab.lvlm.questions.relocated_images import with_images_found
from ood_lab.schema.run_record import RunRecord

#: Settings that must be the same: counts are added up over the data sets.
_SAME = (
    *("case1", "combine", "threshold", "id_pairing", "most_pairs"),
    *("form", "cot_article", "bap_per_image", "uncut"),
)


def built_datasets(files: Sequence[str]) -> dict[str, dict[str, Any]]:
    """What the runs that built these files say of them, by the name of their annotations.

    Args:
        files: ``questions.jsonl`` of two or more runs of ``task=oodbench``.

    Raises:
        UserError: a file is not in such a run, two data sets have the same name, or the runs
            differ in their rule, their questions or their image-text models.
    """
    found: dict[str, dict[str, Any]] = {}
    first: tuple[Path, dict[str, Any]] | None = None
    for file in map(Path, files):
        about = RunRecord.read(file.parent, missing_ok=True)
        if not about.division or not (file.parent / "config.yaml").is_file():
            raise UserError(
                f"task.datasets: {file} is not in the folder of a run of task=oodbench that "
                "divided a data set"
            )
        name = str(about.annotations["name"])
        if name in found:
            raise UserError(
                f"task.datasets: {found[name]['file']} and {file} are both of '{name}': build one "
                "of them with another annotations.name=..."
            )
        task = read_config(file.parent)["task"]
        settings = {f"task.{key}": task.get(key, False) for key in _SAME}
        settings |= {"image_text": about.image_text}
        if first is None:
            first = file, settings
        for key, value in settings.items():
            if value != first[1][key]:
                words = "" if key == "image_text" else f" ({first[1][key]} and {value})"
                raise UserError(
                    f"task.datasets: {first[0]} and {file} were built with another {key}{words}: "
                    "counts are added up over data sets that were divided and asked alike"
                )
        facts = about.model_dump(include={"annotations", "division", "image_text"})
        found[name] = {"file": str(file.absolute()), **facts}
    if len(found) < 2:
        raise UserError("task.datasets: give two or more files; a single one is task.questions")
    return found


def questions_of_datasets(built: Mapping[str, Mapping[str, Any]]) -> Iterator[Question]:
    """All of their questions; ids and images begin with the name of the data set.

    Args:
        built: see :func:`built_datasets`.
    """
    for name, about in built.items():
        file = Path(str(about["file"]))
        for question in with_images_found(read_questions(file), file.parent):
            pair, image = question.pair_id or question.question_id, question.meta["image"]
            yield replace(
                question,
                question_id=f"{name}/{question.question_id}",
                pair_id=f"{name}/{pair}",
                image=str((file.parent / str(question.image)).absolute()),
                meta={**question.meta, DATASET: name, "image": f"{name}/{image}"},
            )
