"""Covariate shift without a CLIP: statistics of the pixels, and how unusual they are together."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import torch
import torch.nn.functional as F
from torch import Tensor

from ood_lab.schema.arrays import Floats
from ood_lab.schema.image_statistics import PIXELS

#: Changes with the formulas, so that values of another version are not read again.
STATISTICS_VERSION = 2
#: Shares of the range that are clipped, and of the Nyquist frequency that is high.
_BLACK, _WHITE, _HIGH = 0.02, 0.98, 0.5
_LUMA = (0.299, 0.587, 0.114)
_BLOCK = 8
#: Cells of a side whose colours are measured.
_CELLS = 16
#: Bounds logarithms from below: an eighth of a grey level, and a ten-thousandth of the contrast.
_LEAST_NOISE, _LEAST_SHARE = 1 / (8 * 255), 1e-4
#: Added to the correlations of the statistics, so that few images do not make them singular.
RIDGE = 0.1
#: Normal consistency of the median absolute deviation.
_MAD = 1.4826
#: Spreads that a statistic counts at most, and a spread that is none.
_CLIP, _FLAT = 5.0, 1e-6


def image_statistics(pixels: Tensor) -> Tensor:
    r"""The statistics :data:`PIXELS` of images, each by itself.

    With the luma :math:`g = 0.299 R + 0.587 G + 0.114 B`:

    - brightness, contrast: mean and standard deviation of g.
    - saturation: mean of (max - min) / max of the channels (HSV), of the means of 16 x 16 cells,
      which noise hardly changes.
    - colourfulness: Hasler and Süsstrunk 2003 (doi 10.1117/12.477378), of these means in [0, 1].
    - warmth: mean of R - B.
    - sharpness: log10 of var(Laplacian of g) / var(g), which exposure does not change.
    - noise: log10 of median(|g * M|) / (6 · 0.6745), with Immerkær's mask M (1996, doi
      10.1006/cviu.1996.0060), in units of the range.
    - high frequencies: log10 of the share of the power of g above half of the Nyquist frequency.
    - blockiness: largest over median of the mean absolute differences between neighbours at the
      eight phases of a grid of 8 px, mean of both directions; 1 = no blocks. A resized image
      does not show those of its file.
    - clipped white, clipped black: share of the pixels with g >= 0.98 or g <= 0.02.

    Args:
        pixels: ``[B, 1 or more, H, W]`` in [0, 1]; of more than three channels the first three.

    Returns:
        ``[B, 11] float32``.
    """
    rgb = pixels[:, :3] if pixels.shape[1] >= 3 else pixels[:, :1].expand(-1, 3, -1, -1)
    rgb = rgb.float().clamp(0, 1)
    red, green, blue = rgb.unbind(dim=1)
    grey = _LUMA[0] * red + _LUMA[1] * green + _LUMA[2] * blue
    cells = F.adaptive_avg_pool2d(rgb, _CELLS)
    top, bottom = cells.amax(dim=1), cells.amin(dim=1)
    red_cells, green_cells, blue_cells = cells.unbind(dim=1)
    red_green, yellow_blue = red_cells - green_cells, (red_cells + green_cells) / 2 - blue_cells
    spread = _variance(red_green) + _variance(yellow_blue)
    shift = _pixel_mean(red_green) ** 2 + _pixel_mean(yellow_blue) ** 2
    variance = _variance(grey)
    laplacian, noise = _filtered(grey)
    relative = _variance(laplacian) / variance.clamp_min(_LEAST_NOISE**2)
    statistics = [
        _pixel_mean(grey),
        variance.sqrt(),
        _pixel_mean((top - bottom) / top.clamp_min(_LEAST_NOISE)),
        spread.sqrt() + 0.3 * shift.sqrt(),
        _pixel_mean(red - blue),
        relative.clamp_min(_LEAST_SHARE).log10(),
        (_median(noise.abs()) / (6 * 0.6745)).clamp_min(_LEAST_NOISE).log10(),
        _high_share(grey).clamp_min(_LEAST_SHARE).log10(),
        (_blockiness(grey) + _blockiness(grey.mT)) / 2,
        _pixel_mean((grey >= _WHITE).float()),
        _pixel_mean((grey <= _BLACK).float()),
    ]
    return torch.stack(statistics, dim=1)


def _pixel_mean(of: Tensor) -> Tensor:
    return of.flatten(1).mean(1)


def _variance(of: Tensor) -> Tensor:
    """In two passes, which take a quarter of the time of ``var``, as exactly."""
    rows = of.flatten(1)
    return (rows - rows.mean(1, keepdim=True)).square_().mean(1)


def _median(of: Tensor) -> Tensor:
    """The lower of two, as ``torch.median``, which takes six times as long on a CPU."""
    rows = of.flatten(1)
    if rows.device.type != "cpu":
        return rows.median(1).values
    middle = (rows.shape[1] - 1) // 2
    return torch.from_numpy(np.partition(rows.numpy(), middle, axis=1)[:, middle])


def _filtered(grey: Tensor) -> tuple[Tensor, Tensor]:
    """Laplacian with four neighbours, and Immerkær's mask, of the inner pixels."""
    if min(grey.shape[1:]) < 3:
        empty = grey.new_zeros(len(grey), 1, 1)
        return empty, empty
    across = grey[:, :, 2:] - 2 * grey[:, :, 1:-1] + grey[:, :, :-2]
    down = grey[:, 2:, 1:-1] - 2 * grey[:, 1:-1, 1:-1] + grey[:, :-2, 1:-1]
    return across[:, 1:-1] + down, across[:, 2:] - 2 * across[:, 1:-1] + across[:, :-2]


