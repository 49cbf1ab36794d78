"""How a scene is pictured: the covariate styles of the vessels, before places."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

import numpy as np

from ood_lab.builtin.vessels.covariate_styles import STYLES as VESSEL_STYLES
from ood_lab.builtin.vessels.covariate_styles import Layers, Painter, photo
from ood_lab.builtin.vessels.drawings.backgrounds import rgb
from ood_lab.builtin.vessels.drawings.signed_distances import Array
from ood_lab.common.arguments import Settings
from ood_lab.common.files import packaged_table
from ood_lab.common.grouping import grouped

#: What lies behind the objects: the place as it is, or its outlines on paper or in the dark.
Ground = Literal["place", "paper", "dark"]


@dataclass(frozen=True)
class SceneStyle:
    """A way to picture a scene.

    Attributes:
        level: covariate distance from a clear photo, 0 to 5, as for the vessels.
        paint: the painter.
        ground: what it is painted on.
        coloured: objects keep their colours.
    """

    level: int
    paint: Painter
    ground: Ground
    coloured: bool


def _dim(layers: Layers) -> Array:
    # The vessels' own dims the object and has a dark backdrop; here all is seen in one light.
    return photo(layers) * rgb(1.0, 0.86, 0.66) * layers.rng.uniform(0.24, 0.4)


def _foggy(layers: Layers) -> Array:
    haze = layers.rng.uniform(0.42, 0.58) + 0.24 * (layers.smooth(4) - 0.5)
    clear = photo(layers)
    return clear + haze * (rgb(0.86, 0.88, 0.90) - clear)


def _snowy(layers: Layers) -> Array:
    rng, shape = layers.rng, (layers.size, layers.size)
    scene = photo(layers) * rgb(0.84, 0.88, 0.96)
    flakes = rng.random(shape, np.float32) > rng.uniform(0.94, 0.97)
    return scene + flakes * (0.97 - scene)


def _style(name: str, entry: Settings) -> SceneStyle:
    """A style of the table."""
    ground, coloured = entry.get("ground", "place"), entry.get("coloured", False)
    if "level" in entry:
        return SceneStyle(entry["level"], globals()[f"_{name}"], ground, coloured)
    style = VESSEL_STYLES[entry.get("as", name)]
    return SceneStyle(style.level, style.paint, ground, coloured)


STYLES = {
    name: _style(name, entry) for name, entry in packaged_table(__package__, "styles.yaml").items()
}
#: Images of these sizes are drawn; some styles have tiles of 4 pixels.
SIZES = range(64, 257, 4)
#: Names of the styles at each covariate level, 0 to 5.
STYLES_OF_LEVEL = grouped((style.level, name) for name, style in STYLES.items())
