"""Maps of places drawn over images."""

from __future__ import annotations

import numpy as np
from PIL import Image

from ood_lab.schema.arrays import Floats

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
