"""The builtin scenes, through COCO's own format."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from ood_lab.builtin.scenes import ScenesDataset, write_coco
from ood_lab.builtin.scenes.coco_files import IMAGES
from ood_lab.builtin.vessels.datamodule import Images
from ood_lab.common.arguments import Seed, Share
from ood_lab.common.files import StrPath
from ood_lab.lvlm.annotations.annotation_table import Annotations, absolute
from ood_lab.lvlm.annotations.coco import CocoAnnotations


@dataclass(frozen=True)
class ScenesAnnotations:
    """Rendered scenes, see :class:`ood_lab.builtin.scenes.ScenesDataset`.

    They are written below ``folder`` as images and COCO instances, under their identity, and read
    back from there; what is there already is not rendered again.

    Args:
        folder: where they are kept.
        n: number of images.
        seed: of the scenes.
        size: height and width of the images, pixels.
        breaks: share of scenes of semantic levels 1 to 5.
        restyled: share of scenes of covariate levels 1 to 5.
        split: name of the random stream: scenes of ``train`` are those that models saw.
        categories: things to keep, in this order; None = all.
        name: of the data, for folders and tables.
    """

    folder: StrPath
    n: Images = 600
    seed: Seed = 0
    size: int = 96
    breaks: Share = 0.3
    restyled: Share = 0.0
    split: str = "test"
    categories: Sequence[str] | None = None
    name: str = "scenes"

    def read(self) -> Annotations:
        """Renders what is not there yet, and reads it.

        Raises:
            UserError: a number out of range, an unknown category, a folder that cannot be
                written, pycocotools missing.
        """
        data = ScenesDataset(
            self.split,
            self.n,
            self.seed,
            self.size,
            breaks=self.breaks,
            restyled=self.restyled,
        )
        file = write_coco(data, absolute(self.folder) / data.identity[:16])
        return CocoAnnotations(file, file.parent / IMAGES, self.categories, self.name).read()
