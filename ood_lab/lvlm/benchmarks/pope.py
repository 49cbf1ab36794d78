"""POPE's published questions."""

from __future__ import annotations

from dataclasses import dataclass, replace
from pathlib import Path

from ood_lab.common.errors import UserError
from ood_lab.lvlm.questions.question_files import (
    RESAMPLED,
    YES_NO,
    Question,
    Questions,
    existing,
    image_in,
    read_json_list,
    yes_or_no,
)


@dataclass(frozen=True)
class PopeFiles:
    """Files ``*_random.json``, ``*_popular.json`` and ``*_adversarial.json``, one record a line.

    A record has ``question_id, image, text, label``. A file is a set of its own, named after the
    last part of its name; intervals resample images, which the files share. The source's script
    counts over all questions of a file, with yes as the positive class, and rounds nothing.

    Args:
        path: folder of the files, or one of them.
        images: folder that the names of images start from.

    Raises:
        UserError: a file, an image or an entry is missing.
    """

    path: str
    images: str

    def questions(self) -> Questions:
        """See the class."""
        place, images = existing(self.path), existing(self.images)
        files = sorted(place.glob("*.json")) if place.is_dir() else [place]
        if not files:
            raise UserError(f"'{place}' has no file *.json: give POPE's output/coco, for example")
        return [
            replace(question, image=image_in(images, str(question.image), file))
            for file in files
            for question in pope_questions(file)
        ]


def pope_questions(file: Path) -> Questions:
    """The questions of a file of POPE; images are named as there.

    Raises:
        UserError: it is missing, is no such file, or an entry is missing.
    """
    rows = read_json_list(file, ("question_id", "image", "text", "label"))
    return [
        Question(
            question_id=f"{file.stem}/{row['question_id']}",
            task=YES_NO,
            image=str(row["image"]),
            text=str(row["text"]),
            answer=yes_or_no(row["label"], f"{file}, record {number}"),
            parser="pope",
            pair_id=f"{file.stem}/{row['image']}",
            meta={"split": split_of(file), RESAMPLED: str(row["image"])},
        )
        for number, row in enumerate(rows, 1)
    ]


def split_of(file: Path) -> str:
    """The set that a file of POPE holds: the last part of its name."""
    return file.stem.rsplit("_", 1)[-1]
