"""Names of files that two computers write in different Unicode forms.

An accented letter is one character (NFC) or a letter and its accent (NFD); both look the same. A
table often has the form of the computer that wrote it, and the files that of another one.
"""

from __future__ import annotations

import os
import unicodedata
from functools import lru_cache

from ood_lab.common.file_records import Stamp, stamp


def composed(text: str) -> str:
    """The text in the form NFC."""
    return unicodedata.normalize("NFC", text)


def existing(path: str) -> str:
    """The path as the disk has it: parts that exist only in another Unicode form take that form."""
    if path.isascii() or os.path.lexists(path):
        return path
    parent, name = os.path.split(path)
    parent = existing(parent)
    return os.path.join(parent, _names(parent, stamp(parent or ".")).get(composed(name), name))


def remark(path: str) -> str:
    """What an error adds where the file of a path exists in another Unicode form; else nothing."""
    spelling = existing(path)
    if spelling == path or not os.path.exists(spelling):
        return ""
    return (
        ". A file of that name exists, whose accents have another Unicode form (NFC, NFD): rename "
        "it, or write its name as the folder has it"
    )


@lru_cache(maxsize=256)
def _names(folder: str, _: Stamp) -> dict[str, str]:
    """The names in a folder by their composed form."""
    try:
        return {composed(name): name for name in os.listdir(folder or ".") if not name.isascii()}
    except OSError:
        return {}
