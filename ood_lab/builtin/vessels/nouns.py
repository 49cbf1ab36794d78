"""The undated things, each with its semantic level and its chain of broader words."""

from __future__ import annotations

from dataclasses import dataclass

from ood_lab.builtin.vessels.drawings import archaic_vessels, artefacts, nature
from ood_lab.builtin.vessels.drawings.figure import Drawer

_ARCHAIC = ("archaic vessel", "vessel", "artefact", "thing")
_HOUSEHOLD = ("household vessel", "vessel", "artefact", "thing")
_CONTAINER = ("container", "artefact", "thing")
_TOOL = ("tool", "artefact", "thing")
_NATURAL = ("natural thing", "thing")
_ABSTRACT = ("abstract pattern", "pattern", "thing")
#: Broader words of a ding or gui, after its own name.
BRONZE_HYPERNYMS = ("ritual bronze", *_ARCHAIC)


@dataclass(frozen=True)
class Noun:
    """A thing that can be drawn.

    Attributes:
        level: semantic distance from ding and gui, 1 to 5.
        hypernyms: broader words, narrow to broad.
        draw: its drawer.
    """

    level: int
    hypernyms: tuple[str, ...]
    draw: Drawer


NOUNS: dict[str, Noun] = {
    "hu": Noun(1, _ARCHAIC, archaic_vessels.hu),
    "zun": Noun(1, _ARCHAIC, archaic_vessels.zun),
    "jue": Noun(1, _ARCHAIC, archaic_vessels.jue),
    "dou": Noun(1, _ARCHAIC, archaic_vessels.dou),
    "bowl": Noun(1, _HOUSEHOLD, archaic_vessels.bowl),
    "teapot": Noun(1, _HOUSEHOLD, archaic_vessels.teapot),
    "mug": Noun(1, _HOUSEHOLD, archaic_vessels.mug),
    "bottle": Noun(2, _CONTAINER, artefacts.bottle),
    "goblet": Noun(2, _CONTAINER, artefacts.goblet),
    "bucket": Noun(2, _CONTAINER, artefacts.bucket),
    "flask": Noun(2, _CONTAINER, artefacts.flask),
    "bell": Noun(3, _TOOL, artefacts.bell),
    "axe": Noun(3, _TOOL, artefacts.axe),
    "sword": Noun(3, _TOOL, artefacts.sword),
    "lamp": Noun(3, _TOOL, artefacts.lamp),
    "stool": Noun(3, _TOOL, artefacts.stool),
    "tree": Noun(4, _NATURAL, nature.tree),
    "flower": Noun(4, _NATURAL, nature.flower),
    "bird": Noun(4, _NATURAL, nature.bird),
    "mountain": Noun(4, _NATURAL, nature.mountain),
    "butterfly": Noun(4, _NATURAL, nature.butterfly),
    "stripe pattern": Noun(5, _ABSTRACT, nature.stripes),
    "checkerboard": Noun(5, _ABSTRACT, nature.checkerboard),
    "spiral": Noun(5, _ABSTRACT, nature.spiral),
    "ring pattern": Noun(5, _ABSTRACT, nature.rings),
    "glyph grid": Noun(5, _ABSTRACT, nature.glyphs),
}
#: Household and storage vessels: the undated containers of everyday life.
CONTAINERS = ("bowl", "teapot", "mug", "bottle", "goblet", "bucket", "flask")


def nouns_of_level(level: int) -> tuple[str, ...]:
    """Names of the things at one semantic level (1 to 5)."""
    return tuple(name for name, noun in NOUNS.items() if noun.level == level)
