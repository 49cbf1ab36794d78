"""The builtin vessels as ID sets, five shifted OOD sets and the grid of levels."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from ood_lab.data.background import Backgrounds
from ood_lab.data.datamodule import OODDataModule
from ood_lab.data.dataset import ImageDataset
from ood_lab.data.vessels import (
    SHIFTS,
    OtherPlaces,
    ShiftedVessels,
    VesselsDataset,
    VesselsGrid,
    VesselsWorld,
)


class VesselsDataModule(OODDataModule):
    """Procedural data, no files: the images depend on the arguments alone.

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
        ambiguity: scale of the variation within a class; 1 leaves about 90% accuracy.
        seed: of all images.
        name: of the data, for folders and tables.
        options: see :class:`OODDataModule`.
    """

    def __init__(
        self,
        train: int,
        val: int,
        test: int,
        per_shift_set: int,
        per_cell: int,
        prior: str = "balanced",
        min_per_class: int = 20,
        ambiguity: float = 1.0,
        seed: int = 0,
        name: str = "vessels",
        **options: Any,
    ) -> None:
        order = list(SHIFTS) if per_shift_set else []
        super().__init__(name, **{"shift_order": order, "seed": seed, **options})
        self.sizes = {"train": train, "val": val, "test": test}
        self.per_shift_set = per_shift_set
        self.per_cell = per_cell
        self.prior = prior
        self.min_per_class = min_per_class
        self.ambiguity = ambiguity

    def build_splits(self) -> Mapping[str, ImageDataset]:
        """Draws what is on every image; the images themselves are rendered when asked for."""
        splits: dict[str, ImageDataset] = {
            name: self._id_split(name, n) for name, n in self.sizes.items()
        }
        for kind in SHIFTS if self.per_shift_set else ():
            splits[kind] = ShiftedVessels(kind, kind, self.per_shift_set, self.seed, self.ambiguity)
        if self.per_cell:
            splits["grid"] = VesselsGrid("grid", self.per_cell, self.seed, self.ambiguity)
        return splits

    def own_backgrounds(self) -> Backgrounds:
        """The renderer's other places."""
        return OtherPlaces()

    def _id_split(self, name: str, n: int) -> ImageDataset:
        return VesselsDataset(name, n, self.seed, self.prior, self.ambiguity, self.min_per_class)


class VesselsWorldModule(VesselsDataModule):
    """Vessels whose train and val sets are :class:`VesselsWorld`: all things, with captions.

    Test and the OOD sets are those of :class:`VesselsDataModule`; ``world``, a third captioned
    set, comes last.

    Args:
        world: number of images of that set.
        options: see :class:`VesselsDataModule`.
    """

    def __init__(self, world: int, **options: Any) -> None:
        super().__init__(**options)
        self.world = world

    def build_splits(self) -> Mapping[str, ImageDataset]:
        """As :class:`VesselsDataModule`, and the captioned set."""
        world = VesselsWorld("world", self.world, self.seed, self.ambiguity)
        return {**super().build_splits(), "world": world}

    def _id_split(self, name: str, n: int) -> ImageDataset:
        if name == "test":
            return super()._id_split(name, n)
        return VesselsWorld(name, n, self.seed, self.ambiguity)
