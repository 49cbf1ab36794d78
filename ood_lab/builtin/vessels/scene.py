"""A scene: every parameter of one image, and its rendering."""

from __future__ import annotations

import zlib
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from PIL import Image

from ood_lab.builtin.vessels.covariate_styles import STYLES, Layers
from ood_lab.builtin.vessels.drawings.backgrounds import BACKGROUNDS, hue, smooth
from ood_lab.builtin.vessels.drawings.bronzes import MOTIFS, Bronze
from ood_lab.builtin.vessels.drawings.signed_distances import (
    Array,
    Figure,
    Pose,
    Proportions,
    X,
    Y,
    coverage,
)
from ood_lab.builtin.vessels.nouns import NOUNS
from ood_lab.builtin.vessels.periods import CATEGORIES
from ood_lab.common.random_streams import RandomStream
from ood_lab.schema.arrays import Bools, PixelArray

#: Part of every data set's identity: raise it when the pixels of any scene change.
RENDERER = "vessels-2"


def generator(seed: int, index: int, stream: str) -> RandomStream:
    """The random generator of one image and one purpose.

    ``default_rng([seed, index, crc32(stream)])``: it depends on nothing else, so neither the
    order of rendering nor the number of workers can change an image.
    """
    # An array of this type is taken as it is; of a list, it makes one a number.
    key = np.array([seed, index, zlib.crc32(stream.encode())], np.uint32)
    return np.random.default_rng(key)


def pick(rng: RandomStream, options: Sequence[str]) -> str:
    """One option, all equally likely."""
    return options[int(rng.integers(len(options)))]


@dataclass(frozen=True)
class VesselScene:
    """Every parameter of one image but its fine texture.

    Attributes:
        bronze: the ding or gui, None for an undated thing.
        noun: key of ``NOUNS`` for an undated thing, else the category.
        style: key of ``STYLES``.
        background: key of ``BACKGROUNDS``.
        pose: where the object stands.
        proportions: of an undated thing.
        motif: ornament of an undated thing.
        patina: hue, saturation and brightness of the bronze.
        lamp: horizontal direction of the light, -1 (left) to 1.
    """

    bronze: Bronze | None
    noun: str
    style: str
    background: str
    pose: Pose
    proportions: Proportions
    motif: str
    patina: tuple[float, float, float]
    lamp: float

    @property
    def semantic_level(self) -> int:
        """0 for a dated ding or gui, else the level of the noun."""
        return 0 if self.bronze is not None else NOUNS[self.noun].level

    @property
    def covariate_level(self) -> int:
        """Level of the style."""
        return STYLES[self.style].level


def sample_vessel_scene(
    rng: RandomStream, subject: Bronze | str, style: str, background: str | None = None
) -> VesselScene:
    """Draws the pose, patina and light for a given subject, style and (or) background."""
    bronze = subject if isinstance(subject, Bronze) else None
    motif = bronze.motif if bronze else pick(rng, tuple(MOTIFS))
    wide, high, deep = rng.uniform(-1.0, 1.0, 3).tolist()
    return VesselScene(
        bronze=bronze,
        noun=CATEGORIES[subject.category] if isinstance(subject, Bronze) else subject,
        style=style,
        background=background or pick(rng, STYLES[style].backgrounds),
        pose=Pose(
            angle=rng.normal(0.0, 0.06),
            scale=rng.uniform(0.82, 1.0),
            dx=rng.normal(0.0, 0.05),
            dy=rng.normal(0.05, 0.05),
        ),
        proportions=(wide, high, deep),
        motif=motif,
        patina=(rng.uniform(0.07, 0.58), rng.uniform(0.12, 0.42), rng.uniform(0.34, 0.56)),
        lamp=rng.uniform(-1.0, 0.2),
    )


def _figure(scene: VesselScene, u: Array, v: Array) -> Figure:
    if scene.bronze is not None:
        return scene.bronze.figure(u, v)
    return NOUNS[scene.noun].draw(u, v, scene.proportions)


def mask(scene: VesselScene) -> Bools:
    """Foreground of a scene, ``[H, W] bool``: pixels at least half inside the object."""
    u, v = scene.pose.place()
    return coverage(_figure(scene, u, v).solid, scene.pose.scale) >= 0.5


def _ornament(scene: VesselScene, figure: Figure, u: Array, v: Array, rng: RandomStream) -> Array:
    if not figure.belt_height:
        # Dark blotches, without lines: lines would pass for an ornament of the dated vessels.
        return 0.6 * (smooth(rng, 6) > 0.55).astype(np.float32)
    repeats = scene.bronze.repeats if scene.bronze else 6.0
    a = u * (repeats / (2.0 * figure.half_width))
    b = (v - figure.belt_bottom) * (1.0 / figure.belt_height)
    belt = (b >= 0.0) & (b <= 1.0) & (figure.belt_area < 0.0)
    return (MOTIFS[scene.motif](a, b) & belt).astype(np.float32)


def render(scene: VesselScene, rng: RandomStream) -> PixelArray:
    """Paints a scene, ``[H, W, 3] uint8``; ``rng`` gives the fine texture."""
    u, v = scene.pose.place()
    figure = _figure(scene, u, v)
    alpha = coverage(figure.solid, scene.pose.scale)
    # A cushion: dark at the outline, with the lamp from one side.
    cushion = np.clip(figure.solid * -4.5, 0.0, 1.0)
    light = 0.72 + 0.38 * cushion * (2.0 - cushion) + (0.32 * scene.lamp) * u
    dx, dy = X - scene.pose.dx, Y - (scene.pose.dy - 0.82 * scene.pose.scale)
    shadow = 1.0 - 0.4 * np.exp(dx * dx * -3.0 - dy * dy * 90.0)
    layers = Layers(
        alpha=alpha,
        ink=alpha * _ornament(scene, figure, u, v, rng),
        light=light,
        shadow=shadow,
        patina=hue(*scene.patina) * 1.15,
        backdrop=BACKGROUNDS[scene.background].paint(rng),
        rng=rng,
    )
    return to_pixels(STYLES[scene.style].paint(layers))


def to_pixels(image: Array) -> PixelArray:
    """An image ``[3, H, W]`` in [0, 1] as ``[H, W, 3] uint8``."""
    pixels = (np.clip(image, 0.0, 1.0) * 255.0 + 0.5).astype(np.uint8)
    return np.ascontiguousarray(pixels.transpose(1, 2, 0))


class OtherPlaces:
    """Backgrounds of places where no dated vessel is photographed, each equally likely.

    Dated vessels stand in a studio or a museum; paper and the dark are for drawings and light.
    """

    names = ("indoor", "outdoor", "dim", "colourful")

    @property
    def identity(self) -> str:
        """Version of the renderer, and the places."""
        return f"{RENDERER} {' '.join(self.names)}"

    def draw(self, rng: RandomStream, size: tuple[int, int]) -> Image.Image:
        """A background, RGB, of ``size`` (width, height)."""
        image = Image.fromarray(to_pixels(BACKGROUNDS[pick(rng, self.names)].paint(rng)))
        return image if image.size == size else image.resize(size)
