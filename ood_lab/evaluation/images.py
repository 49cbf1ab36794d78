"""Images without labels, as a user points to them."""

from __future__ import annotations

import logging
import os
from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np
import pandas as pd

from ood_lab.data.fewshot import even_rows
from ood_lab.data.filefacts import Facts, file_facts
from ood_lab.data.files import FileDataset, load_rgb, reason
from ood_lab.data.manifest import read_manifest
from ood_lab.data.remarks import Remark
from ood_lab.errors import UserError

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


def read_images(
    source: str | os.PathLike[str] | Mapping[str, str], limit: int | None = None
) -> Images:
    """Lists the images of a folder (any depth), a table or a list, and decodes each once.

    Args:
        source: see :func:`~ood_lab.data.manifest.read_manifest`; labels are ignored. Or
            ``{path: ..., root: ...}`` where the paths of a list start from another folder.
        limit: so many images at most, taken at equal steps; None = all.

    Raises:
        UserError: nothing there, or no image can be read.
    """
    given = source if isinstance(source, Mapping) else {"path": source}
    remarks: list[Remark] = []
    found, _ = read_manifest(given["path"], given.get("root"), [], remarks.append)
    passed = tuple(remark.text for remark in remarks if remark.doubtful)
    for sentence in passed:
        log.warning("task.images: %s", sentence)
    if limit is not None:
        found = found.iloc[even_rows(len(found), limit)].reset_index(drop=True)
    paths = found["path"].astype(str)
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


def _look(path: str) -> Facts:
    try:
        load_rgb(path)
    except UserError as error:
        return {"error": reason(error.__cause__ or error, path)}
    return {"error": ""}
