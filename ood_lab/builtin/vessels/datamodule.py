"""The builtin vessels as ID sets, five shifted OOD sets and the grid of levels."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Annotated, Any

from annotated_types import Interval

from ood_lab.builtin.vessels import (
    SHIFTS,
    OtherPlaces,
    ShiftedVessels,
    VesselsDataset,
    VesselsGrid,
)
from ood_lab.common.arguments import Remedy, Seed
from ood_lab.data.datamodules.base import OODDataModule
from ood_lab.data.dataset import ImageSets, Splits
from ood_lab.data.transforms.background_replacement import Backgrounds

#: Images of a set: each is described in a table before one is drawn.
_MOST = 1_000_000
ImageCount = Annotated[int, Interval(ge=0, le=_MOST)]
Images = Annotated[
    int, Interval(ge=1, le=_MOST), Remedy("for your own images, data=folder data.id.train=DIR")
]


class VesselsDataModule(OODDataModule):
    """Procedural data, no files: the images depend only on the arguments.

    OOD sets are the five kinds of ``SHIFTS``, by default in that declared order of shift, then
    ``grid``, which carries levels and has no place in the order.

    Args:
        train: number of training images.
        val: number of validation images.
        test: number of test images.
        per_shift_set: number of images of each shifted set; 0 = no such sets.
        per_cell: images in each of the 35 cells of the grid; 0 = no grid.
        prior: ``balanced``, or ``paper`` for a long-tailed distribution of classes.
        min_per_class: fewest images of a class in each ID set under the long tail.
        seed: of all images.
        name: of the data, for folders and tables.
        shift_order: of the OOD sets, for DAD; None = the declared one of the five kinds.
        options: see :class:`OODDataModule`.
    """

    rendered = "builtin vessels"

    def __init__(
        self,
        train: Images,
        val: Images,
        test: Images,
        per_shift_set: ImageCount,
        per_cell: ImageCount,
        prior: str = "balanced",
        min_per_class: ImageCount = 20,
        seed: Seed = 0,
        name: str = "vessels",
        shift_order: Sequence[str] | None = None,
        **options: Any,
    ) -> None:
        default = SHIFTS if per_shift_set else ()
        order = default if shift_order is None else shift_order
        super().__init__(name, shift_order=list(order), seed=seed, **options)
        self.sizes = {"train": train, "val": val, "test": test}
        self.per_shift_set = per_shift_set
        self.per_cell = per_cell
        self.prior = prior
        self.min_per_class = min_per_class

    def build_splits(self) -> Splits:
        """Draws what is on every image; the images themselves are rendered when asked for."""
        splits: ImageSets = {
            name: VesselsDataset(name, n, self.seed, self.prior, self.min_per_class)
            for name, n in self.sizes.items()
        }
        for kind in SHIFTS if self.per_shift_set else ():
            splits[kind] = ShiftedVessels(kind, self.per_shift_set, self.seed)
        if self.per_cell:
            splits["grid"] = VesselsGrid("grid", self.per_cell, self.seed)
        return splits

    def own_backgrounds(self) -> Backgrounds:
        """The renderer's other places."""
        return OtherPlaces()
