"""Overlapping tiles of large images, whose details a resize to the network's input would lose."""

from __future__ import annotations

import logging
import math
import re
from collections.abc import Callable

import torch
from PIL import Image
from torch import Tensor

from ood_lab.common.errors import UserError
from ood_lab.common.tensor_file import Transform
from ood_lab.models.backbone import Backbone
from ood_lab.models.image_transforms import set_transform

log = logging.getLogger(__name__)
#: Share of a tile that the next one repeats: 28 of 224 pixels, so that no small part is cut.
OVERLAP = 1 / 8


class Tiles:
    """Cuts an image into ``rows x columns`` tiles of equal size, ``[T, 3, h, w]``, row by row.

    Together they cover the image, whatever its size. Neighbours share :data:`OVERLAP` of a side.

    Args:
        rows: from top to bottom.
        columns: from left to right.
        transform: of a tile, a PIL image, to ``[3, h, w]``; without a crop.
    """

    def __init__(self, rows: int, columns: int, transform: Transform) -> None:
        if min(rows, columns) < 1 or rows * columns < 2:
            raise UserError(f"tiles={rows}x{columns}: give two or more tiles, such as 2x3")
        self.rows, self.columns, self.transform = rows, columns, transform

    def __len__(self) -> int:
        return self.rows * self.columns

    def __repr__(self) -> str:
        """All settings: they key the features."""
        return f"Tiles({self.rows}x{self.columns}, overlap={OVERLAP}, {self.transform!r})"

    def __call__(self, image: Image.Image) -> Tensor:
        """The tiles of an image."""
        across, down = _edges(image.width, self.columns), _edges(image.height, self.rows)
        boxes = [(x, y, x_end, y_end) for y, y_end in down for x, x_end in across]
        return torch.stack([self.transform(image.crop(box)) for box in boxes])

    def joined(self, maps: Tensor) -> Tensor:
        """Maps of images ``[N, H, W]`` of those of their tiles ``[N * T, h, w]``.

        Where tiles overlap, the larger value: the largest of a map is that of its tiles.
        """
        h, w = maps.shape[1:]
        height, width = (round(side * _sides(n)) for side, n in ((h, self.rows), (w, self.columns)))
        whole = maps.new_full((len(maps) // len(self), height, width), -torch.inf)
        for number, part in enumerate(maps.unflatten(0, (-1, len(self))).unbind(1)):
            row, column = divmod(number, self.columns)
            top = round(row * (height - h) / max(1, self.rows - 1))
            left = round(column * (width - w) / max(1, self.columns - 1))
            place = whole[:, top : top + h, left : left + w]
            torch.maximum(place, part, out=place)
        return whole


def _sides(n: int) -> float:
    """How many sides of a tile ``n`` of them cover."""
    return n - (n - 1) * OVERLAP


def _edges(length: int, n: int) -> list[tuple[int, int]]:
    """First and last edge of ``n`` tiles along a side."""
    size = length / _sides(n)
    starts = [i * size * (1 - OVERLAP) for i in range(n)]
    return [(int(start), max(round(start + size), int(start) + 1)) for start in starts]


def tile_count(transform: object) -> int:
    """Tiles that an image passes as; 1 = whole."""
    return len(transform) if isinstance(transform, Tiles) else 1


def use_tiles(backbone: Backbone, setting: str, image_size: Callable[[], tuple[int, int]]) -> None:
    """Gives a backbone the transform of ``model.tiles``.

    Args:
        backbone: gets the transform.
        setting: ``RxC``, or ``auto``: so many that no tile is larger than the network's input.
        image_size: width and height of the images, in pixels.

    Raises:
        UserError: another setting, or images that cannot be cut.
    """
    name, size = f"model.tiles={setting}", backbone.data_config["input_size"]
    if setting == "auto":
        sides = zip(image_size(), size[:0:-1], strict=True)
        columns, rows = (
            max(1, math.ceil((pixels / side - OVERLAP) / (1 - OVERLAP))) for pixels, side in sides
        )
    elif match := re.fullmatch(r"(\d+)x(\d+)", str(setting)):
        rows, columns = map(int, match.groups())
    else:
        raise UserError(f"{name}: give auto, or rows x columns such as 2x3")
    if size[0] not in (1, 3):
        raise UserError(
            f"{name}: only grey and RGB images can be cut, not those of {size[0]} bands"
        )
    if setting == "auto" and rows * columns == 1:
        log.info("%s: no image is larger than the network's input, so none is cut", name)
        return
    set_transform(backbone, backbone.data_config, {"crop_mode": "squash", "crop_pct": 1.0})
    backbone.transform = Tiles(rows, columns, backbone.transform)
    log.info(
        "%s: %d x %d tiles of %d x %d pixels, %d forward passes per image instead of 1",
        name,
        rows,
        columns,
        size[2],
        size[1],
        rows * columns,
    )
