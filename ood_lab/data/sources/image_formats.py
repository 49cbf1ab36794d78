"""The image files that can be opened here, and advice on the others."""

from __future__ import annotations

import os
from collections import Counter
from collections.abc import Iterable
from functools import cache

from PIL import Image

#: PIL registers these, but only to identify them or with the help of other programs.
_NOT_PHOTOS = {"BUFR", "EPS", "GRIB", "HDF5", "MPEG", "WMF"}
#: Endings of what telephones store, and what it takes to open it.
HEIF = (".heic", ".heif", ".hif")
READ_HEIF = "pip install pillow-heif reads HEIC"
#: Files that commonly lie beside images and are not images.
_COMPANIONS = (
    *(".csv", ".tsv", ".txt", ".lst", ".json", ".jsonl", ".xml", ".yaml", ".yml", ".parquet"),
    *(".md", ".rst", ".html", ".log", ".ini", ".db", ".pdf", ".py", ".sh", ".zip", ".tar", ".gz"),
)


@cache
def register_formats() -> None:
    """Lets PIL open what installed packages add to it: HEIC through pillow-heif.

    The limit of size is ``data.max_megapixels``, which names the file, instead of PIL's own.
    """
    Image.MAX_IMAGE_PIXELS = None
    try:
        from pillow_heif import register_heif_opener
    except ImportError:
        return
    register_heif_opener()


@cache
def image_extensions() -> frozenset[str]:
    """Lower-case extensions (with the dot) of the formats that PIL can open here."""
    Image.init()
    register_formats()
    return frozenset(
        extension
        for extension, kind in Image.registered_extensions().items()
        if kind in Image.OPEN and kind not in _NOT_PHOTOS
    )


def passed_over(names: Iterable[str]) -> str:
    """Says what was passed over in a folder of images, and the remedy; empty if nothing was.

    Args:
        names: of the files that are no images to PIL.
    """
    endings = Counter(os.path.splitext(name)[1].lower() for name in names)
    missed = {end: n for end, n in endings.most_common() if end not in _COMPANIONS}
    if not missed:
        return ""
    kinds = [f"{n:,} {end or 'without an ending'}" for end, n in missed.items()]
    total = sum(missed.values())
    files = "file that cannot be opened was" if total == 1 else "files that cannot be opened were"
    remedies = [READ_HEIF] * any(end in HEIF for end in missed)
    remedies += ["save as PNG or JPEG what is a picture"] * any(e not in HEIF for e in missed)
    return f"{total:,} {files} passed over ({', '.join(kinds)}): {'; '.join(remedies)}"
