"""Other backgrounds behind the objects of an image set (arXiv:2412.12683, section 4.5)."""

from __future__ import annotations

import zlib
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path, PurePosixPath
from typing import Literal, Protocol

import numpy as np
from PIL import Image, ImageOps

from ood_lab.common.english import counted
from ood_lab.common.errors import UserError
from ood_lab.common.file_records import text_sha256
from ood_lab.common.files import StrPath
from ood_lab.common.hints import check_known
from ood_lab.common.random_streams import RandomStream
from ood_lab.data.dataset import ImageDataset, ImageSets
from ood_lab.data.sources.file_facts import content_hashes
from ood_lab.data.sources.folders import existing_folder, instead, read_folder
from ood_lab.data.sources.image_files import FileDataset, load_rgb
from ood_lab.data.sources.pixel_cache import KeptImages


class Backgrounds(Protocol):
    """A source of backgrounds."""

    @property
    def identity(self) -> str:
        """Everything that determines the backgrounds."""

    def draw(self, rng: RandomStream, size: tuple[int, int]) -> Image.Image:
        """One background, RGB, of ``size`` (width, height)."""


class FolderBackgrounds:
    """The images of a folder, to any depth: one at random, cropped to the shape at random.

    Args:
        folder: with at least one image.
        cache_dir: remembers the sha256 of unchanged files; None = nothing is remembered.
        setting: what messages call it.

    Raises:
        UserError: no such folder, or no image in it.
    """

    def __init__(
        self,
        folder: StrPath,
        cache_dir: StrPath | None = None,
        setting: str = "data.background_source",
    ) -> None:
        place = existing_folder(folder)
        self.paths = list(read_folder(place, labelled=False)["path"])
        if not self.paths:
            raise UserError(f"{setting}={place} contains no images{instead(place)}")
        self._cache_dir = cache_dir

    @property
    def identity(self) -> str:
        """sha256 of all files."""
        return _digest(content_hashes(self.paths, self._cache_dir))

    def draw(self, rng: RandomStream, size: tuple[int, int]) -> Image.Image:
        """An image scaled to cover ``size`` and cropped to it at a random place."""
        image = load_rgb(self.paths[int(rng.integers(len(self.paths)))])
        horizontal, vertical = rng.random(2)
        return ImageOps.fit(image, size, centering=(float(horizontal), float(vertical)))


class ReplacedBackground(ImageDataset):
    """The images of another set, with everything but the object drawn from ``backgrounds``.

    ``mask * image + (1 - mask) * background`` with the mask of :meth:`ImageDataset.load_mask`;
    an image whose mask is empty stays unchanged. The background of an image follows from ``seed``
    and the last two parts of its path, so it is the same in every epoch and in every choice of a
    few images.

    Args:
        data: images with masks.
        backgrounds: what is put behind them.
        seed: of the backgrounds.
    """

    def __init__(self, data: ImageDataset, backgrounds: Backgrounds, seed: int) -> None:
        self.data = data
        self.backgrounds = backgrounds
        self.seed = seed
        self._kept: KeptImages | None = None
        masks = ""
        if isinstance(data, FileDataset):
            masks = _digest(content_hashes(data.table["mask"], data.cache_dir))
        else:
            # Rendered images are small and of one size, and drawing one costs more than keeping it.
            width, height = data.load_image(0).size
            self._kept = KeptImages(len(data), height, width)
        identity = _digest([data.identity, masks, backgrounds.identity, str(seed)])
        super().__init__(data.name, data.table, data.classes, identity, data.names)

    def load_mask(self, index: int) -> np.ndarray | None:
        """The mask of the image."""
        return self.data.load_mask(index)

    def load_image(self, index: int) -> Image.Image:
        """Returns row ``index`` as an RGB PIL image."""
        if self._kept is None:
            return self._compose(index)
        return Image.fromarray(self._kept.get(index, lambda: np.asarray(self._compose(index))))

    def _compose(self, index: int) -> Image.Image:
        image, mask = self.data.load_image(index), self.data.load_mask(index)
        if mask is None or not mask.any():
            return image
        path = PurePosixPath(str(self.table["path"].iat[index]).replace("\\", "/"))
        place = zlib.crc32("/".join(path.parts[-2:]).encode("utf-8", "surrogateescape"))
        behind = self.backgrounds.draw(np.random.default_rng([self.seed, place]), image.size)
        share = Image.fromarray((mask.astype(np.float32) * 255).round().astype(np.uint8))
        return Image.composite(image, behind, share)


