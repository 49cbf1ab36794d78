"""Questions as people write them down: JSON lines, a JSON list, CSV, and VLMEvalKit's TSV."""

from __future__ import annotations

import base64
import binascii
import csv
import hashlib
import io
import json
import re
import sys
from collections.abc import Iterator, Mapping
from pathlib import Path
from string import ascii_uppercase
from typing import Any

from PIL import Image

from ood_lab.common.arguments import Fields
from ood_lab.common.errors import UserError, reported_as
from ood_lab.common.files import replaced

#: An image that stands in a table: no path is so long without a full stop.
_BASE64 = re.compile(r"(?:data:[\w/+.-]+;base64,)?[A-Za-z0-9+/=\s]{64,}")


def records_of(path: Path, pictures: Path | None = None) -> Iterator[tuple[Fields, str]]:
    """The records of a file, each with its place for errors.

    The ending says what it is: ``.csv``, ``.tsv``, ``.json`` (a list), else a record a line. Empty
    lines and a byte order mark are passed over.

    Args:
        path: the file.
        pictures: folder for images that a table contains; made if missing. None = they are named,
            and not written.

    Raises:
        UserError: a line is no record; names it.
    """
    problem = f"{path} is not a text in UTF-8: save it again in that encoding"
    with reported_as(problem, UnicodeDecodeError):
        text = path.read_text(encoding="utf-8-sig")
    if path.suffix.lower() in (".csv", ".tsv"):
        with reported_as(f"{path} is no table: {{reason}}", csv.Error):
            yield from _table(path, text, pictures)
    elif text.lstrip().startswith("["):
        for number, record in enumerate(_json(text, str(path)), 1):
            yield _record(record, f"{path}, record {number}")
    else:
        for number, line in enumerate(text.split("\n"), 1):
            if line.strip():
                where = f"{path}, line {number}"
                yield _record(_json(line, where), where)


def _json(text: str, where: str) -> Any:
    try:
        return json.loads(text)
    except ValueError as error:
        place = "column 1"  # a number with too many digits has no place
        if isinstance(error, json.JSONDecodeError):
            place = f"line {error.lineno}, " * ("\n" in text) + f"column {error.colno}"
        raise UserError(f"{where}, is no JSON ({place})") from None


def _record(record: Any, where: str) -> tuple[Fields, str]:
    if not isinstance(record, dict):
        raise UserError(f'{where}, is no object such as {{"text": ...}}')
    return record, where


def _table(path: Path, text: str, pictures: Path | None) -> Iterator[tuple[Fields, str]]:
    """Rows with what is not empty; options are in columns A, B, ..., other columns in ``meta``."""
    csv.field_size_limit(sys.maxsize)
    rows = csv.DictReader(
        io.StringIO(text, newline=""), delimiter="\t" if path.suffix.lower() == ".tsv" else ","
    )
    images: dict[str, str] = {}
    for row in rows:
        where = f"{path}, line {rows.line_num}"
        if row.get(None):
            raise UserError(f"{where}, has more cells than the header has columns")
        record: Fields = {k: v for k, v in row.items() if v is not None and v.strip()}
        if not record:
            continue
        given = [k for k in record if len(k) == 1 and k in ascii_uppercase]
        if letters := sorted(given):
            if letters != [*ascii_uppercase][: len(letters)]:
                raise UserError(f"{where}: options are in {', '.join(letters)}: leave none out")
            record["options"] = [record.pop(letter) for letter in letters]
        if "image" in record:
            shown = _images(record["image"], where, images, path.parent, pictures)
            images[str(record.get("index", record.get("question_id", "")))] = shown[0]
            record["image"] = shown
            record.pop("image_path", None)
        yield record, where


def _images(
    cell: str, where: str, seen: Mapping[str, str], folder: Path, pictures: Path | None
) -> list[str]:
    """Paths of the images of a cell: a path, an image in base64, a row's index; or a list."""
    parts = [cell]
    if cell.lstrip().startswith("["):
        parts = _json(cell.replace("'", '"'), f"{where}, key 'image'")
    results = []
    for part in map(str.strip, map(str, parts)):
        if _BASE64.fullmatch(part):
            results.append(_written(part, where, pictures))
        else:
            results.append(seen[part] if part in seen and not (folder / part).is_file() else part)
    return results


def _written(text: str, where: str, pictures: Path | None) -> str:
    """The file of an image in base64, called by its content and written once."""
    problem = f"{where}: the key 'image' holds no image in base64, and no path"
    with reported_as(problem, (binascii.Error, OSError)):
        content = base64.b64decode(text.rpartition("base64,")[2])
        kind = Image.open(io.BytesIO(content)).format or ""
    name = f"{hashlib.sha256(content).hexdigest()[:16]}.{kind.lower()}"
    if pictures is None:
        return name
    if not (pictures / name).is_file():
        with replaced(pictures / name) as file:
            file.write_bytes(content)
    return str((pictures / name).absolute())
