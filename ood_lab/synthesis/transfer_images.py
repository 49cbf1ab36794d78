"""Images of a material transfer: those that give shapes, their foreground, and the exemplars."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import pandas as pd
from PIL import Image

from ood_lab.common.errors import UserError
from ood_lab.data.checks.check_report import shared_content
from ood_lab.data.datamodules.base import OODDataModule
from ood_lab.data.dataset import ImageDataset
from ood_lab.data.sources.image_files import FileDataset
from ood_lab.data.sources.manifest import read_manifest


def read_contents(source: str) -> pd.DataFrame:
    """Columns ``path, label`` of the content images; the label is a name, or nothing."""
    table, names = read_manifest(source)
    words = dict(enumerate(names))
    return pd.DataFrame(
        {"path": table["path"], "label": [words.get(label, "") for label in table["label"]]}
    )


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
    words = dict(enumerate(test.classes))
    return pd.DataFrame({"path": paths, "label": [words.get(x, "") for x in test.labels.tolist()]})


class Materials:
    """Images that give their materials.

    Args:
        images: the ID test set, or images outside the ID data.
        rows: those of it that are exemplars.
    """

    def __init__(self, images: ImageDataset, rows: Sequence[int]) -> None:
        self.images = images
        self.rows = list(rows)
        paths = images.table["path"]
        self.names = [str(paths.iat[row]) for row in self.rows]

    def __len__(self) -> int:
        return len(self.rows)

    def load(self, position: int) -> Image.Image:
        """The image of an exemplar."""
        return self.images.load_image(self.rows[position])

    def label(self, position: int) -> str:
        """Its class, or nothing."""
        label = int(self.images.labels[self.rows[position]])
        return self.images.classes[label] if label >= 0 and self.images.classes else ""


def load_materials(data: OODDataModule, source: str | None) -> Materials:
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
        return Materials(test, range(len(test)))
    images = test
    if source is not None:
        table, _ = read_manifest(source, classes=[])
        images = FileDataset("exemplars", table, [], cache_dir=data.checking.cache_dir)
    _check_apart(images, data, ("train", "val"), "materials must come only from ID test images")
    row_of = {digest: row for row, digest in enumerate(test.content_hashes())}
    digests = images.content_hashes()
    strangers = [p for p, digest in zip(images.paths, digests, strict=True) if digest not in row_of]
    if strangers:
        raise UserError(
            f"exemplar '{strangers[0]}' is not an ID test image ({len(strangers)} such): materials "
            "must come only from ID test images; leave task.exemplars null to take all of them"
        )
    return Materials(test, sorted({row_of[digest] for digest in digests}))


def outside_materials(data: OODDataModule, source: str | None) -> Materials:
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
    table, names = read_manifest(source)
    images = FileDataset("exemplars", table, names, cache_dir=data.checking.cache_dir)
    rule = "these materials must come from outside the ID data"
    _check_apart(images, data, ("train", "val", "test"), rule)
    return Materials(images, range(len(images)))


def _check_apart(
    images: FileDataset, data: OODDataModule, splits: Sequence[str], rule: str
) -> None:
    for overlap in shared_content([data.splits[split] for split in splits], images):
        exemplar, twin = overlap.example
        raise UserError(
            f"exemplar '{exemplar}' is also a {overlap.first} image, '{twin}' "
            f"({overlap.count} such): {rule}"
        )