def check_masks(data: ImageDataset) -> int:
    """Looks at all masks; returns how many are empty.

    Raises:
        UserError: an image has no mask, or one of another shape; all masks are empty.
    """
    empty = 0
    paths = list(map(str, data.table["path"]))
    # Who draws the images knows all objects: one mask tells whether masks are known.
    for row, path in enumerate(paths if isinstance(data, FileDataset) else paths[:1]):
        mask = data.load_mask(row)
        if mask is None:
            raise UserError(
                f"data.background=replaced: '{path}' has no mask. Give a folder of masks "
                "(data.masks=DIR), or a column 'mask' in the table of images"
            )
        if isinstance(data, FileDataset):
            with Image.open(path) as image:  # its header only, which does not know what is upright
                width, height = image.size
            if sorted(mask.shape) != sorted((width, height)):
                raise UserError(
                    f"the mask '{data.table['mask'].iat[row]}' has {mask.shape[1]} x "
                    f"{mask.shape[0]} pixels, its image '{path}' {width} x {height}: "
                    "they must agree"
                )
        empty += not mask.any()
    if empty == len(data):
        raise UserError(f"all masks of {data.name} are empty: white must mark the object")
    return empty


def mask_files(images: Sequence[str], folder: StrPath, setting: str = "data.masks") -> list[str]:
    """The mask of every image, by name: ``<folder>/[<class>/]<name of the image>.<any format>``.

    Where names occur in several sub-folders, the longest common end of both paths decides.
    ``setting`` is what messages call the folder.

    Raises:
        UserError: no such folder, or an image without a mask.
    """
    place = existing_folder(folder)
    files = {
        Path(path).relative_to(place).with_suffix("").parts: path
        for path in read_folder(place, labelled=False)["path"]
    }
    masks, missing = [], []
    for image in images:
        parts = Path(image).with_suffix("").parts
        ends = (parts[-n:] for n in range(len(parts), 0, -1))
        mask = next((files[end] for end in ends if end in files), None)
        if mask is None:
            missing.append(image)
        else:
            masks.append(mask)
    if missing:
        raise UserError(
            f"{setting}={folder} has no mask for {len(missing):,} of {len(images):,} images; "
            f"first: '{missing[0]}' (wanted: '{place / Path(missing[0]).stem}.png')"
        )
    return masks


def _digest(parts: Iterable[str]) -> str:
    return text_sha256("\0".join(parts))


Kind = Literal["origin", "replaced"]


@dataclass(frozen=True)
class Replacement:
    """The choice of backgrounds.

    Attributes:
        background: ``origin`` leaves all images unchanged.
        background_source: folder of backgrounds; None = those that the data itself knows.
        background_sets: names of the sets whose backgrounds are replaced.
        masks: folder of masks, see :func:`mask_files`; None = what the data knows of its objects:
            the column ``mask`` of a table, rendered images.
    """

    background: Kind = "origin"
    background_source: StrPath | None = None
    background_sets: Sequence[str] = ("train",)
    masks: StrPath | None = None

    def apply(
        self,
        splits: ImageSets,
        of_data: Backgrounds | None,
        seed: int,
        cache_dir: StrPath | None,
    ) -> list[str]:
        """Puts other backgrounds into the chosen sets of ``splits``, in place.

        Args:
            splits: all sets by name.
            of_data: backgrounds of the data itself; used where there is no ``source``.
            seed: of the backgrounds.
            cache_dir: keeps hashes of files.

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
            data = splits[name]
            if isinstance(data, FileDataset) and self.masks:
                data.table["mask"] = mask_files(data.paths, self.masks)
            empty = check_masks(data)
            splits[name] = ReplacedBackground(data, backgrounds, seed)
            rest = f"; no object was found in {empty:,}, which keep theirs" if empty else ""
            notes.append(f"{name}: backgrounds of {counted(len(data), 'image')} replaced{rest}")
        return notes
