"""Paints a scene, and says exactly what can be seen in it."""

from __future__ import annotations

from dataclasses import replace
from functools import lru_cache
from typing import NamedTuple

import numpy as np

from ood_lab.builtin.scenes.canvas import Canvas
from ood_lab.builtin.scenes.covariate_styles import STYLES
from ood_lab.builtin.scenes.places import PLACES
from ood_lab.builtin.scenes.scene import Scene, SceneObject
from ood_lab.builtin.vessels.covariate_styles import Layers
from ood_lab.builtin.vessels.drawings.backgrounds import rgb
from ood_lab.builtin.vessels.drawings.signed_distances import Array
from ood_lab.builtin.vessels.scene import to_pixels
from ood_lab.common.random_streams import RandomStream
from ood_lab.schema.arrays import Bools, PixelArray

#: Strength of outlines in drawings: of objects and their parts, and of the place behind.
_LINES, _PLACE_LINES = 3.0, 0.9


class Visible(NamedTuple):
    """What can be seen of one object.

    Attributes:
        item: the object.
        mask: its pixels, ``[H, W] bool``: at least half covered, and by nothing nearer.
        box: left, top, width and height of those pixels.
        area: their number.
    """

    item: SceneObject
    mask: Bools
    box: tuple[int, int, int, int]
    area: int


def visible(scene: Scene) -> list[Visible]:
    """What can be seen of every object, in the order of ``scene.items``."""
    owner = np.full((scene.size, scene.size), -1, np.int16)
    for number, item in enumerate(scene.items):
        owner[item.window][item.sprite.mask] = number
    return [_seen(item, owner == number) for number, item in enumerate(scene.items)]


def _seen(item: SceneObject, mask: Bools) -> Visible:
    rows, columns = np.flatnonzero(mask.any(1)), np.flatnonzero(mask.any(0))
    left, top = int(columns[0]), int(rows[0])
    box = (left, top, int(columns[-1]) - left + 1, int(rows[-1]) - top + 1)
    return Visible(item, mask, box, int(mask.sum()))


def render(scene: Scene, rng: RandomStream) -> PixelArray:
    """Paints a scene, ``[H, W, 3] uint8``; ``rng`` gives the fine texture."""
    style = STYLES[scene.style]
    layers = _compose(scene, rng)
    if style.ground != "place":
        layers = _outlined(layers, style.ground == "dark")
    elif not style.coloured:  # where the material hides the colours, borders become ornament
        layers = replace(layers, ink=_lines(layers.patina * layers.alpha) * layers.alpha)
    return to_pixels(style.paint(layers))


def _backdrop(scene: Scene, rng: RandomStream) -> Array:
    setting = scene.setting
    canvas = Canvas(scene.size, setting.lift, rgb(*setting.tint), rng)
    PLACES[scene.place].paint(canvas)
    return canvas.image[..., ::-1] if setting.mirrored else canvas.image


def _compose(scene: Scene, rng: RandomStream) -> Layers:
    """All objects, each over those before it; colours are kept apart from their coverage."""
    backdrop = _backdrop(scene, rng)
    shape = (scene.size, scene.size)
    alpha, shadow = np.zeros(shape, np.float32), np.ones(shape, np.float32)
    light, colour = np.ones(shape, np.float32), np.zeros((3, *shape), np.float32)
    for item in scene.items:
        sprite, (rows, columns) = item.sprite, item.window
        if item.stands:
            _cast(shadow, rows.stop, columns)
        cover, rest = sprite.alpha, 1.0 - sprite.alpha
        # Premultiplied while objects are added, so that outlines keep their colour.
        colour[:, rows, columns] *= rest
        colour[:, rows, columns] += cover * sprite.colour
        light[rows, columns] += cover * (sprite.light - light[rows, columns])
        alpha[rows, columns] = cover + rest * alpha[rows, columns]
    colour /= np.maximum(alpha, 1e-3)
    return Layers(alpha, np.zeros(shape, np.float32), light, shadow, colour, backdrop, rng)


def _cast(shadow: Array, foot: int, columns: slice) -> None:
    """Darkens the ground below an object: a few rows about its foot."""
    width = columns.stop - columns.start
    depth = max(1, round(0.09 * width))
    rows = shadow[max(foot - depth, 0) : foot + depth, columns]
    across, along = _span(rows.shape[1]), _span(rows.shape[0])[:, None]
    rows *= 1.0 - 0.32 * np.maximum(np.minimum(1.3 - across - along, 1.0), 0.0)


@lru_cache(maxsize=256)
def _span(count: int) -> Array:
    """Squares of ``count`` numbers from -1 to 1."""
    return np.linspace(-1.0, 1.0, count, dtype=np.float32) ** 2


def _lines(image: Array) -> Array:
    """Outlines: the largest change of any channel to the pixels below and on the right."""
    down = np.abs(np.diff(image, axis=1, append=image[:, -1:]))
    right = np.abs(np.diff(image, axis=2, append=image[:, :, -1:]))
    return np.clip(np.maximum(down, right).max(0) * _LINES, 0.0, 1.0)


def _outlined(layers: Layers, dark: bool) -> Layers:
    """The objects before paper or the dark, on which the place is outlined."""
    seams, place = _lines(layers.patina * layers.alpha), _lines(layers.backdrop) * _PLACE_LINES
    ink = np.where(layers.alpha > 0.5, seams, np.maximum(place * (1.0 - layers.alpha), seams))
    size = layers.size
    ground = np.full((3, size, size), layers.rng.uniform(0.0, 0.06), np.float32)
    if not dark:
        page = layers.rng.uniform(0.86, 0.96) + 0.03 * (layers.smooth(16) - 0.5)
        # On the page, too: a rubbing has no ink but on the objects.
        ground = rgb(1.0, 0.985, 0.93) * (page * (1.0 - 0.4 * place))
    return replace(layers, ink=ink, backdrop=ground)
