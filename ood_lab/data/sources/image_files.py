"""Images that are in files, or in another store."""

from __future__ import annotations

import hashlib
import os
from collections.abc import Sequence
from functools import partial
from pathlib import Path
from typing import Literal

import numpy as np
import pandas as pd
from PIL import ExifTags, Image
from PIL.TiffImagePlugin import TiffImageFile

from ood_lab.common.english import listed
from ood_lab.common.errors import UserError
from ood_lab.common.file_records import text_sha256
from ood_lab.common.files import StrPath
from ood_lab.data.dataset import ImageDataset, ValueNames
from ood_lab.data.sources.file_facts import Facts, content_hashes, file_facts, stand_ins
from ood_lab.data.sources.image_formats import pixels_beyond, register_formats
from ood_lab.data.sources.image_stores import FILES, Store
from ood_lab.data.sources.label_names import label_columns
from ood_lab.data.sources.pixel_decoding import (
    HOT,
    PERCENTILES,
    TOP,
    Decoding,
    is_deep,
    range_of,
)
from ood_lab.data.sources.reading_warnings import Tell
from ood_lab.schema.arrays import spaced_rows
from ood_lab.schema.image_columns import GROUP

Identify = Literal["content", "stat"]

#: How images are decoded where nothing is set.
DECODING = Decoding()
#: ``data.pixel_range``.
PixelRange = Literal["auto", "percentile"] | Sequence[float]
#: Training images in which the range of pixel values is looked for.
_SAMPLE = 64
#: Pixels of an image that are looked at for percentiles.
_PIXELS = 1e6
_TRANSPARENT = ("LA", "RGBA")
_TURNED = {
    2: Image.Transpose.FLIP_LEFT_RIGHT,
    3: Image.Transpose.ROTATE_180,
    4: Image.Transpose.FLIP_TOP_BOTTOM,
    5: Image.Transpose.TRANSPOSE,
    6: Image.Transpose.ROTATE_270,
    7: Image.Transpose.TRANSVERSE,
    8: Image.Transpose.ROTATE_90,
}


def load_rgb(path: StrPath, store: Store = FILES, decoding: Decoding = DECODING) -> Image.Image:
    """Decodes the (first) image of a file, or a store, as 8-bit RGB, the way a person sees it.

    - The EXIF orientation is applied: a photo that the camera stored on its side would otherwise
      be an unintended covariate shift.
    - Transparency is composited on white.
    - More than 8 bits are scaled by ``decoding``: 16-bit grey by 255/65535 where nothing else is
      set (PIL would clip it to white).
    - An image beyond the limit of ``decoding`` is read reduced where its format can be.
    - CMYK, palette and grey images are converted by PIL.
    - Of other numbers of channels the first three are shown, and all of them are in its attribute
      ``channels`` (:meth:`~ood_lab.data.sources.pixel_decoding.Decoding.with_channels`).

    Raises:
        UserError: the file is missing, broken, cut short, too large, or of a kind with no
            fixed range (floating-point pixels).
    """
    try:
        register_formats()
        with store.open(os.fspath(path)) as image, decoding.reduced(image):
            channels, decoded = pixels_beyond(image), image
            if channels is None:
                image.load()
            else:
                decoded = decoding.picture(channels, image.mode in _TRANSPARENT)
            turn = _turn(image)
            upright = decoded if turn is None else decoded.transpose(turn)
            if upright.mode in _TRANSPARENT:
                channels = np.asarray(upright)
            picture = _as_rgb(upright, decoding)
        return picture if channels is None else decoding.with_channels(picture, channels)
    # Broken files make PIL's readers raise almost anything: OSError, SyntaxError, struct.error.
    except Exception as error:
        raise UserError(f"cannot read image '{path}': {reason(error, path)}") from error


def reason(error: BaseException, path: StrPath) -> str:
    """The fault that PIL reports, on one line, without the path, which the caller names anyway."""
    text = str(error).replace(f" {os.fspath(path)!r}", "").replace(str(path), "it")
    return " ".join(text.split()) or type(error).__name__


def is_upright(image: Image.Image) -> bool:
    """True when the EXIF data of an image leave its orientation unchanged."""
    return _turn(image) is None


def _turn(image: Image.Image) -> Image.Transpose | None:
    try:
        return _TURNED.get(image.getexif().get(ExifTags.Base.Orientation, 1))
    except Exception:  # damaged metadata around a sound image
        return None


