"""What is wrong with a file in COCO's format, in one line that names the entry."""

from __future__ import annotations

import unicodedata
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
from PIL import Image

from ood_lab.common.errors import UserError
from ood_lab.schema.arrays import Floats, Ints

#: Pixels that a box may reach beyond its image. COCO's and LVIS' coordinates are those of outlines,
#: rounded to two decimals, and other tools round to whole pixels on either side.
OVERHANG = 2.0
#: Images whose size is read from their files, spread evenly over a larger list.
_MEASURED = 5000
_ORIENTATION, _TURNED = 274, (5, 6, 7, 8)


def check_unique(file: Path, what: str, values: Sequence[Any], ids: Sequence[Any]) -> None:
    """Rejects a value that two entries have.

    Args:
        file: for the message.
        what: the values are.
        values: of all entries.
        ids: of the entries.

    Raises:
        UserError: with the value, and the ids of both entries where they say more.
    """
    twice = pd.Series(values).duplicated().to_numpy()
    if not twice.any():
        return
    row = int(twice.argmax())
    first = list(values).index(values[row])
    same = values[row] == ids[row] and values[first] == ids[first]
    of = "" if same else f" (ids {ids[first]!r} and {ids[row]!r})"
    raise UserError(f"'{file}' has the {what} {values[row]!r} twice{of}")


def check_names(file: Path, names: Sequence[str], ids: Sequence[int]) -> None:
    """Rejects names of categories that no question can use, or that are ambiguous.

    Names that differ only in case, blanks, hyphens and underscores count as the same.

    Raises:
        UserError: an empty name, one with a line break or another control character, or two that
            are the same, with their ids.
    """
    known: dict[str, int] = {}
    for row, name in enumerate(names):
        if not name.strip():
            raise UserError(f"'{file}': the category with id {ids[row]} has no name")
        if any(unicodedata.category(letter) in ("Cc", "Zl", "Zp") for letter in name):
            raise UserError(
                f"'{file}': the name {name!r} of the category with id {ids[row]} has a line break "
                "or another control character"
            )
        plain = " ".join(unicodedata.normalize("NFKC", name).casefold().replace("-", " ").split())
        first = known.setdefault(plain.replace("_", " "), row)
        if first != row:
            raise UserError(
                f"'{file}': the categories with ids {ids[first]} and {ids[row]} have the names "
                f"{names[first]!r} and {name!r}, which no question can tell apart: merge them"
            )


def check_boxes(file: Path, ids: Sequence[Any], boxes: Floats, sizes: Ints) -> None:
    """Rejects boxes that are none, or not of their image.

    A box may reach :data:`OVERHANG` pixels beyond its image, and have no width or height: COCO's
    train2017 has two without height (annotations 918 and 2206849).

    Args:
        file: for the message.
        ids: of the annotations, None where they have none.
        boxes: ``[N, 4]``: left, top, width, height in pixels.
        sizes: ``[N, 2]``: width and height of the image of each.

    Raises:
        UserError: a coordinate that is not finite, a negative width or height, or a box that
            reaches out of its image, with the id of the annotation.
    """
    start, extent = boxes[:, :2], boxes[:, 2:]
    faults = {
        "with a coordinate that is not a number": ~np.isfinite(boxes).all(axis=1),
        "with a negative width or height": (extent < 0).any(axis=1),
        "that reaches out of its image": (start < -OVERHANG).any(axis=1)
        | (start + extent > sizes + OVERHANG).any(axis=1),
    }
    for what, wrong in faults.items():
        if not wrong.any():
            continue
        row = int(wrong.argmax())
        number = ids[row]
        name = f"id {number}" if number is not None else f"{row + 1} of {len(boxes):,}"
        width, height = sizes[row]
        corners = (extent >= start).all(axis=1) & (extent <= sizes + OVERHANG).all(axis=1)
        hint = (
            "; all boxes look like left, top, right, bottom: COCO's are left, top, width, height"
            if corners.all()
            else ""
        )
        raise UserError(
            f"'{file}': {int(wrong.sum()):,} of {len(boxes):,} annotations have a box {what}; "
            f"annotation {name} has {boxes[row].tolist()} in an image of {width} x {height} "
            f"pixels{hint}"
        )


def check_sizes(file: Path, root: Path, images: pd.DataFrame) -> None:
    """Rejects images that are of another size than the file says.

    The files of at most 5,000 images are looked at, evenly spread. A size that is that of the
    image as its EXIF orientation turns it is right, too. A file that cannot be read passes: who
    opens it says so.

    Args:
        file: for the message.
        root: folder of the images.
        images: ``image`` (id), ``file``, ``width``, ``height``.

    Raises:
        UserError: with the id of the image and both sizes.
    """
    none = images[(images["width"] <= 0) | (images["height"] <= 0)]
    if len(none):
        first = none.iloc[0]
        raise UserError(
            f"'{file}': the image with id {first['image']} has a size of {first['width']} x "
            f"{first['height']} pixels"
        )
    rows = np.unique(np.linspace(0, len(images) - 1, _MEASURED).astype(int))
    looked = images.iloc[rows]
    with ThreadPoolExecutor(8) as pool:
        found = list(pool.map(_sizes, [root / name for name in looked["file"]]))
    stated = list(zip(looked["width"], looked["height"], strict=True))
    wrong = [n for n, known in enumerate(found) if known and stated[n] not in known]
    if wrong:
        first, (width, height) = looked.iloc[wrong[0]], found[wrong[0]][0]
        raise UserError(
            f"'{file}': {len(wrong):,} of {len(looked):,} images have another size than it says; "
            f"'{first['file']}' (id {first['image']}) is {width} x {height} pixels, not "
            f"{first['width']} x {first['height']}: scale the boxes with the images, or give "
            "the images that were annotated"
        )


def _sizes(path: Path) -> list[tuple[int, int]]:
    """Size of the image as stored and as turned; none where the file cannot be read."""
    try:
        with Image.open(path) as image:
            turned = image.getexif().get(_ORIENTATION) in _TURNED
            return [image.size, *([image.size[::-1]] if turned else [])]
    except (OSError, ValueError, SyntaxError):
        return []
