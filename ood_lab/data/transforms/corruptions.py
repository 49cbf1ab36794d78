"""The 15 common corruptions of ImageNet-C (arXiv 1903.12261) at severities 1 to 5.

Written from the published formulas and strengths. Three published tables are kept, for images of
32 (CIFAR-10-C), 64 (Tiny ImageNet-C) and 224 pixels (ImageNet-C); an image takes the one whose size
is nearest to its shorter side. These differ from the published images:
frost, motion blur, snow, elastic transform, and no JPEG on top.
"""

from __future__ import annotations

import io
import math
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import pandas as pd
from PIL import Image
from scipy import ndimage
from scipy.signal import fftconvolve

from ood_lab.common.file_records import text_sha256
from ood_lab.common.files import packaged_table
from ood_lab.common.random_streams import RandomStream, stream
from ood_lab.data.dataset import UNKNOWN, ImageDataset
from ood_lab.data.sources.pixel_decoding import CHANNELS
from ood_lab.schema.arrays import Floats
from ood_lab.schema.image_columns import GROUP, MADE_OF

#: ``[H, W, 3]`` (an image) or ``[H, W]`` (a layer), 0 = black, 1 = white.
Pixels = Floats
#: Raised when a corrupted image is no longer the same pixel by pixel.
VERSION = 2
SEVERITIES = (1, 2, 3, 4, 5)
#: Pixels of the shorter side that the published strengths are for.
SIZES = (32, 64, 224)


def gaussian_noise(x: Pixels, rng: RandomStream, deviation: float) -> Pixels:
    """``x + N(0, deviation^2)``."""
    return x + rng.normal(scale=deviation, size=x.shape)


def shot_noise(x: Pixels, rng: RandomStream, photons: float) -> Pixels:
    """``Poisson(photons x) / photons``: white is so many photons."""
    return rng.poisson(x * photons) / photons


def impulse_noise(x: Pixels, rng: RandomStream, share: float) -> Pixels:
    """A share of all values becomes 0 or 1, each as often."""
    hit, white = rng.random(x.shape) < share, rng.random(x.shape) < 0.5
    return np.where(hit, white, x)


def disk(radius: float, softness: float) -> Pixels:
    """An even disk of sum 1, its edge softened by a Gaussian of 3 x 3 taps (above 8: 5 x 5).

    The softening mirrors the border of the grid, so that radii from 8 on gain up to 2%.
    """
    reach = max(8, int(radius))
    rows, columns = np.mgrid[-reach : reach + 1, -reach : reach + 1]
    distance = np.hypot(rows, columns)
    even = (distance <= radius).astype(np.float64)
    taps = 1 if radius <= 8 else 2
    return ndimage.gaussian_filter(even / even.sum(), softness, mode="mirror", radius=taps)


def defocus_blur(x: Pixels, rng: RandomStream, radius: float, softness: float) -> Pixels:
    """``x * disk(radius, softness)``."""
    kernel = disk(radius, softness)
    reach = len(kernel) // 2
    padded = np.pad(x, ((reach, reach), (reach, reach), (0, 0)), mode="reflect")
    return fftconvolve(padded, kernel[..., None], mode="valid", axes=(0, 1))


def glass_blur(x: Pixels, rng: RandomStream, deviation: float, reach: int, rounds: int) -> Pixels:
    """Blurred, shuffled nearby, and blurred again.

    From the lower right to the upper left, every pixel takes the colour that a random neighbour
    (``-reach`` to ``reach - 1`` each way) has by then. The published code means to swap the two,
    and copies.
    """
    height, width = x.shape[:2]
    blurred = np.floor(_blur(x, deviation) * 255) / 255
    rows, columns = np.arange(height - reach, reach, -1), np.arange(width - reach, reach, -1)
    targets = np.tile((rows[:, None] * width + columns).ravel(), rounds)
    down, right = rng.integers(-reach, reach, (2, len(targets)))
    taken = list(range(height * width))
    sources = targets + down * width + right
    for target, source in zip(targets.tolist(), sources.tolist(), strict=True):
        taken[target] = taken[source]  # in turn: a colour may wander
    return _blur(blurred.reshape(-1, 3)[taken].reshape(x.shape), deviation)


