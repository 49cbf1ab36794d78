"""PixMix: training images, mixed with images of much structure (arXiv 2112.05135)."""

from __future__ import annotations

from typing import Annotated

import numpy as np
import torch
from annotated_types import Interval
from PIL import Image
from torch import Tensor
from torch.distributions import Beta
from torchvision.transforms import v2
from torchvision.transforms.v2.functional import pil_to_tensor, to_pil_image

from ood_lab.common.arguments import Count, Positive
from ood_lab.common.errors import UserError
from ood_lab.common.files import StrPath
from ood_lab.data.transforms.background_replacement import FolderBackgrounds

#: Strength of RandAugment's operations at severity 10, which is that of AugMix's.
_FULL = 30


class PixMix:
    """An image, mixed up to ``rounds`` times with itself or with an image of the mixing set.

    With pixels in [0, 1], x starts as the image or, with chance 1/2, as an operation on it. The
    number of rounds is uniform in 0..rounds. Each takes y, with equal chance an operation on the
    image or an image of the set, and weights (a, b), with equal chance of two pairs:
    ``a ~ Beta(beta, 1), b ~ Beta(1, beta)``, or ``a = 1 + Beta(1, beta), b = -Beta(1, beta)``.
    With equal chance ``x <- (a (2x - 1) + b (2y - 1) + 1) / 2`` or ``x <- (2x)^a (2y)^b / 2``,
    clipped to [0, 1].

    An operation is one of RandAugment's with a strength up to ``severity`` of 10. The paper's set
    excludes its four of colour. An image of the set is cropped to the shape of the other.

    Args:
        mixing_set: folder of images, to any depth.
        rounds: most sums or products, k in the paper.
        beta: of the weights.
        severity: of an operation.

    Raises:
        UserError: no folder is given, there is none, or it has no images.
    """

    def __init__(
        self,
        mixing_set: StrPath | None = None,
        rounds: Count = 4,
        beta: Positive = 3.0,
        severity: Annotated[int, Interval(ge=1, le=10)] = 3,
    ) -> None:
        if mixing_set is None:
            raise UserError(
                "PixMix mixes with images that are neither ID nor evaluated, such as fractals: "
                "give a folder of them with augmentation.mixing_set=DIR"
            )
        self.others = FolderBackgrounds(mixing_set, setting="augmentation.mixing_set")
        self.rounds, self.beta = rounds, beta
        strengths = range(1, severity * _FULL // 10 + 1)
        self.operation = v2.RandomChoice([v2.RandAugment(1, magnitude=m) for m in strengths])

    def __call__(self, image: Image.Image) -> Image.Image:
        """A mixed RGB image of the same size."""
        image = image.convert("RGB")
        x = _pixels(self.operation(image) if _coin() else image)
        for _ in range(int(torch.randint(self.rounds + 1, ()))):
            y = _pixels(self.operation(image) if _coin() else self._other(image.size))
            x = self.mixed(x, y).clamp(0, 1)
        return to_pil_image(x)

    def mixed(self, x: Tensor, y: Tensor) -> Tensor:
        """One random sum or product of two images ``[3, H, W]`` in [0, 1], not clipped."""
        weak = Beta(1.0, self.beta)
        if _coin():
            a, b = Beta(self.beta, 1.0).sample(), weak.sample()
        else:
            a, b = 1 + weak.sample(), -weak.sample()
        if _coin():
            return (a * (2 * x - 1) + b * (2 * y - 1) + 1) / 2
        return (2 * x) ** a * (2 * y).clamp(min=1e-37) ** b / 2

    def _other(self, size: tuple[int, int]) -> Image.Image:
        rng = np.random.default_rng(int(torch.randint(2**31, ())))
        return self.others.draw(rng, size)


def _coin() -> bool:
    return bool(torch.rand(()) < 0.5)


def _pixels(image: Image.Image) -> Tensor:
    return pil_to_tensor(image).float() / 255
