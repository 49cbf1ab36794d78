"""Questions of a run folder that was moved together with its images."""

from __future__ import annotations

import os
from dataclasses import replace
from functools import cache
from pathlib import Path

from ood_lab.lvlm.questions.question_files import Question, Questions
from ood_lab.schema.run_record import RunRecord


def with_images_found(questions: Questions, folder: Path) -> list[Question]:
    """The questions, with the paths of images that lie elsewhere than when they were written.

    An image that is not at its path is looked for where it would be if it had been moved together
    with the folder, of which the record says where it was. What is not there either keeps its
    path. Answers belong to the content of images, and are found again.

    Args:
        questions: of a file in the folder.
        folder: of the run.
    """
    written = RunRecord.read(folder, missing_ok=True).questions
    before = Path(written.file if written else "").parent
    if not before.is_absolute() or before == folder.absolute():
        return list(questions)

    @cache
    def found(image: str) -> str:
        if not Path(image).is_absolute() or Path(image).exists():
            return image
        moved = os.path.normpath(folder.absolute() / os.path.relpath(image, before))
        return moved if os.path.exists(moved) else image

    return [
        q
        if q.image is None
        else replace(q, image=found(q.image), more_images=[*map(found, q.more_images)])
        for q in questions
    ]
