"""MME (arXiv 2306.13394): two questions about every image, one with the answer yes."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from ood_lab.common.errors import UserError
from ood_lab.lvlm.questions.question_files import YES_NO, Question, Questions, existing, yes_or_no

_IMAGES = (".jpg", ".jpeg", ".png")


@dataclass(frozen=True)
class MmeFiles:
    """A folder for each subtask, with a text file for each image: lines ``question<TAB>answer``.

    Text files are next to the images, or in ``questions_answers_YN`` with the images in
    ``images``, as published. ``accuracy`` is that of all questions of a subtask,
    ``accuracy_plus`` the share of images both of whose questions are right; a subtask's ``score``
    is the sum of the two in percent, at most 200. Perception sums ten subtasks, at most 2,000, and
    cognition four, at most 800.

    Args:
        path: folder of the subtasks.

    Raises:
        UserError: a folder or an image is missing, or a line has no answer.
    """

    path: str

    def questions(self) -> Questions:
        """See the class."""
        place = existing(self.path)
        results = [
            q for folder in sorted(place.iterdir()) if folder.is_dir() for q in _read(folder)
        ]
        if not results:
            raise UserError(f"'{place}' has no folder with text files of questions")
        return results


def _read(folder: Path) -> Iterator[Question]:
    asked, shown = folder / "questions_answers_YN", folder / "images"
    texts = sorted((asked if asked.is_dir() else folder).glob("*.txt"))
    for file in texts:
        image = _image(shown if shown.is_dir() else folder, file)
        lines = file.read_text(encoding="utf-8").splitlines()
        for number, line in enumerate(filter(str.strip, lines), 1):
            text, tab, answer = line.rpartition("\t")
            if not tab:
                raise UserError(f"{file}, line {number}: expected a question, a tab and an answer")
            yield Question(
                question_id=f"{folder.name}/{file.stem}/{number}",
                task=YES_NO,
                image=str(image),
                text=text.strip(),
                answer=yes_or_no(answer, f"{file}, record {number}"),
                pair_id=f"{folder.name}/{file.stem}",
                meta={"split": folder.name, "picture": f"{folder.name}/{file.stem}"},
            )


def _image(folder: Path, file: Path) -> Path:
    for ending in _IMAGES:
        if (image := folder / f"{file.stem}{ending}").is_file():
            return image
    raise UserError(f"{file} has no image '{file.stem}' in '{folder}' ({', '.join(_IMAGES)})")
