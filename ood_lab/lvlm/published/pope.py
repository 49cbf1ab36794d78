"""POPE (arXiv 2305.10355): is an object there that is not, chosen at random or to be tempting?"""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

from ood_lab.errors import UserError
from ood_lab.lvlm.published.source import entry, existing, image_in, read_json_list, yes_or_no
from ood_lab.lvlm.questions import Question
from ood_lab.lvlm.yes_no import YES_NO


@dataclass(frozen=True)
class PopeFiles:
    """Files ``*_random.json``, ``*_popular.json`` and ``*_adversarial.json``, one record a line.

    A record has ``question_id, image, text, label``. A file is a set of its own, named after the
    last part of its name. The source's script counts over all questions of a file, with yes as the
    positive class, and rounds nothing.

    Args:
        path: folder of the files, or one of them.
        images: folder that the names of images start from.

    Raises:
        UserError: a file, an image or an entry is missing.
    """

    path: str
    images: str

    def questions(self) -> list[Question]:
        """See the class."""
        place, images = existing(self.path), existing(self.images)
        files = sorted(place.glob("*.json")) if place.is_dir() else [place]
        if not files:
            raise UserError(f"'{place}' has no file *.json: give POPE's output/coco, for example")
        return [question for file in files for question in _read(file, images)]


def _read(file: Path, images: Path) -> list[Question]:
    split = file.stem.rsplit("_", 1)[-1]
    found = []
    for number, row in enumerate(read_json_list(file), 1):
        name, image = f"{file.stem}/{entry(row, 'question_id', file, number)}", row.get("image")
        found.append(
            Question(
                question_id=name,
                task=YES_NO,
                image=image_in(images, str(image), file),
                text=str(entry(row, "text", file, number)),
                answer=yes_or_no(entry(row, "label", file, number), file, number),
                parser="pope",
                pair_id=f"{file.stem}/{image}",
                meta={"split": split},
            )
        )
    return found
