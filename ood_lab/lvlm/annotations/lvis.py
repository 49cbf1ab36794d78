"""LVIS: COCO's images with 1,203 categories, federated (arXiv 1908.03195)."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

from ood_lab.common.errors import reported_as
from ood_lab.lvlm.annotations.annotation_table import (
    Annotations,
    absolute,
    frame_of,
    images_table,
    read_json,
)
from ood_lab.lvlm.annotations.coco import Category, CocoAnnotations, Instance, check_categories


@dataclass(slots=True)
class _Image:
    id: int
    width: int
    height: int
    coco_url: str
    neg_category_ids: list[int]
    not_exhaustive_category_ids: list[int]


@dataclass(slots=True)
class _Instances:
    images: list[_Image]
    annotations: list[Instance]
    categories: list[Category]


@dataclass(frozen=True)
class LvisAnnotations(CocoAnnotations):
    """LVIS v1 (``lvis_v1_val.json``).

    Layout: ``images`` holds COCO's folders ``train2017`` and ``val2017``, for LVIS' own splits mix
    them; the file of an image is the last two parts of its ``coco_url``. Names lose their
    underscores (``aerosol_can`` → ``aerosol can``).

    LVIS is federated: of a category that is neither annotated nor among ``absent`` (verified not
    to be in the image), nothing is known; of those in ``not_exhaustive``, not all objects are
    marked. Both are columns of the images.

    The package ``lvis`` would bring OpenCV along to read the same JSON.

    Args:
        file: the JSON file.
        images: folder with ``train2017`` and ``val2017``.
        categories: names of those to keep, in this order; None = all.
        name: of the data, for folders and tables.
    """

    name: str = "lvis"

    def read(self) -> Annotations:
        """Reads and checks the file, and that every image is there.

        Raises:
            UserError: see :meth:`ood_lab.lvlm.annotations.coco.CocoAnnotations.read`.
        """
        file = absolute(self.file)
        results = read_json(file, _Instances, "LVIS v1", "COCO's own files are annotations=coco")
        checked = check_categories(file, results.categories)
        names = {number: name.replace("_", " ") for number, name in checked.items()}
        table = frame_of(results.images, ["id", "width", "height"])
        images = images_table(
            table["id"],
            ["/".join(image.coco_url.split("/")[-2:]) for image in results.images],
            table["width"],
            table["height"],
            absent=_named(file, names, [i.neg_category_ids for i in results.images]),
            not_exhaustive=_named(
                file, names, [i.not_exhaustive_category_ids for i in results.images]
            ),
        )
        return self._checked(images, names, results.annotations, {}, "natural")


def _named(file: Path, names: dict[int, str], lists: list[list[int]]) -> list[list[str]]:
    """Ids of categories by name, image by image."""
    with reported_as(
        f"'{file}': an image names category {{reason}}, which the file does not list", KeyError
    ):
        return [[names[number] for number in numbers] for numbers in lists]