def motion_blur(x: Pixels, rng: RandomStream, radius: int, deviation: float) -> Pixels:
    """Half a Gaussian of ``2 radius + 1`` taps along a line within 45 degrees of the horizontal.

    The published images were made by ImageMagick, whose rounding of taps and edges may differ.
    """
    return _streak(x, radius, deviation, math.radians(rng.uniform(-45, 45)))


def zoom_blur(x: Pixels, rng: RandomStream, end: float, step: float) -> Pixels:
    """Mean of the image and its zooms by 1, 1 + step, ... below ``end``, around the centre."""
    factors = np.arange(1, end, step)
    return (x + sum(_zoomed(x, factor) for factor in factors)) / (len(factors) + 1)


def snow(
    x: Pixels,
    rng: RandomStream,
    mean: float,
    deviation: float,
    zoom: float,
    threshold: float,
    radius: int,
    streak: float,
    kept: float,
) -> Pixels:
    """Brightened towards ``max(x, 1.5 grey + 0.5)``, then flakes added, and the same upside down.

    Flakes are noise ``N(mean, deviation^2)``, zoomed, those below the threshold left out, drawn out
    by a motion blur within 45 degrees of the vertical (that of :func:`motion_blur`).
    """
    flakes = _zoomed(rng.normal(mean, deviation, x.shape[:2]), zoom)
    flakes = np.clip(np.where(flakes < threshold, 0, flakes), 0, 1)
    flakes = _streak(flakes, radius, streak, math.radians(rng.uniform(-135, -45)))
    grey = (x @ (0.299, 0.587, 0.114))[..., None]
    bright = kept * x + (1 - kept) * np.maximum(x, 1.5 * grey + 0.5)
    return bright + flakes[..., None] + flakes[::-1, ::-1, None]


def frost(x: Pixels, rng: RandomStream, kept: float, added: float) -> Pixels:
    """``kept x + added ice``.

    The published images show parts of five pictures of frost, which are not ours to pass on: this
    ice is drawn, with their mean colour, brightness and contrast.
    """
    return kept * x + added * ice(rng, x.shape[:2])


