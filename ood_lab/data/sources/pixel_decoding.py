"""How the pixels of a file become 8 bits: the range of deeper images, and the largest size."""

from __future__ import annotations

import threading
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, nullcontext
from dataclasses import dataclass
from typing import Any

import numpy as np
import pandas as pd
from PIL import Image
from PIL.TiffImagePlugin import TiffImageFile

from ood_lab.common.errors import UserError

#: Bit depths of cameras and scanners.
_BITS = (8, 10, 12, 14, 16)
#: Share of the pixels of an image, at least one, that may be hot; of images, that are no rule.
HOT, _RARE = 1e-3, 0.05
#: Attribute of a picture with all of its channels, see :meth:`Decoding.with_channels`.
CHANNELS = "channels"
#: The whole range of 16 bits.
WHOLE = (0.0, 65535.0)
#: Percentiles of the sample that ``pixel_range=percentile`` maps to black and white.
PERCENTILES = (0.5, 99.5)
#: Percentile that stands for the brightest pixels.
TOP = 99.9
#: Megapixels from which images are decoded one after the other, so that threads need one at a time.
_ALONE = 50
_ONE_LARGE = threading.Lock()


@dataclass(frozen=True)
class Decoding:
    """Settings for the decoding of every image.

    Attributes:
        pixel_range: values that become black and white in images of more than 8 bits; None = the
            whole range of 16 bits.
        max_megapixels: larger images are read reduced, or rejected.
    """

    pixel_range: tuple[float, float] | None = None
    max_megapixels: float = 250

    @contextmanager
    def reduced(self, image: Image.Image) -> Iterator[None]:
        """Inside, the image is decoded: reduced where it is too large and its format can be.

        Raises:
            ValueError: it is too large.
        """
        self._reduce(image)
        large = image.width * image.height > _ALONE * 1e6
        with _ONE_LARGE if large else nullcontext():
            yield

    def picture(self, pixels: np.ndarray, transparent: bool = False) -> Image.Image:
        """The first three of ``[H, W, n]`` in 8 bits, of two or one the first as grey.

        Where it is ``transparent``, the last of 2 or 4 channels is, and has the whole range.

        Raises:
            ValueError: floats, where no range is given.
        """
        levels = self._levels(pixels[..., :3] if pixels.shape[2] > 2 else pixels[..., :1])
        if transparent:
            opaque = Decoding(WHOLE)._levels(pixels[..., -1:])
            levels = np.concatenate([levels, opaque], axis=2)
        plain = levels[..., 0] if levels.shape[2] == 1 else levels
        return Image.fromarray(np.ascontiguousarray(plain))

    def with_channels(self, picture: Image.Image, channels: np.ndarray) -> Image.Image:
        """The picture with an attribute ``channels [H, W, n]``, unless n is 1 or 3.

        It is ``uint8``, or ``float32`` in [0, 1], and operations of PIL drop it.
        """
        if channels.shape[2] not in (1, 3):
            if channels.dtype != np.uint8:
                low, high = self._ends(channels)
                share = (np.nan_to_num(channels, nan=low) - low) / (high - low)
                channels = share.clip(0, 1).astype(np.float32)
            setattr(picture, CHANNELS, channels)
        return picture

    def _ends(self, pixels: np.ndarray) -> tuple[float, float]:
        if self.pixel_range is None and pixels.dtype.kind == "f":
            raise ValueError(
                "floating-point pixels have no fixed range: set data.pixel_range=[low,high] "
                "or percentile, or save it with 8 or 16 bits"
            )
        return self.pixel_range or WHOLE

    def _levels(self, pixels: np.ndarray) -> np.ndarray:
        """8 bits of the range, the whole one of 16 bits where none is set; 8 bits stay."""
        if pixels.dtype == np.uint8:
            return pixels
        low, high = self._ends(pixels)
        levels = (np.nan_to_num(pixels.astype(np.float64), nan=low) - low) * (255 / (high - low))
        return levels.round().clip(0, 255).astype(np.uint8)

    def _reduce(self, image: Any) -> None:
        """Asks the decoder for the largest version within the limit."""
        width, height = image.size
        factors = [n for n in (2, 4, 8) if self._fits(-(-width // n), -(-height // n))]
        if self._fits(width, height):
            return
        if image.format in ("JPEG", "MPO") and factors:
            image.draft(image.mode, (width // factors[0], height // factors[0]))
        elif image.format == "JPEG2000" and factors:
            image.reduce = factors[0].bit_length() - 1
            return
        elif isinstance(image, TiffImageFile):
            for page in range(1, image.n_frames):
                image.seek(page)
                alike = abs(image.width * height / (image.height * width) - 1) < 0.02
                if alike and self._fits(image.width, image.height):
                    return
            image.seek(0)
        if not self._fits(image.width, image.height):
            size = width * height / 1e6
            raise ValueError(
                f"it has {width:,} × {height:,} pixels, {size:,.0f} megapixels, and cannot be read "
                f"reduced: data.max_megapixels={int(size) + 1} reads it whole"
            )

    def _fits(self, width: int, height: int) -> bool:
        return width * height <= self.max_megapixels * 1e6


def is_deep(image: Image.Image) -> bool:
    """True for one channel of more than 8 bits."""
    return image.mode == "F" or image.mode.startswith("I")


def range_of(values: pd.DataFrame, wanted: Any) -> tuple[tuple[float, float] | None, str]:
    """The values that become black and white, one pair for all sets, and what to say of them.

    Args:
        values: of a sample of the training images, see
            :func:`~ood_lab.data.sources.image_files.pixel_values`; 8-bit images do not count.
        wanted: ``auto``, ``percentile`` or ``[low, high]``. ``auto`` takes the smallest of 8, 10,
            12, 14 and 16 bits that holds integers without hot pixels, and 0 to 1 for floats.
            ``percentile`` takes the medians of the images' :data:`PERCENTILES`.

    Returns:
        None for the whole range of 16 bits.

    Raises:
        UserError: the range is no pair, or ``auto`` cannot know it.
    """
    if isinstance(wanted, Sequence) and not isinstance(wanted, str):
        if len(wanted) != 2 or not wanted[0] < wanted[1]:
            raise UserError(f"data.pixel_range={list(wanted)}: give [low, high] with low < high")
        return (float(wanted[0]), float(wanted[1])), ""
    deep = values[values["deep"].astype(bool)]
    if deep.empty:
        return None, ""
    least, most = float(deep["least"].min()), float(deep["most"].max())
    if wanted == "percentile":
        low, high = float(deep["low"].median()), float(deep["high"].median())
        if not low < high:
            raise UserError(f"data.pixel_range=percentile: nearly all pixels are {low:g}")
        return (low, high), f"pixel values {low:g} to {high:g} become black to white (percentiles)"
    seen = f"the pixel values of {len(deep)} training images are {least:g} to {most:g}"
    other = f"data.pixel_range=[{least:g},{most:g}] or percentile sets another range"
    if deep["floats"].any():
        if least < 0 or most > 1:
            raise UserError(
                f"{seen}, floating-point pixels without a fixed range: set data.pixel_range="
                f"[{least:g},{most:g}] or percentile, or save the images with 8 or 16 bits"
            )
        return (0.0, 1.0), f"{seen}: 0 to 1 become black to white; {other}"
    if least < 0 or most > WHOLE[1]:
        raise UserError(
            f"{seen}, beyond 16 bits: set data.pixel_range=[{least:g},{most:g}] or percentile"
        )
    solid = float(deep["solid"].max())
    usual = float(deep["solid"].quantile(1 - _RARE, interpolation="higher"))
    bits, fewer, needed = (next(n for n in _BITS if v < 2**n) for v in (solid, usual, most))
    if bits < needed:
        seen += f", all but single ones up to {solid:g}"
    high = 2.0**bits - 1
    other = "data.pixel_range=[0,65535] takes the whole range of 16 bits"
    if fewer < bits:
        other = f"most images have {fewer}: data.pixel_range=[0,{2**fewer - 1}] takes these"
    text = f"{seen}: they are read as {bits} bits, 0 to {high:g}; {other}"
    if bits == _BITS[-1]:
        return None, text if fewer < bits else ""
    return (0.0, high), text