def _high_share(grey: Tensor) -> Tensor:
    """Share of the power above half of the Nyquist frequency, the mean left out."""
    height, width = grey.shape[1:]
    centred = grey - grey.mean(dim=(1, 2), keepdim=True)
    power = torch.fft.rfft2(centred).abs().square()
    down = torch.fft.fftfreq(height, device=grey.device)[:, None]
    across = torch.fft.rfftfreq(width, device=grey.device)
    # Half of the spectrum stands for both halves, but for the columns that are their own mirror.
    twice = torch.full_like(across, 2.0)
    twice[0] = 1
    if width % 2 == 0:
        twice[-1] = 1
    power = power * twice
    high = (down.square() + across.square()).sqrt() > _HIGH / 2
    return (power * high).sum(dim=(1, 2)) / power.sum(dim=(1, 2)).clamp_min(1e-12)


def _blockiness(grey: Tensor) -> Tensor:
    steps = (grey[:, :, 1:] - grey[:, :, :-1]).abs().mean(dim=1)
    width = steps.shape[1] // _BLOCK * _BLOCK
    if not width:
        return torch.ones(len(grey), device=grey.device)
    phases = steps[:, :width].reshape(len(grey), -1, _BLOCK).mean(dim=1)
    typical = phases.median(dim=1).values
    floor = _LEAST_NOISE
    return (phases.max(dim=1).values + floor) / (typical + floor)


@dataclass(frozen=True, eq=False)
class StatisticsDistance:
    r"""How unusual the statistics of an image are among those of training images.

    Of x, the statistics with logarithms of those that are skewed (log10 of the clipped shares +
    0.01, and of the blockiness), with their median m and spread s (the standard deviation or 1.4826
    times the median absolute deviation, the larger of both), and with the correlations C of
    :math:`z = (x - m) / s`, limited to ±5 so that no single statistic decides:

    .. math:: d(x) = \sqrt{z^T (C + 0.1 I)^{-1} z / S}

    Attributes:
        middle: m, ``[S]``.
        spread: s, ``[S]``; infinite where a statistic does not vary.
        inverse: ``(C + 0.1 I)^-1``, ``[S, S]``.
    """

    middle: Floats
    spread: Floats
    inverse: Floats

    @classmethod
    def of(cls, train: Floats) -> StatisticsDistance:
        """The distance from training images with the statistics ``[n, 11]``."""
        x = _symmetric(train)
        middle = np.median(x, axis=0)
        spread = np.maximum(_MAD * np.median(np.abs(x - middle), axis=0), x.std(axis=0))
        spread = np.where(spread > _FLAT, spread, np.inf)
        z = ((x - middle) / spread).clip(-_CLIP, _CLIP)
        second = z.T @ z / len(z)
        scale = np.sqrt(np.diag(second))
        scale = np.where(scale > 0, scale, 1)
        correlations = second / np.outer(scale, scale)
        return cls(middle, spread, np.linalg.inv(correlations + RIDGE * np.eye(len(middle))))

    def __call__(self, images: Floats) -> Floats:
        """The distances of images, ``[n, 11] -> [n]``."""
        z = ((_symmetric(images) - self.middle) / self.spread).clip(-_CLIP, _CLIP)
        squares: Floats = np.einsum("ns,st,nt->n", z, self.inverse, z)
        return np.sqrt(squares.clip(0) / len(self.middle))


def _symmetric(statistics: Floats) -> Floats:
    x = np.array(statistics, np.float64)
    names = list(PIXELS)
    for name, added in (("blockiness", 0.0), ("clipped white", 0.01), ("clipped black", 0.01)):
        place = names.index(name)
        x[:, place] = np.log10(x[:, place] + added)
    return x
