"""LVIS: COCO's images with 1,203 categories, federated (arXiv 1908.03195)."""

from __future__ import annotations

from dataclasses import dataclass

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

    LVIS is federated: of most categories that an image has no annotation of, nothing is known. As
    in OODBench, they count as absent.

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
        )
        return self._checked(images, names, results.annotations, {}, "natural")
