"""Light augmentation for training on the vessels."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import torch
from PIL import Image


@dataclass
class LightAugment:
    """Mirror, small shift, light photometric change and occasional noise; PIL to PIL.

    ``x' = (x - mean) * (1 + c) + mean + b + t`` with contrast ``c``, brightness ``b`` and a tint
    ``t`` a channel, uniform within plus or minus their limits, pixel values in [0, 1]. Without
    the photometric part a small network is over-confident on noise and drawings.

    Draws come from torch's generator, which data loaders seed in every worker.

    Args:
        flip: chance to mirror left and right.
        shift: largest shift in pixels, the border is repeated.
        contrast: limit of the relative change of contrast.
        brightness: limit of the change of brightness.
        tint: limit of the change of each colour channel.
        noise: chance of white noise, with a standard deviation up to 0.1.
    """

    flip: float = 0.5
    shift: int = 3
    contrast: float = 0.12
    brightness: float = 0.15
    tint: float = 0.05
    noise: float = 0.1

    def __call__(self, image: Image.Image) -> Image.Image:
        """Returns a changed copy of an RGB image of any size."""
        rng = np.random.default_rng(int(torch.randint(2**62, ())))
        pixels = np.asarray(image)
        mirrored = rng.random() < self.flip
        rows, columns = (
            (np.arange(size) - rng.integers(-self.shift, self.shift + 1)).clip(0, size - 1)
            for size in pixels.shape[:2]
        )
        if mirrored:
            columns = pixels.shape[1] - 1 - columns
        pixels = pixels.take(columns, 1).take(rows, 0)
        gain = 1.0 + rng.uniform(-self.contrast, self.contrast)
        offset = 255.0 * (
            rng.uniform(-self.brightness, self.brightness) + rng.uniform(-self.tint, self.tint, 3)
        )
        # One table look-up a channel does the affine change and the rounding.
        mean = pixels.mean()
        values = (np.arange(256) - mean) * gain + mean
        table = np.clip(values[:, None] + offset + 0.5, 0, 255).astype(np.uint8)
        changed = np.stack([table[:, k].take(pixels[..., k]) for k in range(3)], -1)
        if rng.random() < self.noise:
            spread = 255.0 * rng.uniform(0.0, 0.1)
            noise = spread * rng.standard_normal(changed.shape, np.float32)
            changed = np.clip(changed + noise, 0, 255).astype(np.uint8)
        return Image.fromarray(changed)
