"""Images without labels, as a user points to them."""

from __future__ import annotations

import glob
import logging
import os
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np
import pandas as pd

from ood_lab.data.fewshot import even_rows
from ood_lab.data.filefacts import Facts, file_facts
from ood_lab.data.files import FileDataset, load_rgb, reason
from ood_lab.data.formats import image_extensions
from ood_lab.data.manifest import read_manifest
from ood_lab.data.remarks import Remark
from ood_lab.errors import UserError
from ood_lab.hints import missing_path

log = logging.getLogger(__name__)

#: A path or a pattern; ``{path: ..., root: ...}``; or several of them.
Source = str | os.PathLike[str] | Mapping[str, str]


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


def read_images(source: Source | Sequence[Source], limit: int | None = None) -> Images:
    """Lists the images that are pointed to, and decodes each once.

    Args:
        source: one image file; a pattern (``photos/*.jpg``, ``**`` for any depth); a folder, a
            table or a list of paths as in :func:`~ood_lab.data.manifest.read_manifest`, whose
            labels are ignored; ``{path: ..., root: ...}`` where the paths of a list start from
            another folder; or several of these.
        limit: so many images at most, taken at equal steps; None = all.

    Raises:
        UserError: nothing there, or no image can be read.
    """
    one = isinstance(source, str | os.PathLike | Mapping)
    remarks: list[Remark] = []
    listed: list[str] = []
    for each in [source] if one else source:
        listed += _listed(each, remarks)
    if not listed:
        raise UserError("task.images is an empty list: give at least one image")
    passed = tuple(remark.text for remark in remarks if remark.doubtful)
    for sentence in passed:
        log.warning("task.images: %s", sentence)
    if limit is not None:
        listed = [listed[row] for row in even_rows(len(listed), limit)]
    paths = pd.Series(listed)
    errors = file_facts(paths, _look, "decoding images")["error"]
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
    return Images(table, FileDataset("images", readable, []), passed)


def _listed(source: Source, remarks: list[Remark]) -> list[str]:
    """Absolute paths of what one source points to; what it passes over goes to ``remarks``."""
    given = source if isinstance(source, Mapping) else {"path": source}
    path = os.path.abspath(os.path.expanduser(given["path"]))
    if glob.has_magic(path) and not os.path.exists(path):
        matches = sorted(filter(os.path.isfile, glob.iglob(path, recursive=True)))
        images = [match for match in matches if _is_image(match)]
        if not images:
            other = f", only other files such as '{matches[0]}'" if matches else ""
            raise UserError(f"task.images: '{given['path']}' matches no image{other}")
        return images
    if not os.path.exists(path):
        raise missing_path(given["path"])
    if os.path.isfile(path) and _is_image(path):
        return [path]
    found, _ = read_manifest(path, given.get("root"), [], remarks.append)
    return [str(each) for each in found["path"]]


def _is_image(path: str) -> bool:
    return os.path.splitext(path)[1].lower() in image_extensions()


def _look(path: str) -> Facts:
    try:
        load_rgb(path)
    except UserError as error:
        return {"error": reason(error.__cause__ or error, path)}
    return {"error": ""}
