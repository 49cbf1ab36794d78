"""Finds the images of a folder and the class each sub-folder stands for."""

from __future__ import annotations

import os
import unicodedata
from functools import cache
from pathlib import Path

import pandas as pd
from PIL import Image

from ood_lab.data.dataset import UNKNOWN
from ood_lab.errors import UserError

#: What an unlabelled image carries before labels become numbers.
NO_LABEL = str(UNKNOWN)
#: PIL registers these, but only to identify them or with the help of other programs.
_NOT_PHOTOS = {"BUFR", "EPS", "GRIB", "HDF5", "MPEG", "WMF"}
_SPLIT_NAMES = {"train", "training", "val", "valid", "validation", "test", "testing"}


@cache
def image_extensions() -> frozenset[str]:
    """Lower-case extensions (with the dot) of the formats that PIL can open here."""
    Image.init()
    return frozenset(
        extension
        for extension, kind in Image.registered_extensions().items()
        if kind in Image.OPEN and kind not in _NOT_PHOTOS
    )


def read_folder(folder: Path, labelled: bool) -> pd.DataFrame:
    """Columns ``path`` (absolute) and ``label`` (name of the sub-folder, or ``NO_LABEL``).

    Args:
        folder: searched to any depth; hidden files and folders are left out.
        labelled: the sub-folders must be classes; otherwise anything goes.

    Raises:
        UserError: an empty class folder, loose images beside class folders, folders of splits.
    """
    files = {"": _images(folder, deep=False)}
    for sub in sorted(p for p in folder.iterdir() if p.is_dir() and _visible(p.name)):
        files[sub.name] = _images(sub, deep=True)
    loose = files.pop("")
    filled = sorted(name for name, paths in files.items() if paths)
    if labelled and filled:
        _check_class_folders(folder, files, loose)
    rows = [(path, NO_LABEL) for path in loose]
    rows += [(path, unicodedata.normalize("NFC", name)) for name in filled for path in files[name]]
    return pd.DataFrame(rows, columns=["path", "label"])


def _check_class_folders(folder: Path, files: dict[str, list[str]], loose: list[str]) -> None:
    if loose:
        raise UserError(
            f"'{folder}' holds both class folders and {len(loose)} loose image(s), such as "
            f"'{os.path.basename(loose[0])}': move them into a class folder or out"
        )
    empty = [name for name, paths in files.items() if not paths]
    if empty:
        raise UserError(
            f"class folder '{folder / empty[0]}' contains no images: fill it or remove it"
            + (f" ({len(empty)} such folders)" if len(empty) > 1 else "")
        )
    if {name.lower() for name in files} <= _SPLIT_NAMES:
        raise UserError(
            f"'{folder}' holds splits ({', '.join(files)}), not classes: "
            f"give each split its own folder, such as '{folder / next(iter(files))}'"
        )


def _images(folder: Path, deep: bool) -> list[str]:
    found: list[str] = []
    # Links are followed: data sets on shared disks are often folders of links.
    for parent, folders, names in os.walk(folder, followlinks=True):
        folders[:] = sorted(name for name in folders if _visible(name)) if deep else []
        found += [
            os.path.join(parent, name)
            for name in sorted(names)
            if _visible(name) and os.path.splitext(name)[1].lower() in image_extensions()
        ]
    for path in found:
        if not path.isascii() and path != path.encode("utf-8", "replace").decode():
            raise UserError(f"the name of {os.fsencode(path)!r} is not UTF-8: rename the file")
    return found


def _visible(name: str) -> bool:
    return not name.startswith(".") and name != "__MACOSX"


def instead(place: Path) -> str:
    """What a source without images holds, as the end of a sentence."""
    if place.is_file():
        return ": it has no rows"
    endings = {Path(n).suffix or n for _, _, names in os.walk(place) for n in names if _visible(n)}
    return f" (its files end in {', '.join(sorted(endings)[:5])})" if endings else " and no file"
