"""The builtin scenes as ID sets, three shifted OOD sets and the grid of levels."""

from __future__ import annotations

from typing import Any

from ood_lab.builtin.scenes import SHIFTS, ScenesDataset, ScenesGrid, ShiftedScenes
from ood_lab.builtin.vessels.datamodule import ImageCount, Images
from ood_lab.builtin.vessels.datasets import GRID
from ood_lab.common.arguments import Seed
from ood_lab.data.datamodules.base import OODDataModule
from ood_lab.data.dataset import ImageSets, Splits


class ScenesDataModule(OODDataModule):
    """Procedural data, no files: the images depend only on the arguments. The class is the place.

    OOD sets are the kinds of ``SHIFTS``, between which no order of shift is claimed, then
    ``grid``, which carries levels.

    Args:
        train: number of training images.
        val: number of validation images.
        test: number of test images.
        per_shift_set: number of images of each shifted set.
        per_cell: images in each of the 35 cells of the grid; 0 = no grid.
        size: height and width of the images, pixels: a multiple of 4 from 64 to 256.
        seed: of all images.
        name: of the data, for folders and tables.
        options: see :class:`OODDataModule`.
    """

    rendered = "builtin scenes"

    def __init__(
        self,
        train: Images,
        val: Images,
        test: Images,
        per_shift_set: Images,
        per_cell: ImageCount,
        size: int = 96,
        seed: Seed = 0,
        name: str = "scenes",
        **options: Any,
    ) -> None:
        super().__init__(name, seed=seed, **options)
        self.sizes = {"train": train, "val": val, "test": test}
        self.per_shift_set = per_shift_set
        self.per_cell = per_cell
        self.size = size

    def build_splits(self) -> Splits:
        """Decides place, style and levels of every image; the rest is drawn when asked for."""
        splits: ImageSets = {
            name: ScenesDataset(name, n, self.seed, self.size) for name, n in self.sizes.items()
        }
        for kind in SHIFTS:
            splits[kind] = ShiftedScenes(kind, self.per_shift_set, self.seed, self.size)
        if self.per_cell:
            n = self.per_cell * len(GRID)
            splits["grid"] = ScenesGrid("grid", n, self.seed, self.size)
        return splits
