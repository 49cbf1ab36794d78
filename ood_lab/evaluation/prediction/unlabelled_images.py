"""Images without labels, as a user points to them."""

from __future__ import annotations

import glob
import logging
import os
from collections.abc import Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path

import numpy as np
import pandas as pd

from ood_lab.common.errors import UserError
from ood_lab.common.files import absolute
from ood_lab.common.hints import missing_path
from ood_lab.data.datamodules.image_groups import FOLDER, group_names
from ood_lab.data.sources.file_facts import Facts, file_facts, unreadable
from ood_lab.data.sources.image_files import DECODING, FileDataset, load_rgb, reason
from ood_lab.data.sources.image_formats import is_picture, pictures_among
from ood_lab.data.sources.image_lists import TABLES, Addresses, Listing, read_paths
from ood_lab.data.sources.image_stores import FILES, CombinedStores, Store
from ood_lab.data.sources.pixel_decoding import Decoding
from ood_lab.data.sources.reading_warnings import Tell, to_log
from ood_lab.data.sources.source_settings import Given, Manifest, ReadOptions, source_of

log = logging.getLogger(__name__)


@dataclass(frozen=True)
class ReadableImages:
    """What there is to predict.

    Attributes:
        table: columns ``path`` and ``error`` (empty where the image can be read), every image.
        readable: the dataset of those that can be read, in the same order.
        passed: what was passed over, in sentences.
    """

    table: pd.DataFrame
    readable: FileDataset
    passed: tuple[str, ...] = ()

    @property
    def rows(self) -> np.ndarray:
        """Row in ``table`` of every image of ``readable``."""
        return np.flatnonzero(self.table["error"] == "")


@dataclass(frozen=True)
class ListedImages:
    """What is pointed to, before any image is opened.

    Attributes:
        images: in order.
        tables: of ``images.sources``, those that are tables or lists, whose files nobody has looked
            for; None for the others.
        passed: what was passed over, in sentences.
    """

    images: Listing
    tables: tuple[Manifest | None, ...]
    passed: tuple[str, ...]


def list_images(source: Given | Sequence[Given]) -> ListedImages:
    """Lists the images that are pointed to, and opens none.

    Args:
        source: one image file; a pattern (``photos/*.jpg``, ``**`` for any depth); a source as in
            :func:`~ood_lab.data.sources.source_settings.source_of`, whose labels are ignored; or
            several of these in a list.

    Raises:
        UserError: nothing there.
    """
    passed: list[str] = []
    several = isinstance(source, list | tuple)
    listings = [
        _listing_of(one, f"task.images[{number}]" if several else "task.images", passed)
        for number, one in enumerate(source if several else [source])
    ]
    if not listings:
        raise UserError("task.images is an empty list: give at least one image")
    listing = Listing([addresses for addresses, _ in listings])
    return ListedImages(listing, tuple(table for _, table in listings), tuple(passed))


def opened(listing: ListedImages, decoding: Decoding = DECODING) -> ReadableImages:
    """Decodes every listed image once.

    Args:
        listing: what is listed.
        decoding: how pixels become 8 bits: as those of the ID images.

    Raises:
        UserError: a table lists files that are not there, or no image can be read.
    """
    listed: list[str] = []
    stores: dict[str, Store] = {}
    passed = list(listing.passed)
    for source, manifest in zip(listing.images.sources, listing.tables, strict=True):
        if manifest is not None:
            rows = manifest.read([], ReadOptions(_doubts_to(passed))).table
            texts = list(map(str, rows["path"]))
        else:
            texts = list(source.texts)
        listed += texts
        stores |= dict.fromkeys(texts, source.store)
    tell_passed(passed)
    paths = pd.Series(listed)
    store: Store = CombinedStores(stores) if set(stores.values()) - {FILES} else FILES
    look = partial(_read_error, store=store, decoding=decoding)
    errors = file_facts(paths, look, "decoding images", store=store)["error"]
    table = pd.DataFrame({"path": paths.to_numpy(), "error": errors.to_numpy()})
    broken = table["error"] != ""
    if broken.any():
        text = unreadable(table, "images")
        if broken.all():
            raise UserError(f"task.images: {text}")
        log.warning("%s; the table names the error of each", text)
    readable = table.loc[table["error"] == "", ["path"]].assign(label=-1).reset_index(drop=True)
    return ReadableImages(
        table, FileDataset("images", readable, [], store=store, decoding=decoding), tuple(passed)
    )


def groups_of(listed: ListedImages, paths: pd.Series, by: str, tell: Tell = to_log) -> np.ndarray:
    """The name of the group of each new image, ``[N]``.

    Args:
        listed: where columns are looked up.
        paths: of the images.
        by: ``task.group``, see :func:`~ood_lab.data.datamodules.image_groups.group_names`.
        tell: receives the number of images without a group.

    Raises:
        UserError: no such column, or a pattern that is none or matches nothing.
    """
    images = pd.DataFrame({"path": paths.to_numpy()})
    tables = [table for table in listed.tables if table is not None]
    if tables and by != FOLDER and "(" not in by:
        silent = ReadOptions(_doubts_to([]), group=by)
        read = [table.read([], silent).table for table in tables]
        columns = pd.concat(read).drop_duplicates("path").set_index("path")
        if by in columns:
            images[by] = images["path"].map(columns[by])
    return group_names(images, "task.images", "task.group", by, tell)


def tell_passed(sentences: Sequence[str]) -> None:
    """Warns of what was passed over."""
    for sentence in sentences:
        log.warning("task.images: %s", sentence)


def _listing_of(place: Given, key: str, passed: list[str]) -> tuple[Addresses, Manifest | None]:
    """What one source points to, and the source where it is a table or list.

    What it passes over goes to ``passed``.
    """
    source = source_of(place, key)
    if isinstance(source, Manifest):
        if isinstance(place, str | os.PathLike) and (images := _pattern_files(str(place))):
            return Addresses(images), None
        file = Path(absolute(source.place))
        if file.suffix.lower() in TABLES and file.is_file():
            return read_paths(file, source.root), source
    table, _, store = source.read([], ReadOptions(_doubts_to(passed)))
    return Addresses(table["path"].tolist(), store), None


def _doubts_to(sentences: list[str]) -> Tell:
    """Keeps the remarks on what may be missing."""

    def keep(text: str, doubtful: bool = True) -> None:
        if doubtful:
            sentences.append(text)

    return keep


def _pattern_files(pattern: str) -> list[str]:
    """The image files of a pattern, or the one that a path names; none for other sources."""
    path = absolute(pattern)
    if glob.has_magic(path) and not os.path.exists(path):
        matches = sorted(filter(os.path.isfile, glob.iglob(path, recursive=True)))
        images = pictures_among(list(filter(is_picture, matches)))
        if not images:
            other = f", only other files such as '{matches[0]}'" if matches else ""
            raise UserError(f"task.images: '{pattern}' matches no image{other}")
        return images
    if not os.path.exists(path):
        raise missing_path(pattern)
    return [path] if os.path.isfile(path) and is_picture(path) else []


def _read_error(path: str, store: Store, decoding: Decoding) -> Facts:
    try:
        load_rgb(path, store, decoding)
    except UserError as error:
        return {"error": reason(error.__cause__ or error, path)}
    return {"error": ""}
