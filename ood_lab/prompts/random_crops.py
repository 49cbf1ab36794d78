"""Many random views of one image, as one image."""

from __future__ import annotations

from collections.abc import Sequence

from PIL import Image
from torch import Tensor
from torchvision.transforms import Compose, RandomHorizontalFlip, RandomResizedCrop


class RandomViews:
    """Random crops and flips of an image, stacked below each other.

    One tall image passes through normalisation and batching like any other;
    :func:`split_views` takes it apart again.

    Args:
        n: number of views.
        size: of a view in pixels.
        scale: share of the image's area that a crop covers, smallest and largest.
        flip: probability of a horizontal flip.
        interpolation: as PIL numbers it; 2 = bilinear, 3 = bicubic.
    """

    def __init__(
        self,
        n: int,
        size: int,
        scale: Sequence[float] = (0.08, 1.0),
        flip: float = 0.5,
        interpolation: int = 2,
    ) -> None:
        self.n = n
        self.size = size
        crop = RandomResizedCrop(size, tuple(scale), interpolation=interpolation)
        self.view = Compose([crop, RandomHorizontalFlip(flip)])

    def __call__(self, image: Image.Image) -> Image.Image:
        """Maps an RGB image to one of ``size`` x ``n·size`` pixels."""
        stack = Image.new("RGB", (self.size, self.n * self.size))
        for i in range(self.n):
            stack.paste(self.view(image), (0, i * self.size))
        return stack


def split_views(images: Tensor) -> Tensor:
    """Maps ``images [B, 3, V·S, S]`` to their square views ``[B, V, 3, S, S]``."""
    side = images.shape[3]
    return images.unflatten(2, (-1, side)).transpose(1, 2)
