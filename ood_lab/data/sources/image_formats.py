"""The image files that can be opened here, and advice on the others."""

from __future__ import annotations

import os
import re
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from functools import cache
from typing import Any

import numpy as np
import torch
from PIL import Image, ImageFile
from PIL.TiffImagePlugin import (
    BITSPERSAMPLE,
    PHOTOMETRIC_INTERPRETATION,
    SAMPLESPERPIXEL,
)
from torchvision.io import ImageReadMode, decode_image

from ood_lab.common.english import counted

#: PIL registers these, but only to identify them or with the help of other programs.
_NOT_PHOTOS = {"BUFR", "EPS", "GRIB", "HDF5", "MPEG", "WMF"}
#: Endings of what telephones store, and what it takes to open it.
HEIF = (".heic", ".heif", ".hif")
READ_HEIF = "pip install pillow-heif reads HEIC"
#: Value of the TIFF tag ``PhotometricInterpretation``.
_WHITE_IS_ZERO = 0
#: Endings of arrays, which are images where no other images are.
ARRAYS = (".npy", ".npz")
#: First bytes of files that :class:`ArrayFile` opens.
_STARTS = (b"\x93NUMPY", b"PK\x03\x04", b"II*\0", b"MM\0*", b"II+\0", b"MM\0+")
#: Files that commonly lie beside images and are not images.
_COMPANIONS = (
    *(".csv", ".tsv", ".txt", ".lst", ".json", ".jsonl", ".xml", ".yaml", ".yml", ".parquet"),
    *(".md", ".rst", ".html", ".log", ".ini", ".db", ".pdf", ".py", ".sh", ".zip", ".tar", ".gz"),
)


@cache
def register_formats() -> None:
    """Lets PIL open arrays, TIFF files that it has no mode for, and HEIC through pillow-heif.

    The limit of size is ``data.max_megapixels``, which names the file, instead of PIL's own.
    """
    Image.MAX_IMAGE_PIXELS = None
    Image.register_open(ArrayFile.format, ArrayFile, lambda prefix: prefix.startswith(_STARTS))
    Image.register_extensions(ArrayFile.format, list(ARRAYS))
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


def is_picture(name: str) -> bool:
    """Whether a file is one of :func:`image_extensions` by its name."""
    return os.path.splitext(name)[1].lower() in image_extensions()


def pictures_among(paths: Sequence[str]) -> list[str]:
    """The images of some files with :func:`image_extensions`: arrays only where no others are."""
    pictures = [path for path in paths if not path.lower().endswith(ARRAYS)]
    return pictures or list(paths)


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
    files = counted(sum(missed.values()), "file")
    remedies = [READ_HEIF] * any(end in HEIF for end in missed)
    remedies += ["save as PNG or JPEG what is a picture"] * any(e not in HEIF for e in missed)
    shown = ", ".join(kinds)
    return f"{files} that cannot be opened passed over ({shown}): {'; '.join(remedies)}"


class ArrayFile(ImageFile.ImageFile):
    """An image that PIL has no mode for: ``.npy``, ``.npz``, and TIFF files that it cannot open.

    Attributes:
        array: ``[H, W, n]``, as the file has it; ``[n, H, W]`` is turned. An axis of up to
            four is that of channels; else the two that are most alike are height and width.
    """

    format = "ARRAY"
    array: np.ndarray

    def _open(self) -> None:
        tiff = self.fp.read(2) in (b"II", b"MM")  # type: ignore[union-attr]
        array = tiff_array(self.fp) if tiff else _numpy_array(self.fp)
        if array is None:
            raise ValueError("pip install tifffile reads TIFF files of other numbers of channels")
        if array.ndim not in (2, 3) or array.dtype.kind not in "buif" or not array.size:
            raise ValueError(f"it has an array {list(array.shape)} of {array.dtype}, no image")
        array = array[..., None] if array.ndim == 2 else array
        array = np.moveaxis(array, 0, 2) if _channels_first(array.shape) else array
        self.array = array.astype(np.uint8) * 255 if array.dtype == bool else array
        self._size, self._mode = (array.shape[1], array.shape[0]), "RGB"

    def load(self) -> Any:
        """The array is all there is."""


def _channels_first(shape: Sequence[int]) -> bool:
    first, middle, last = shape
    if (first <= 4) != (last <= 4):
        return first <= 4
    outer, inner = sorted((middle, last)), sorted((first, middle))
    return outer[1] * inner[0] < inner[1] * outer[0]


def _numpy_array(file: Any) -> np.ndarray:
    file.seek(0)
    content = np.load(file, allow_pickle=False)
    arrays = content if isinstance(content, Mapping) else {"image": content}
    names = list(arrays)
    if len(names) != 1 and "image" not in names:
        raise ValueError(f"it has the arrays {', '.join(names)}: call one of them 'image'")
    array: np.ndarray = arrays[names[0] if len(names) == 1 else "image"]
    return array


def pixels_beyond(image: Any) -> np.ndarray | None:
    """``[H, W, n]`` of an image that Pillow has no mode for, or of which it drops something.

    That are arrays, colours of 16 bits, and TIFF files of other numbers of channels, in planes or
    with 0 as white. None for all other images.

    Raises:
        ValueError: tifffile is not installed.
    """
    if isinstance(image, ArrayFile):
        return image.array
    raw = str(image.tile[0][3]) if isinstance(image, ImageFile.ImageFile) and image.tile else ""
    if image.format == "PNG" and re.search(r"(RGBA?|LA);16", raw):
        image.fp.seek(0)
        encoded = torch.frombuffer(bytearray(image.fp.read()), dtype=torch.uint8)
        return decode_image(encoded, ImageReadMode.UNCHANGED).permute(1, 2, 0).numpy()
    tags = image.tag_v2 if image.format == "TIFF" else {}
    samples, deep = tags.get(SAMPLESPERPIXEL, 1), max(tags.get(BITSPERSAMPLE, (1,))) > 8
    white = tags.get(PHOTOMETRIC_INTERPRETATION) == _WHITE_IS_ZERO
    if samples <= len(image.getbands()) and not (deep and (samples > 1 or white)):
        return None
    array = tiff_array(image.fp, image.tell())
    if array is None and deep:
        raise ValueError("pip install tifffile reads its 16 bits in colours, or with 0 as white")
    return array[..., None] if array is not None and array.ndim == 2 else array


def tiff_array(file: Any, number: int = 0) -> np.ndarray | None:
    """A page of an open TIFF file, 0 = black; None where tifffile is not installed.

    Planes one after the other are ``[H, W, n]`` as others are.

    Raises:
        SyntaxError: it is damaged.
        ValueError: its compression needs another package, or its floats say that white is 0.
    """
    try:
        from tifffile import TiffFile
    except ImportError:
        return None
    file.seek(0)
    try:
        with TiffFile(file) as tiff:
            page: Any = tiff.pages[number]
            array: np.ndarray = page.asarray()
            inverted = page.photometric == _WHITE_IS_ZERO and array.dtype != bool
            white = 2**page.bitspersample - 1
            array = np.moveaxis(array, 0, -1) if page.axes.startswith("S") else array
    except Exception as error:
        kind = ValueError if "imagecodecs" in str(error) else SyntaxError
        raise kind(str(error)) from error
    if inverted and array.dtype.kind != "u":
        raise ValueError(f"0 is white in its {array.dtype} pixels: save it with 0 as black")
    return (white - array).astype(array.dtype) if inverted else array
