"""What the readers of published files share."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any, Protocol

from ood_lab.common.errors import UserError
from ood_lab.common.hints import missing_path
from ood_lab.lvlm.questions.question_files import Questions


class QuestionSource(Protocol):
    """Files that questions are read from.

    Attributes:
        path: of the files, or of their folder.
    """

    @property
    def path(self) -> str:
        """See the class."""

    def questions(self) -> Questions:
        """Reads them.

        Raises:
            UserError: a file is missing, or is not of the published layout.
        """


def existing(path: str | Path) -> Path:
    """A path that is there.

    Raises:
        UserError: it is not.
    """
    results = Path(path)
    if not results.exists():
        raise missing_path(results)
    return results.absolute()


def read_json_list(file: Path) -> list[dict[str, Any]]:
    """A JSON list of records, or one record a line.

    Raises:
        UserError: it is neither.
    """
    text = existing(file).read_text(encoding="utf-8")
    try:
        if text.lstrip().startswith("["):
            rows = json.loads(text)
        else:
            rows = [json.loads(line) for line in text.splitlines() if line.strip()]
    except ValueError as error:
        raise UserError(f"{file} is neither a JSON list nor one record a line: {error}") from error
    if not rows or not all(isinstance(row, dict) for row in rows):
        raise UserError(f"{file} has no records")
    return rows


def entry(row: dict[str, Any], key: str, file: Path, number: int) -> Any:
    """An entry of a record.

    Raises:
        UserError: it has none; names file and record.
    """
    if key not in row:
        raise UserError(f"{file}, record {number}: there is no '{key}'; it has {', '.join(row)}")
    return row[key]


def image_in(folder: Path, name: str, file: Path) -> str:
    """The path of an image.

    Raises:
        UserError: it is not there.
    """
    path = folder / name
    if not path.is_file():
        raise UserError(f"{file} names '{name}', which is not in '{folder}': give its folder")
    return str(path)
