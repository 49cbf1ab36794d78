"""The renderer's backgrounds of places where no dated vessel is photographed."""

from __future__ import annotations

import numpy as np
from PIL import Image

from ood_lab.builtin.vessels.drawings.backgrounds import BACKGROUNDS
from ood_lab.builtin.vessels.scene import RENDERER

#: Dated vessels stand in a studio or a museum; paper and the dark are for drawings and light.
PLACES = ("indoor", "outdoor", "dim", "colourful")


class OtherPlaces:
    """A room, a landscape, the dark or colours, each equally likely."""

    @property
    def identity(self) -> str:
        """Version of the renderer, and the places."""
        return f"{RENDERER} {' '.join(PLACES)}"

    def draw(self, rng: np.random.Generator, size: tuple[int, int]) -> Image.Image:
        """A background, RGB, of ``size`` (width, height)."""
        place = PLACES[int(rng.integers(len(PLACES)))]
        pixels = np.clip(BACKGROUNDS[place].paint(rng), 0.0, 1.0) * 255.0 + 0.5
        image = Image.fromarray(pixels.astype(np.uint8).transpose(1, 2, 0).copy())
        return image if image.size == size else image.resize(size)
