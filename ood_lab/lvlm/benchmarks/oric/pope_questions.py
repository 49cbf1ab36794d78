"""POPE's questions (arXiv 2305.10355) next to ORIC's: published, or from the same annotations."""

from __future__ import annotations

import re
from pathlib import Path

import pandas as pd

from ood_lab.common.errors import UserError
from ood_lab.lvlm.annotations.image_contents import Contents
from ood_lab.lvlm.benchmarks.oric.published_files import Item, problem_of
from ood_lab.lvlm.benchmarks.pope.published_files import pope_records, split_of
from ood_lab.lvlm.benchmarks.pope.question_drawing import SAMPLINGS, Pope, Sampling

_PER_IMAGE = 3
_TEXT = re.compile(r"Is there an? (.+) in the image\?")


def sampling_of(given: str) -> Sampling:
    """The sampling that an entry of ``task.pope`` names, or that its file was drawn with.

    Raises:
        UserError: neither.
    """
    for name in SAMPLINGS:
        if given == name or (Path(given).is_file() and split_of(Path(given)) == name):
            return name
    raise UserError(
        f"task.pope={given}: give {', '.join(SAMPLINGS)}, or a file of POPE whose name ends in one "
        "of these, such as coco_pope_random.json"
    )


def read_pope(file: Path) -> list[Item]:
    """POPE's published questions as items: in their own words first, then in ORIC's others.

    All sets of a run are so asked in the same wordings, and differ by what they ask about.

    Raises:
        UserError: see :func:`~ood_lab.lvlm.benchmarks.pope.published_files.pope_records`, or a text
            is worded otherwise than POPE's.
    """
    items = []
    for number, row in enumerate(pope_records(file), 1):
        found = _TEXT.fullmatch(row.text)
        if found is None:
            raise UserError(
                f"{file}, record {number}: '{row.text}' is not worded as POPE's questions are "
                "(Is there a dog in the image?)"
            )
        problem = [row.text, *problem_of(found[1])[1:]]
        items.append(Item(number, row.image, found[1], problem, row.answer))
    return items


def pope_of(contents: Contents, sampling: Sampling, questions: int, seed: int) -> pd.DataFrame:
    """POPE's questions from the same annotations, as many as ORIC has."""
    images = max(1, -(-questions // (2 * _PER_IMAGE)))
    return Pope(images=images).build(contents, sampling, seed)