def _as_rgb(image: Image.Image, decoding: Decoding) -> Image.Image:
    if is_deep(image):
        return decoding.picture(np.asarray(image)[..., None]).convert("RGB")
    if image.has_transparency_data:
        pixels = image.convert("RGBA")
        paper = Image.new("RGBA", image.size, "white")
        return Image.alpha_composite(paper, pixels).convert("RGB")
    # Converted to what it is already, an image is copied, which takes a tenth of its decoding.
    return image if image.mode == "RGB" else image.convert("RGB")


class FileDataset(ImageDataset):
    """Images in files, or in another store, as a source lists them.

    The identity is a sha256 over ``label, path relative to the common folder, content`` of every
    row, and its levels, category, shape, attributes and group where there are any: a copy of the
    data in another place has the same identity, a changed file or label another.

    Args:
        name: ``train``, ``val``, ``test`` or the name of an OOD set.
        table: columns ``path`` (absolute, or the address in ``store``) and ``label`` at least.
        classes: names of the ID classes; empty for an OOD set.
        identify: what stands for the content of a file: ``content`` = its sha256, ``stat`` = its
            size, modification time and first and last 4 KiB, for sets too large to be read.
        cache_dir: folder that remembers the sha256 of unchanged files; None = none does.
        names: see :class:`ImageDataset`.
        store: where the images lie.
        decoding: how pixels become 8 bits; a range of its own is part of the identity.
    """

    def __init__(
        self,
        name: str,
        table: pd.DataFrame,
        classes: Sequence[str],
        identify: Identify = "content",
        cache_dir: StrPath | None = None,
        names: ValueNames | None = None,
        store: Store = FILES,
        decoding: Decoding = DECODING,
    ) -> None:
        self.decoding = decoding
        self.identify = identify
        self.cache_dir = cache_dir
        self.store = store
        identity = _identity(table, identify, cache_dir, store, (names or {}).get(GROUP))
        if decoding.pixel_range is not None:
            identity = text_sha256(f"{identity} {decoding.pixel_range}")
        super().__init__(name, table, list(classes), identity, names)

    @property
    def paths(self) -> list[str]:
        """Address of every row: in files, the absolute path."""
        return list(self.table["path"])

    def content_hashes(self, rows: Sequence[int] | None = None) -> np.ndarray:
        """sha256 (hex) of the images in some rows; None = in all."""
        table = self.table if rows is None else self.table.iloc[list(rows)]
        return content_hashes(table["path"], self.cache_dir, self.store)

    def load_image(self, index: int) -> Image.Image:
        """Returns row ``index`` as an RGB PIL image (see :func:`load_rgb`)."""
        return load_rgb(str(self.table["path"].iat[index]), self.store, self.decoding)

    def load_mask(self, index: int) -> np.ndarray | None:
        """Returns the image that column ``mask`` names, its brightest grey 1; None without one."""
        file = self.table["mask"].iat[index] if "mask" in self.table else None
        if not isinstance(file, str):
            return None
        pixels = np.asarray(load_rgb(file).convert("L"), np.float32)
        # Masks of 0 and 255 and masks of 0 and 1 mean the same.
        return pixels / max(float(pixels.max()), 1.0)

    def without(self, rows: Sequence[int]) -> FileDataset:
        """The dataset less the given rows, with its own identity and no transform."""
        return self.of(self.name, self.table.drop(index=list(rows)), self.classes, self.names)

    def of(
        self,
        name: str,
        table: pd.DataFrame,
        classes: Sequence[str],
        names: ValueNames,
    ) -> FileDataset:
        """Another set of images from the same store."""
        return FileDataset(
            name,
            table,
            classes,
            identify=self.identify,
            cache_dir=self.cache_dir,
            names=names,
            store=self.store,
            decoding=self.decoding,
        )


def decoding_of(data: ImageDataset) -> Decoding:
    """How the images of a set are decoded."""
    return data.decoding if isinstance(data, FileDataset) else DECODING


def found_decoding(
    paths: Sequence[str],
    store: Store,
    pixel_range: PixelRange,
    max_megapixels: float,
    cache_dir: StrPath | None,
    tell: Tell,
) -> Decoding:
    """The decoding of all sets, with the range of pixel values of a sample of ``paths``.

    Args:
        paths: of the training images.
        store: of them.
        pixel_range: see :func:`~ood_lab.data.sources.pixel_decoding.range_of`.
        max_megapixels: see :class:`~ood_lab.data.sources.pixel_decoding.Decoding`.
        cache_dir: see :class:`FileDataset`.
        tell: receives what is to be said of the pixels.

    Raises:
        UserError: the range cannot be known.
    """
    decoding = Decoding(max_megapixels=max_megapixels)
    rows = spaced_rows(len(paths), _SAMPLE)
    values = pixel_values([paths[row] for row in rows], store, decoding, cache_dir)
    value_range, text = range_of(values, pixel_range)
    if text:
        tell(text, doubtful=pixel_range == "auto")
    pages = values["pages"] > 1
    if pages.any():
        tell(
            f"{pages.mean():.0%} of {len(values)} training images have several pages: the "
            "first is read. An image of n channels is one page [H, W, n], or an .npy file"
        )
    if n := sorted({*map(int, values["channels"])} - {0, 1, 3}):
        tell(
            f"training images have {listed([str(k) for k in n])} channels: a network whose "
            "first layer takes as many reads all. Other networks, CLIP and the pages read the "
            "first three as RGB; corruptions treat three at a time, in 8 bits",
            doubtful=False,
        )
    return Decoding(value_range, max_megapixels)


