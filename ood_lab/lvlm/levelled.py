"""Measured levels of shift for the images of a question set."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

from ood_lab.axes import LEVELS
from ood_lab.data.division import read_levels
from ood_lab.errors import UserError
from ood_lab.lvlm.questions import Question


def with_levels(questions: Sequence[Question], path: str | None) -> list[Question]:
    """The questions with the levels that ``task=divide`` measured, in place of any known ones.

    An image is found by the name of its file, as a division may know it from another folder.

    Args:
        questions: of any benchmark. Those without an image stay as they are.
        path: ``levels.parquet`` of a division; None = the questions stay as they are.

    Raises:
        UserError: the file is not one of levels, two of its images that differ in their levels
            share a name, or an image of a question is not among them.
    """
    if path is None:
        return list(questions)
    table = read_levels(path, "task.levels")
    table = table.assign(file=[Path(str(each)).name for each in table["path"]])
    table = table[["file", *LEVELS]].drop_duplicates()
    twice = table.loc[table["file"].duplicated(), "file"]
    if len(twice):
        raise UserError(
            f"task.levels={path} has several images called '{twice.iloc[0]}': images of questions "
            "are found by the names of their files"
        )
    rows = zip(table["file"], *(table[name] for name in LEVELS), strict=True)
    levels = {file: dict(zip(LEVELS, map(int, known), strict=True)) for file, *known in rows}
    images = {Path(question.image).name for question in questions if question.image is not None}
    if missing := sorted(images - levels.keys()):
        raise UserError(
            f"task.levels={path} has no level for {len(missing):,} of the {len(images):,} images "
            f"of the questions, the first of them '{missing[0]}': divide a pool that holds them all"
        )
    return [
        question
        if question.image is None
        else replace(question, meta={**question.meta, **levels[Path(question.image).name]})
        for question in questions
    ]
