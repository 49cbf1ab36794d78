"""Images of the data, small, for pages and figures, and maps of places over them."""

from __future__ import annotations

import base64
import io
import logging
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import pandas as pd
from PIL import Image, ImageOps

from ood_lab.common.english import counted
from ood_lab.common.errors import one_line
from ood_lab.report.rendering.blocks import Picture
from ood_lab.schema.arrays import Floats

log = logging.getLogger(__name__)

#: ``(dataset, index)`` → the image, its encoded bytes (PNG, JPEG, ...), or None.
LoadImage = Callable[[str, int], Image.Image | bytes | None]
_SIDE = 112


@dataclass
class Thumbnails:
    """Loads images, and does without those that were moved or damaged since they were scored.

    Attributes:
        load_image: ``(dataset, index)`` → the image, its encoded bytes, or None.
        uris: pictures as data URIs; one that a page shows several times is kept once.
    """

    load_image: LoadImage
    uris: list[str] = field(default_factory=list)
    _numbers: dict[tuple[str, int], int | None] = field(default_factory=dict)
    _lost: dict[tuple[str, int], str] = field(default_factory=dict)

    def number(self, dataset: str, index: int) -> int | None:
        """Position of the picture in ``uris``; None where the image cannot be had."""
        key = (dataset, index)
        if key not in self._numbers:
            self._numbers[key] = None
            try:
                if image := self.load_image(dataset, index):
                    code = base64.b64encode(_encoded(image)).decode()
                    self._numbers[key] = len(self.uris)
                    self.uris.append(f"data:image/jpeg;base64,{code}")
            except Exception as error:  # readers of broken files raise almost anything
                self._lost[dataset, index] = one_line(error)
        return self._numbers[key]

    def picture(self, text: str, dataset: str, index: float) -> Picture:
        """An image of a set with a text."""
        return Picture(text, self.number(dataset, int(index)))

    def examples(
        self, ordered: pd.DataFrame, words: Sequence[str], show: Callable[[Any], str]
    ) -> list[Picture]:
        """The first, the middle and the last image of a dataset, whose rows are ordered."""
        rows = ordered.iloc[[0, len(ordered) // 2, -1]].to_dict("records")
        return [
            self.picture(f"{word} · {show(row)}", row["dataset"], row["index"])
            for word, row in zip(words, rows, strict=True)
        ]

    def warn(self, page: str) -> None:
        """One warning for all images that ``page`` has to do without."""
        if self._lost:
            first = next(iter(self._lost.values()))
            log.warning("%s lacks %s: %s", page, counted(len(self._lost), "picture"), first)


def _encoded(image: Image.Image | bytes) -> bytes:
    """A small upright image as JPEG."""
    read = Image.open(io.BytesIO(image)) if isinstance(image, bytes) else image
    small = ImageOps.exif_transpose(read).convert("RGB")
    small.thumbnail((_SIDE, _SIDE))
    buffer = io.BytesIO()
    small.save(buffer, "JPEG", quality=82)
    return buffer.getvalue()


#: From the threshold to the largest score of the page.
_YELLOW, _RED = np.array([255, 221, 51]), np.array([204, 0, 0])
#: Share of the colour in what is drawn.
_OPACITY = 0.65


def map_of(detector: str, dataset: str) -> str:
    """The name under which a page asks for images of a set with the map of a detector."""
    return f"map of {detector}: {dataset}"


def legend(low: float, high: float) -> str:
    """What the colours of a page mean."""
    return (
        f"Colored places have a score above the threshold {low:.4g} (yellow), up to {high:.4g} "
        "(red). All images of the page have this scale."
    )


def with_map(
    image: Image.Image, values: Floats, low: float, high: float, box: tuple[int, int, int, int]
) -> Image.Image:
    """The image in grey, with its places above a threshold in colour.

    Args:
        image: of the file.
        values: score of each place, ``[h, w]``.
        low: the threshold; places up to it stay grey.
        high: the score that is red.
        box: left, upper, right and lower edge of what the network sees of the image.
    """
    size = (box[2] - box[0], box[3] - box[1])
    scores = Image.fromarray(values.astype(np.float32)).resize(size, Image.Resampling.BILINEAR)
    share = (np.asarray(scores) - low) / max(high - low, 1e-12)
    colour = _YELLOW + (_RED - _YELLOW) * share.clip(0, 1)[..., None]
    pixels = np.asarray(image.convert("L").convert("RGB")).astype(np.float64)
    part = pixels[box[1] : box[3], box[0] : box[2]]
    above = _OPACITY * (share > 0)[..., None]
    part[:] = (1 - above) * part + above * colour
    return Image.fromarray(pixels.round().astype(np.uint8))
