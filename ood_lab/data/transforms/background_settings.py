"""``data.background``: whether, where and how backgrounds are replaced."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal

from ood_lab.common.english import counted
from ood_lab.common.errors import UserError
from ood_lab.common.files import StrPath
from ood_lab.common.hints import check_known
from ood_lab.data.dataset import ImageDataset
from ood_lab.data.sources.image_files import FileDataset
from ood_lab.data.transforms.background_replacement import (
    Backgrounds,
    FolderBackgrounds,
    ReplacedBackground,
    check_masks,
    mask_files,
)
from ood_lab.data.transforms.mask_files import Segmenter, segmented_masks

Kind = Literal["origin", "replaced"]


@dataclass(frozen=True)
class Replacement:
    """The choice of backgrounds.

    Attributes:
        background: ``origin`` leaves all images unchanged.
        background_source: folder of backgrounds; None = those that the data itself knows.
        background_sets: names of the sets whose backgrounds are replaced.
        masks: folder of masks, see :func:`mask_files`; None = what the data knows of its objects
            (the column ``mask`` of a table, rendered images), else ``segmenter``.
        segmenter: finds the objects where nothing else says where they are.
    """

    background: Kind
    background_source: StrPath | None
    background_sets: Sequence[str]
    masks: StrPath | None
    segmenter: Segmenter | None

    def apply(
        self,
        splits: dict[str, ImageDataset],
        of_data: Backgrounds | None,
        seed: int,
        cache_dir: StrPath | None,
    ) -> list[str]:
        """Puts other backgrounds into the chosen sets of ``splits``, in place.

        Args:
            splits: all sets by name.
            of_data: backgrounds of the data itself; used where there is no ``source``.
            seed: of the backgrounds.
            cache_dir: keeps hashes and segmented masks.

        Returns:
            What the user should know.

        Raises:
            UserError: no backgrounds, no such set, or images whose object nothing tells.
        """
        if self.background == "origin":
            return []
        backgrounds = (
            FolderBackgrounds(self.background_source, cache_dir)
            if self.background_source
            else of_data
        )
        if backgrounds is None:
            raise UserError(
                "data.background=replaced needs images of other places: data.background_source=DIR"
            )
        notes = []
        wrong = "data.background_sets names '{name}', which is not a set"
        check_known(self.background_sets, splits, wrong)
        for name in self.background_sets:
            data = self._with_masks(splits[name], cache_dir)
            empty = check_masks(data)
            # Rendered images are small, and drawing one costs more than keeping it.
            keep = not isinstance(data, FileDataset)
            splits[name] = ReplacedBackground(data, backgrounds, seed, keep)
            rest = f"; no object was found in {empty:,}, which keep theirs" if empty else ""
            notes.append(f"{name}: backgrounds of {counted(len(data), 'image')} replaced{rest}")
        return notes

    def _with_masks(self, data: ImageDataset, cache_dir: StrPath | None) -> ImageDataset:
        """The same images, their masks in the column ``mask`` where they are files."""
        if not isinstance(data, FileDataset):
            return data
        if self.masks:
            data.table["mask"] = mask_files(data.paths, self.masks)
        elif "mask" not in data.table and self.segmenter:
            data.table["mask"] = segmented_masks(data, self.segmenter, cache_dir)
        return data
