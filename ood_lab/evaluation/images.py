"""Images without labels, as a user points to them."""

from __future__ import annotations

import glob
import logging
import os
from collections.abc import Sequence
from dataclasses import dataclass
from functools import partial

import numpy as np
import pandas as pd

from ood_lab.data.fewshot import even_rows
from ood_lab.data.filefacts import Facts, file_facts
from ood_lab.data.files import FileDataset, load_rgb, reason
from ood_lab.data.formats import image_extensions
from ood_lab.data.remarks import Remark
from ood_lab.data.sources import Given, Manifest, source_of
from ood_lab.data.stores import FILES, Store, Together
from ood_lab.errors import UserError
from ood_lab.hints import missing_path

log = logging.getLogger(__name__)


@dataclass(frozen=True)
class Images:
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


def read_images(source: Given | Sequence[Given], limit: int | None = None) -> Images:
    """Lists the images that are pointed to, and decodes each once.

    Args:
        source: one image file; a pattern (``photos/*.jpg``, ``**`` for any depth); a source as in
            :func:`~ood_lab.data.sources.source_of`, whose labels are ignored; or several of these
            in a list.
        limit: so many images at most, taken at equal steps; None = all.

    Raises:
        UserError: nothing there, or no image can be read.
    """
    remarks: list[Remark] = []
    listed: list[str] = []
    stores: dict[str, Store] = {}
    several = isinstance(source, list | tuple)
    for number, each in enumerate(source if several else [source]):
        key = f"task.images[{number}]" if several else "task.images"
        found, where = _listed(each, key, remarks)
        listed += found
        stores |= dict.fromkeys(found, where)
    if not listed:
        raise UserError("task.images is an empty list: give at least one image")
    passed = tuple(remark.text for remark in remarks if remark.doubtful)
    for sentence in passed:
        log.warning("task.images: %s", sentence)
    if limit is not None:
        listed = [listed[row] for row in even_rows(len(listed), limit)]
    paths = pd.Series(listed)
    store: Store = Together(stores) if set(stores.values()) - {FILES} else FILES
    look = partial(_look, store=store)
    errors = file_facts(paths, look, "decoding images", store=store)["error"]
    table = pd.DataFrame({"path": paths.to_numpy(), "error": errors.to_numpy()})
    broken = table[table["error"] != ""]
    if len(broken):
        first = broken.iloc[0]
        some = f"{len(broken):,} of {len(table):,} images cannot be read"
        example = f"first: '{first['path']}' ({first['error']})"
        if len(broken) == len(table):
            raise UserError(f"task.images: {some}; {example}")
        log.warning("%s and have an error in the table; %s", some, example)
    readable = table.loc[table["error"] == "", ["path"]].assign(label=-1).reset_index(drop=True)
    return Images(table, FileDataset("images", readable, [], store=store), passed)


def _listed(given: Given, key: str, remarks: list[Remark]) -> tuple[list[str], Store]:
    """Addresses of what one source points to; what it passes over goes to ``remarks``."""
    source = source_of(given, key)
    is_path = isinstance(given, str | os.PathLike) and isinstance(source, Manifest)
    if is_path and (images := _files(str(given))):
        return images, FILES
    found, _, store = source.read([], remarks.append)
    return [str(each) for each in found["path"]], store


def _files(given: str) -> list[str]:
    """The image files of a pattern, or the one that a path names; none for other sources."""
    path = os.path.abspath(os.path.expanduser(given))
    if glob.has_magic(path) and not os.path.exists(path):
        matches = sorted(filter(os.path.isfile, glob.iglob(path, recursive=True)))
        images = [match for match in matches if _is_image(match)]
        if not images:
            other = f", only other files such as '{matches[0]}'" if matches else ""
            raise UserError(f"task.images: '{given}' matches no image{other}")
        return images
    if not os.path.exists(path):
        raise missing_path(given)
    return [path] if os.path.isfile(path) and _is_image(path) else []


def _is_image(path: str) -> bool:
    return os.path.splitext(path)[1].lower() in image_extensions()


def _look(path: str, store: Store) -> Facts:
    try:
        load_rgb(path, store)
    except UserError as error:
        return {"error": reason(error.__cause__ or error, path)}
    return {"error": ""}
