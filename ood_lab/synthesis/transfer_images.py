"""Images of a material transfer: those that give shapes, their foreground, and the exemplars."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from pathlib import Path

import numpy as np
import pandas as pd

from ood_lab.common.errors import UserError
from ood_lab.data.checks.check_report import shared_content
from ood_lab.data.datamodules.base import OODDataModule
from ood_lab.data.dataset import ImageDataset
from ood_lab.data.sources.image_files import FileDataset
from ood_lab.data.sources.manifest import read_manifest
from ood_lab.data.transforms.subsets import only_rows


def class_words(labels: Iterable[int], classes: Sequence[str]) -> list[str]:
    """The name of each label; nothing where the class is not known."""
    words = dict(enumerate(classes))
    return [words.get(label, "") for label in labels]


def read_contents(source: str) -> pd.DataFrame:
    """Columns ``path, label`` of the content images; the label is a name, or nothing."""
    table, names = read_manifest(source)
    return pd.DataFrame({"path": table["path"], "label": class_words(table["label"], names)})


def id_test_contents(data: OODDataModule) -> pd.DataFrame:
    """The same columns of the ID test images.

    Raises:
        UserError: they are no files.
    """
    data.setup()
    test = data.splits["test"]
    paths = test.paths if isinstance(test, FileDataset) else []
    if not paths or not Path(paths[0]).is_file():
        raise UserError("task.content=id_test: the ID test images of this data are not files")
    return pd.DataFrame({"path": paths, "label": class_words(test.labels.tolist(), test.classes)})


def load_materials(data: OODDataModule, source: str | None) -> ImageDataset:
    """The exemplars, after the check that nothing leaks from them.

    Args:
        data: the ID data.
        source: folder, table or list of the exemplars; None = all ID test images.

    Raises:
        UserError: an exemplar is not an ID test image, or has the sha256 of a training or
            validation image; or the ID data has no files to compare with.
    """
    data.setup()
    test = data.splits["test"]
    if not isinstance(test, FileDataset):
        if source is not None:
            raise UserError(
                "task.exemplars: the ID images of this data are generated, so files cannot be "
                "compared with them; leave it null to take all ID test images"
            )
        return test
    images = test if source is None else _exemplars(data, source)
    rule = "materials must come only from ID test images"
    _check_apart(images, data, ("train", "val"), rule)
    row_of = {digest: row for row, digest in enumerate(test.content_hashes())}
    digests = images.content_hashes()
    strangers = [p for p, digest in zip(images.paths, digests, strict=True) if digest not in row_of]
    if strangers:
        raise UserError(
            f"exemplar '{strangers[0]}' is not an ID test image ({len(strangers)} such): {rule}; "
            "leave task.exemplars null to take all of them"
        )
    return only_rows(test, np.array(sorted({row_of[digest] for digest in digests})))


def outside_materials(data: OODDataModule, source: str | None) -> ImageDataset:
    """Exemplars outside the ID data, for the shapes of ID test.

    Args:
        data: the ID data.
        source: folder, table or list of the exemplars.

    Raises:
        UserError: there is none, or an exemplar has the sha256 of an ID image.
    """
    if source is None:
        raise UserError(
            "task.content=id_test takes the shapes of ID test, so the materials come from images "
            "outside the ID data: name them with task.exemplars"
        )
    data.setup()
    images = _exemplars(data, source)
    rule = "these materials must come from outside the ID data"
    _check_apart(images, data, ("train", "val", "test"), rule)
    return images


def _exemplars(data: OODDataModule, source: str) -> FileDataset:
    table, names = read_manifest(source)
    return FileDataset("exemplars", table, names, cache_dir=data.checking.cache_dir)


def _check_apart(
    images: FileDataset, data: OODDataModule, splits: Sequence[str], rule: str
) -> None:
    for overlap in shared_content([data.splits[split] for split in splits], images):
        exemplar, twin = overlap.example
        raise UserError(
            f"exemplar '{exemplar}' is also a {overlap.first} image, '{twin}' "
            f"({overlap.count} such): {rule}"
        )
