"""Images of the data, small, for pages and figures."""

from __future__ import annotations

import io
import logging
from collections.abc import Callable

from PIL import Image, ImageOps

from ood_lab.common.english import counted

log = logging.getLogger(__name__)

#: ``(dataset, index)`` → the image, its encoded bytes (PNG, JPEG, ...), or None.
LoadImage = Callable[[str, int], Image.Image | bytes | None]


class Pictures:
    """Loads images, and does without those that were moved or damaged since they were scored.

    Args:
        load_image: ``(dataset, index)`` → the image, its encoded bytes, or None.
    """

    def __init__(self, load_image: LoadImage) -> None:
        self._load_image = load_image
        self._lost: dict[tuple[str, int], str] = {}

    def small(self, dataset: str, index: int, side: int) -> Image.Image | None:
        """An upright image in RGB, at most ``side`` pixels a side; None where it cannot be had."""
        try:
            image = self._load_image(dataset, index)
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

    def warn(self, page: str) -> None:
        """One warning for all images that ``page`` has to do without."""
        if self._lost:
            first = next(iter(self._lost.values()))
            log.warning("%s lacks %s: %s", page, counted(len(self._lost), "picture"), first)
