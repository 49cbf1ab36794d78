"""Images of the data, small, for pages and figures."""

from __future__ import annotations

import base64
import io
import logging
from collections.abc import Callable
from dataclasses import dataclass, field

from PIL import Image, ImageOps

from ood_lab.common.english import counted

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

    def small(self, dataset: str, index: int, side: int) -> Image.Image | None:
        """An upright image in RGB, at most ``side`` pixels a side; None where it cannot be had."""
        try:
            image = self.load_image(dataset, index)
            if isinstance(image, bytes):
                image = Image.open(io.BytesIO(image))
            if image is None:
                return None
            small = ImageOps.exif_transpose(image).convert("RGB")
        except Exception as error:  # readers of broken files raise almost anything
            self._lost[dataset, index] = " ".join(str(error).split())
            return None
        small.thumbnail((side, side))
        return small

    def number(self, dataset: str, index: int) -> int | None:
        """Position of the picture in ``uris``; None where the image cannot be had."""
        key = (dataset, index)
        if key not in self._numbers:
            small = self.small(dataset, index, _SIDE)
            self._numbers[key] = None if small is None else len(self.uris)
            if small is not None:
                buffer = io.BytesIO()
                small.save(buffer, "JPEG", quality=82)
                code = base64.b64encode(buffer.getvalue()).decode()
                self.uris.append(f"data:image/jpeg;base64,{code}")
        return self._numbers[key]

    def warn(self, page: str) -> None:
        """One warning for all images that ``page`` has to do without."""
        if self._lost:
            first = next(iter(self._lost.values()))
            log.warning("%s lacks %s: %s", page, counted(len(self._lost), "picture"), first)
