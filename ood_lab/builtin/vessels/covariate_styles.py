"""Styles: how an object is pictured, in six covariate levels (distance from a clear photo).

A style maps the ``Layers`` of a scene to ``[3, H, W]`` in about [0, 1].
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

import numpy as np

from ood_lab.builtin.vessels.drawings.backgrounds import (
    blur,
    edges,
    hue,
    pixelate,
    rgb,
    smooth,
)
from ood_lab.builtin.vessels.drawings.signed_distances import Array
from ood_lab.common.files import packaged_table
from ood_lab.common.grouping import grouped
from ood_lab.common.random_streams import RandomStream


@dataclass(frozen=True)
class Layers:
    """What a style composes, all ``[H, H]`` but ``backdrop`` and ``patina``; H of any size.

    Attributes:
        alpha: coverage of the object.
        ink: coverage of the ornament, within the object.
        light: shading of the surface, about 1.
        shadow: darkening of the ground, 1 = none.
        patina: colour of the bronze, ``[3, 1, 1]``, or of every pixel, ``[3, H, H]``.
        backdrop: the background, ``[3, H, H]``.
        rng: of what a style draws at random.
    """

    alpha: Array
    ink: Array
    light: Array
    shadow: Array
    patina: Array
    backdrop: Array
    rng: RandomStream

    @property
    def size(self) -> int:
        """Height and width in pixels."""
        return self.alpha.shape[-1]

    def smooth(self, cells: int) -> Array:
        """Smooth noise of the image's size, see ``smooth``."""
        return smooth(self.rng, cells, size=self.size)

    def grain(self, amount: float) -> Array:
        """White grey noise, uniform with standard deviation ``amount``, ``[H, H]``."""
        return (self.rng.random(self.alpha.shape, np.float32) - 0.5) * (amount * 12**0.5)

    def grey(self, image: Array) -> Array:
        """A grey image ``[H, H]`` as ``[3, H, H]``."""
        return np.broadcast_to(image, (3, *image.shape))

    def over(self, surface: Array) -> Array:
        """The surface ``[3, H, H]`` in front of the shadowed backdrop."""
        ground = self.backdrop * self.shadow
        return ground + self.alpha * (surface - ground)


Painter = Callable[[Layers], Array]


def _bronze(layers: Layers) -> Array:
    mottle = 0.84 + 0.32 * layers.smooth(9)
    tone = layers.light * mottle * (1.0 - 0.78 * layers.ink)
    return layers.over(tone * layers.patina)


def photo(layers: Layers) -> Array:
    """A bronze in front of the backdrop, with slight sensor grain."""
    return _bronze(layers) + layers.grain(0.02)


def _dim(layers: Layers) -> Array:
    lamp = rgb(0.7, 0.6, 0.45) * layers.rng.uniform(0.6, 1.1)
    return layers.over(_bronze(layers) * lamp) + layers.grain(0.02)


def _blurry(layers: Layers) -> Array:
    return blur(_bronze(layers), int(layers.rng.integers(4, 10))) + layers.grain(0.01)


def _noisy(layers: Layers) -> Array:
    noise = layers.rng.standard_normal((3, layers.size, layers.size), np.float32)
    return _bronze(layers) + noise * layers.rng.uniform(0.12, 0.2)


def _grey(layers: Layers) -> Array:
    return layers.grey(0.5 + 1.15 * (photo(layers).mean(0) - 0.5))


def _low_resolution(layers: Layers) -> Array:
    return pixelate(photo(layers), 4)


def _glossy(layers: Layers, colour: Array, ink: Array) -> Array:
    shine = np.clip(layers.light - 0.92, 0.0, 1.0) * 2.0
    body = layers.light * colour + shine
    return layers.over(body + layers.ink * (ink - body)) + layers.grain(0.015)


def _gold(layers: Layers) -> Array:
    return _glossy(layers, hue(0.125, 0.85, 1.05), hue(0.1, 0.8, 0.35))


def _porcelain(layers: Layers) -> Array:
    return _glossy(layers, hue(0.6, 0.03, 0.98), hue(0.62, 0.6, 0.4))


def _plastic(layers: Layers) -> Array:
    colour = layers.rng.random()
    return _glossy(layers, hue(colour, 0.85, 0.98), hue(colour, 0.9, 0.25))


def _sketch(layers: Layers) -> Array:
    line = np.clip(1.1 * edges(layers.alpha) + 0.55 * layers.ink, 0.0, 1.0)
    return layers.grey(0.96 + layers.grain(0.015) - 0.85 * line)


def _rubbing(layers: Layers) -> Array:
    worn = layers.smooth(22) + 0.45 * layers.smooth(11) < layers.rng.uniform(0.7, 0.85)
    dark = layers.alpha * (1.0 - layers.ink) * (0.18 + 0.77 * worn.astype(np.float32))
    return layers.backdrop * (1.0 - 0.85 * dark) + layers.grain(0.02)


def _ink(layers: Layers) -> Array:
    wash = layers.alpha * (0.28 + 0.3 * layers.smooth(6)) + 0.45 * edges(layers.alpha)
    tone = np.clip(wash + 0.25 * layers.ink, 0.0, 0.9)
    page = layers.backdrop * rgb(1.0, 0.94, 0.8)
    return page * (1.0 - tone * rgb(0.75, 0.85, 0.95)) + layers.grain(0.012)


def _mosaic(layers: Layers) -> Array:
    tiles = pixelate(_bronze(layers), 4)
    # Hand-set tiles: each has a shade of its own.
    count = layers.size // 4
    shade = layers.rng.random((3, count, count), np.float32).repeat(4, 1).repeat(4, 2)
    tiles = 0.5 + 1.35 * (tiles - 0.5) + 0.25 * (shade - 0.5)
    grout = np.zeros((layers.size, layers.size), np.float32)
    grout[::4] = grout[:, ::4] = 0.55
    return tiles + grout * ((0.15 if layers.rng.random() < 0.5 else 0.85) - tiles)


def _neon(layers: Layers) -> Array:
    line = edges(layers.alpha)
    glow = np.clip(line + 1.6 * blur(line, 4) + 0.35 * layers.ink, 0.0, 2.0)
    colour = hue(layers.rng.random(), 0.85, 1.0)
    night = rgb(0.03, 0.02, 0.08)
    return night + glow * colour + 0.5 * line * line


def _x_ray(layers: Layers) -> Array:
    film = rgb(0.25, 0.55, 0.85)
    depth = 0.16 + 0.1 * layers.smooth(4) + layers.alpha * (0.42 + 0.5 * (1.1 - layers.light))
    depth = blur(depth + 0.25 * edges(layers.alpha) - 0.22 * layers.ink, 1)
    return depth * film * 1.5 + layers.grain(0.015)


@dataclass(frozen=True)
class VesselStyle:
    """A way to picture things.

    Attributes:
        paint: the painter.
        level: covariate distance from a clear photo, 0 to 5.
        phrases: words for it, narrow to broad (``clear photo``, ``photo``, ``picture``).
        backgrounds: names of the backgrounds it is drawn on.
        material: what the object is made of, if not bronze.
    """

    paint: Painter
    level: int
    phrases: Sequence[str]
    backgrounds: Sequence[str]
    material: str = ""


#: Each is painted by the function of its name, else as a photo.
STYLES = {
    name: VesselStyle(globals().get(f"_{name}", photo), **entry)
    for name, entry in packaged_table(__package__, "styles.yaml").items()
}
#: Names of the styles at each covariate level, 0 to 5.
STYLES_OF_LEVEL = grouped((style.level, name) for name, style in STYLES.items())