def pixel_values(
    paths: Sequence[str], store: Store, decoding: Decoding, cache_dir: StrPath | None
) -> pd.DataFrame:
    """Values of the pixels as the files have them, a row an image; unreadable ones are skipped.

    Columns ``deep`` (more than 8 bits), ``floats``, ``least``, ``most``, the percentiles ``low``
    and ``high`` of :data:`PERCENTILES`, ``top``, below which 99.9% are, ``solid``, the most without
    :data:`HOT` pixels, the numbers of ``channels`` (0 = as its mode has) and of ``pages``.
    """
    look = partial(_values, store=store, decoding=Decoding(max_megapixels=decoding.max_megapixels))
    facts = file_facts(paths, look, "reading the values of pixels", cache_dir, store)
    return facts[facts["error"] == ""].reset_index(drop=True)


_NUMBERS = ("least", "most", "low", "high", "top", "solid")


def _values(path: str, store: Store, decoding: Decoding) -> Facts:
    facts: Facts = dict.fromkeys(_NUMBERS, 0.0)
    facts |= {"deep": False, "floats": False, "channels": 0, "pages": 1, "error": ""}
    try:
        register_formats()
        with store.open(path) as image:
            if isinstance(image, TiffImageFile):
                facts["pages"] = image.n_frames
                image.seek(0)
            with decoding.reduced(image):
                array = pixels_beyond(image)
                facts |= {"deep": is_deep(image), "floats": image.mode == "F"}
                if array is None:
                    plain = facts["deep"] or image.mode in ("L", "RGB")
                    array = np.asarray(image if plain else _as_rgb(image, decoding))
                else:
                    array = array[..., :-1] if image.mode in _TRANSPARENT else array
                    facts |= {"channels": array.shape[2], "deep": array.dtype != np.uint8}
                    facts["floats"] = array.dtype.kind == "f"
        # Percentiles of so many pixels need no more of them.
        step = max(1, int((array.shape[0] * array.shape[1] / _PIXELS) ** 0.5))
        some = array[::step, ::step].astype(np.float64)
        values = some[np.isfinite(some)]
        ends = np.nanmin(array), np.nanmax(array)
        hot = max(1, int(HOT * values.size)) if values.size > 1 else 0
        solid = np.partition(values, -1 - hot)[-1 - hot]
        numbers = (*ends, *np.percentile(values, (*PERCENTILES, TOP)), solid)
        facts |= dict(zip(_NUMBERS, map(float, numbers), strict=True))
    except Exception as error:  # the check of the data names it
        facts["error"] = reason(error, path)
    return facts


def _identity(
    table: pd.DataFrame,
    identify: Identify,
    cache_dir: StrPath | None,
    store: Store,
    groups: Sequence[str] | None,
) -> str:
    paths = list(table["path"])
    if identify == "content" or not store.changeless:
        contents = content_hashes(paths, cache_dir, store)
    else:
        contents = np.array(stand_ins(paths, cache_dir, store))
    # Addresses of rows in a data set are no paths, and stay as they are.
    folders = [os.path.dirname(path) for path in paths if os.path.isabs(path)]
    common = os.path.commonpath(folders) if folders else ""

    def place(path: str) -> str:
        return Path(os.path.relpath(path, common)).as_posix() if os.path.isabs(path) else path

    digest = hashlib.sha256()
    for path, label, content in zip(paths, table["label"], contents, strict=True):
        digest.update(f"{label}\0{place(path)}\0{content}\n".encode("utf-8", "surrogateescape"))
    if groups:
        named = "\0".join(place(groups[code]) for code in table[GROUP])
        digest.update(named.encode("utf-8", "surrogateescape"))
    if labels := label_columns(table):
        digest.update(table[labels].to_csv(index=False).encode())
    return digest.hexdigest()