def ice(rng: RandomStream, shape: tuple[int, ...]) -> Pixels:
    """A picture of frost, ``[*shape, 3]``: cloudy light, and the relief of crystals."""
    side = max(shape)
    cloud = plasma(rng, shape, 1.6) - 0.5
    relief = np.zeros(shape)
    for share in (160, 80, 40):
        bumps = _blur(rng.normal(size=shape), side / share / 2)
        bumps = _streak(bumps, max(1, side // share * 2), side / share, rng.uniform(0, np.pi))
        slope = np.abs(bumps) - np.abs(np.roll(bumps, 1, axis=(0, 1)))
        relief += slope / max(float(slope.std()), 1e-9)
    light = rng.uniform(0.42, 0.8) + 0.25 * cloud + 0.04 * relief
    return np.clip(light[..., None] * (0.87, 1.0, 1.07), 0, 1)


def fog(x: Pixels, rng: RandomStream, thickness: float, decay: float) -> Pixels:
    """``(x + thickness plasma) m / (m + thickness)`` with ``m`` the largest value of ``x``."""
    brightest = x.max()
    thick = x + thickness * plasma(rng, x.shape[:2], decay)[..., None]
    return thick * brightest / (brightest + thickness)


def plasma(rng: RandomStream, shape: tuple[int, ...], decay: float) -> Pixels:
    """Clouds by the diamond-square algorithm on a torus, ``[*shape]`` from 0 to 1.

    The noise of a step is ``decay^2`` times smaller than that of the step before.
    """
    size = 2 ** max(1, math.ceil(math.log2(max(shape))))
    field = np.zeros((1, 1))
    amplitude = 1.0
    while len(field) < size:
        # Mean of the four corners; then of the four neighbours above, below, left and right.
        right, below = np.roll(field, -1, 1), np.roll(field, -1, 0)
        middle = (field + right + below + np.roll(right, -1, 0)) / 4
        middle = middle + amplitude * rng.uniform(-1, 1, field.shape)
        top = (field + right + middle + np.roll(middle, 1, 0)) / 4
        left = (field + below + middle + np.roll(middle, 1, 1)) / 4
        finer = np.empty((2 * len(field), 2 * len(field)))
        finer[::2, ::2], finer[1::2, 1::2] = field, middle
        finer[::2, 1::2] = top + amplitude * rng.uniform(-1, 1, field.shape)
        finer[1::2, ::2] = left + amplitude * rng.uniform(-1, 1, field.shape)
        field, amplitude = finer, amplitude / decay**2
    low, high = field.min(), field.max()
    return (field[: shape[0], : shape[1]] - low) / (high - low)


def brightness(x: Pixels, rng: RandomStream, more: float) -> Pixels:
    """The value V of HSV becomes ``min(V + more, 1)``; hue and saturation stay."""
    value = x.max(axis=2, keepdims=True)
    target = np.minimum(value + more, 1)
    return np.where(value > 0, x * target / np.where(value > 0, value, 1), target)


def contrast(x: Pixels, rng: RandomStream, share: float) -> Pixels:
    """``share (x - m) + m`` with ``m`` the mean of each channel."""
    mean = x.mean(axis=(0, 1))
    return share * (x - mean) + mean


def elastic_transform(
    x: Pixels, rng: RandomStream, push: float, smoothness: float, jitter: float
) -> Pixels:
    """A random affine map, and a displacement by smoothed noise.

    The map moves three points around the centre by up to ``jitter`` pixels each way; the
    displacement is ``push`` times uniform noise in [-1, 1] under a Gaussian of ``smoothness``
    pixels. Both are one interpolation here, and two in the published code.
    """
    height, width = x.shape[:2]
    third = min(height, width) // 3
    centre = np.array([height // 2, width // 2], np.float64)
    points = centre + third * np.array([(1, 1), (-1, 1), (-1, -1)])
    moved = points + rng.uniform(-jitter, jitter, (3, 2))
    back = np.linalg.solve(np.c_[moved, np.ones(3)], points)
    noise = rng.uniform(-1, 1, (2, height, width))
    smooth = [ndimage.gaussian_filter(n, smoothness, mode="reflect", truncate=3) for n in noise]
    down, right = np.mgrid[:height, :width] + push * np.stack(smooth)
    places = np.stack([down, right, np.ones_like(down)], -1) @ back
    channels = [
        ndimage.map_coordinates(x[..., c], np.moveaxis(places, -1, 0), order=1, mode="mirror")
        for c in range(x.shape[2])
    ]
    return np.stack(channels, -1)


def pixelate(x: Pixels, rng: RandomStream, share: float) -> Pixels:
    """Reduced to a share of its sides by area, and enlarged again the same way."""
    image = _picture(x)
    width, height = image.size
    small = image.resize(
        (max(1, int(width * share)), max(1, int(height * share))), Image.Resampling.BOX
    )
    return np.asarray(small.resize(image.size, Image.Resampling.BOX)) / 255


def jpeg_compression(x: Pixels, rng: RandomStream, quality: int) -> Pixels:
    """Stored by PIL as JPEG of that quality."""
    stored = io.BytesIO()
    _picture(x).save(stored, "JPEG", quality=quality)
    return np.asarray(Image.open(stored)) / 255


def _picture(x: Pixels) -> Image.Image:
    return Image.fromarray(np.round(x * 255).astype(np.uint8))


def _blur(x: Pixels, deviation: float) -> Pixels:
    return ndimage.gaussian_filter(x, deviation, mode="nearest", axes=(0, 1))


def _streak(x: Pixels, radius: int, deviation: float, angle: float) -> Pixels:
    """Mean of the pixels along a ray from each, weighted by half a Gaussian; edges repeat."""
    steps = np.arange(2 * radius + 1)
    weights = np.exp(-(steps**2) / (2 * deviation**2))
    down = np.ceil(steps * math.sin(angle) - 0.5).astype(int)
    right = np.ceil(steps * math.cos(angle) - 0.5).astype(int)
    reach, (height, width) = 2 * radius + 1, x.shape[:2]
    padded = np.pad(x, [(reach, reach)] * 2 + [(0, 0)] * (x.ndim - 2), mode="edge")
    total = np.zeros_like(x)
    for weight, i, j in zip(weights / weights.sum(), reach + down, reach + right, strict=True):
        total += weight * padded[i : i + height, j : j + width]
    return total


def _zoomed(x: Pixels, factor: float) -> Pixels:
    """The centre of an image or layer, enlarged linearly to its whole size."""
    sides = x.shape[:2]
    inner = [math.ceil(side / factor) for side in sides]
    begin = [(side - part) // 2 for side, part in zip(sides, inner, strict=True)]
    part = x[begin[0] : begin[0] + inner[0], begin[1] : begin[1] + inner[1]]
    large = ndimage.zoom(part, [factor, factor] + [1] * (x.ndim - 2), order=1)
    top, left = ((large.shape[a] - sides[a]) // 2 for a in (0, 1))
    return large[top : top + sides[0], left : left + sides[1]]


@dataclass(frozen=True)
class Corruption:
    """One kind of corruption.

    Attributes:
        apply: ``(pixels, generator, *strength) -> pixels``, which are cut to [0, 1] afterwards.
        strengths: those of severities 1 to 5, for each of :data:`SIZES`.
    """

    apply: Callable[..., Pixels]
    strengths: Mapping[int, Sequence[tuple[Any, ...]]]


def _corruptions() -> dict[str, Corruption]:
    """Those of the table of strengths, each applied by the function of its name."""
    corruptions = {}
    for name, of_sizes in packaged_table(__package__, "corruptions.yaml").items():
        sides = of_sizes.pop("sides", {})  # of which the numbers are shares
        strengths = {
            size: [tuple(sides.get(size, 1) * value for value in one) for one in strengths]
            for size, strengths in of_sizes.items()
        }
        corruptions[name] = Corruption(globals()[name], strengths)
    return corruptions


CORRUPTIONS = _corruptions()


def published_size(shorter: int) -> int:
    """The one of :data:`SIZES` that is nearest to an image's shorter side, as a ratio."""
    return min(SIZES, key=lambda size: abs(math.log(shorter / size)))


def corrupt(image: Image.Image, name: str, severity: int, rng: RandomStream) -> Image.Image:
    """The image under one of :data:`CORRUPTIONS`, of the same size.

    Args:
        image: RGB.
        name: of the corruption.
        severity: 1 to 5.
        rng: the same draws give the same pixels.
    """
    corruption = CORRUPTIONS[name]
    strength = corruption.strengths[published_size(min(image.size))][severity - 1]
    pixels = corruption.apply(np.asarray(image) / 255, rng, *strength)
    return Image.fromarray((np.clip(pixels, 0, 1) * 255 + 1e-6).astype(np.uint8))


#: What a row of a plan says: which image, and what is done to it.
PLAN = ("source", "row", "corruption", "severity")


class CorruptedImages(ImageDataset):
    """Images of other sets, each under one corruption; no file is written.

    The draws of an image follow from ``seed``, its row and the corruption, and not from the process
    that loads it, so that severities differ only in strength. The identity covers that of the
    sources, the plan, the seed and the version of the corruptions.

    Args:
        name: of the set.
        sources: sets of images; those of classes say in ``category_name`` which an image shows.
        plan: columns :data:`PLAN`, of which severity 0 leaves an image unchanged, and levels of
            shift, which become columns of the table.
        seed: of the draws.
        size: images whose shorter side has more pixels are reduced to so many before they are
            corrupted.
    """

    def __init__(
        self,
        name: str,
        sources: Sequence[ImageDataset],
        plan: pd.DataFrame,
        seed: int = 0,
        size: int = 256,
    ) -> None:
        self.sources = list(sources)
        self.seed, self.size = seed, size
        self._plan = list(plan[list(PLAN)].itertuples(index=False, name=None))
        recipe = f"corruptions {VERSION}, seed {seed}, {size} px\0{plan.to_csv(index=False)}"
        content = "\0".join([*(data.identity for data in sources), recipe])
        begin = np.cumsum([0, *map(len, sources)])[plan["source"]]
        shown = pd.concat(map(_described, sources)).iloc[begin + plan["row"].to_numpy()]
        added = plan.drop(columns=["source", "row"])
        table = pd.concat([part.reset_index(drop=True) for part in (shown, added)], axis=1)
        table[MADE_OF] = (table[MADE_OF] if MADE_OF in table else table["path"]).astype(str)
        marks = [f"#{kind}-{degree}" if degree else "" for _, _, kind, degree in self._plan]
        table["path"] = table["path"].astype(str) + marks
        table["label"] = UNKNOWN
        names = {GROUP: sources[0].names[GROUP]} if GROUP in table else {}
        super().__init__(name, table, [], text_sha256(content), names)

    def load_image(self, index: int) -> Image.Image:
        """Returns row ``index`` as an RGB PIL image."""
        source, row, name, severity = self._plan[index]
        image = self.sources[source].load_image(row)
        if severity == 0:
            return image
        number = list(CORRUPTIONS).index(name)

        def corrupted(part: Image.Image) -> Image.Image:
            rng = stream(self.seed, "corrupted pixels", source, row, number)
            return corrupt(_reduced(part, self.size), name, severity, rng)

        image_out = corrupted(image)
        if (channels := getattr(image, CHANNELS, None)) is not None:
            parts = [np.asarray(corrupted(part)) for part in _threes(channels)]
            setattr(image_out, CHANNELS, np.concatenate(parts, axis=2)[..., : channels.shape[2]])
        return image_out


def _described(data: ImageDataset) -> pd.DataFrame:
    """``path`` and, where it is known, ``category_name``: the class that an image shows."""
    grouped = [GROUP, MADE_OF] if data.groups is not None else []
    table = data.table[["path", *grouped]].copy()
    if data.classes:
        names = dict(enumerate(data.classes))
        table["category_name"] = data.table["label"].map(names).fillna("")
    elif "category_name" in data.table:
        table["category_name"] = data.table["category_name"]
    return table


def _threes(channels: np.ndarray) -> Iterator[Image.Image]:
    """``[H, W, n]`` as RGB pictures; the last channel fills up the last one."""
    if channels.dtype != np.uint8:
        channels = (channels * 255).round().astype(np.uint8)
    full = np.pad(channels, ((0, 0), (0, 0), (0, -channels.shape[2] % 3)), mode="edge")
    for first in range(0, full.shape[2], 3):
        yield Image.fromarray(np.ascontiguousarray(full[..., first : first + 3]))


def _reduced(image: Image.Image, size: int) -> Image.Image:
    """The image, its shorter side ``size`` pixels where it has more."""
    share = size / min(image.size)
    if share >= 1:
        return image
    width, height = (max(size, round(side * share)) for side in image.size)
    return image.resize((width, height), Image.Resampling.BICUBIC)
