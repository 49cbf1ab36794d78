"""A scene: every parameter of one image."""

from __future__ import annotations

from dataclasses import dataclass

from ood_lab.builtin.scenes.covariate_styles import STYLES
from ood_lab.builtin.scenes.places import level_of
from ood_lab.builtin.scenes.sprite import Look, Sprite, draw
from ood_lab.builtin.scenes.things import THINGS

#: Part of every data set's identity: raise it when the pixels or objects of any scene change.
RENDERER = "scenes-1"


@dataclass(frozen=True)
class SceneObject:
    """An object where it stands.

    Attributes:
        look: how it looks.
        x: left edge of the square that it is drawn on, pixels.
        y: upper edge of that square, pixels.
        stands: on something, and casts a shadow there; else it hangs, flies or swims.
    """

    look: Look
    x: int
    y: int
    stands: bool = True

    @property
    def sprite(self) -> Sprite:
        """Its pixels."""
        return draw(self.look)

    @property
    def window(self) -> tuple[slice, slice]:
        """Rows and columns of its sprite in the image."""
        sprite = self.sprite
        height, width = sprite.alpha.shape
        top, left = self.y + sprite.top, self.x + sprite.left
        return slice(top, top + height), slice(left, left + width)


@dataclass(frozen=True)
class Setting:
    """The circumstances of a place.

    Attributes:
        mirrored: left and right changed.
        lift: shift of its horizontal lines downwards, share of the image.
        tint: factor of its colours, RGB.
        lamp: horizontal direction of the light, -1 (left) to 1.
    """

    mirrored: bool
    lift: float
    tint: tuple[float, float, float]
    lamp: float


@dataclass(frozen=True)
class Scene:
    """Every parameter of one image but its fine texture.

    Attributes:
        place: key of ``PLACES``.
        style: key of ``STYLES``.
        size: height and width, pixels.
        setting: circumstances of the place.
        items: the objects, in the order in which they are painted.
    """

    place: str
    style: str
    size: int
    setting: Setting
    items: tuple[SceneObject, ...]

    @property
    def semantic_level(self) -> int:
        """Level of the strangest object in this place."""
        return max((level_of(item.look.thing, self.place) for item in self.items), default=0)

    @property
    def covariate_level(self) -> int:
        """Level of the style."""
        return STYLES[self.style].level

    def attributes(self, item: SceneObject) -> dict[str, str]:
        """What this picture shows of an object: ``colour``, and ``state`` or ``action``.

        Left out where the style hides it: no colour in a drawing, and no state that differs only
        in colour.
        """
        thing, style = THINGS[item.look.thing], STYLES[self.style]
        shown = {}
        if item.look.colour and style.coloured:
            shown["colour"] = item.look.colour
        if item.look.state and (style.coloured or not thing.states.by_colour):
            shown[thing.states.kind] = item.look.state
        return shown
