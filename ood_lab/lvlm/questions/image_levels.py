"""Measured levels of shift for the images of a question set."""

from __future__ import annotations

import os
from collections.abc import Iterable, Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

import pandas as pd

from ood_lab.common.errors import UserError
from ood_lab.common.files import StrPath
from ood_lab.data.sources.file_facts import content_hashes
from ood_lab.data.sources.level_tables import read_levels
from ood_lab.lvlm.questions.question_files import Question, Questions
from ood_lab.schema.shift_axes import LEVELS


def with_levels(
    questions: Questions, source: Path, path: str | None, cache_dir: StrPath | None = None
) -> list[Question]:
    """The questions with the levels of ``task=shift_levels``, in place of any known ones.

    An image is found by its content (``sha256`` of the file), wherever it is and whatever it is
    called. An image of which the division knows no content is found by its absolute path.

    Args:
        questions: of any benchmark. Those without an image stay unchanged.
        source: folder from which the paths of their images start.
        path: ``levels.parquet`` of a division; None = the questions stay unchanged.
        cache_dir: remembers the sha256 of unchanged files; None = nothing is remembered.

    Raises:
        UserError: the file is not one of levels, it has two levels for one image, or an image of a
            question is not among its images, which includes another image of the same name.
    """
    if path is None:
        return list(questions)
    table = read_levels(path, "task.levels")
    hashes = table["sha256"].fillna("") if "sha256" in table else [""] * len(table)
    keys = [each or os.path.abspath(name) for each, name in zip(hashes, table["path"], strict=True)]
    known = table.assign(key=keys).drop_duplicates(["key", *LEVELS]).set_index("key")
    if (twice := known.index.duplicated()).any():
        name = known.loc[twice, "path"].iloc[0]
        raise UserError(f"task.levels={path} has two different levels for the image '{name}'")
    levels: Mapping[Any, Mapping[Any, int]] = known[[*LEVELS]].astype(int).to_dict("index")
    images = sorted({question.image for question in questions if question.image is not None})
    files = [os.path.abspath(source / image) for image in images]
    found = {
        image: levels.get(content) or levels.get(file)
        for image, file, content in zip(
            images, files, content_hashes(files, cache_dir), strict=True
        )
    }
    if missing := [image for image in images if found[image] is None]:
        raise UserError(
            f"task.levels={path} has no level for {len(missing):,} of the {len(images):,} images "
            f"of the questions, the first of them '{missing[0]}'{_namesakes(missing, table)}: "
            "divide a pool that holds these very images"
        )
    return [
        question
        if question.image is None
        else replace(question, meta={**question.meta, **(found[question.image] or {})})
        for question in questions
    ]


def _namesakes(missing: Iterable[str], table: pd.DataFrame) -> str:
    """How many of these have only their name in common with an image of the division, in words."""
    names = {Path(str(name)).name for name in table["path"]}
    count = sum(Path(image).name in names for image in missing)
    return f" ({count:,} have the name of an image there, but are other files)" if count else ""
