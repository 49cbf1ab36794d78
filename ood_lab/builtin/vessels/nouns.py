"""The undated things: how they are drawn, their semantic level, their chain of broader words."""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np

from ood_lab.builtin.vessels.covariate_styles import STYLES
from ood_lab.builtin.vessels.drawings.backgrounds import BACKGROUNDS
from ood_lab.builtin.vessels.drawings.shape_descriptions import Description, number_of, shape_of
from ood_lab.builtin.vessels.drawings.signed_distances import (
    Array,
    Drawer,
    Figure,
    Proportions,
    box,
    capsule,
    union,
)
from ood_lab.builtin.vessels.periods import CATEGORIES, PERIODS
from ood_lab.common.arguments import Settings
from ood_lab.common.files import packaged_table
from ood_lab.common.grouping import grouped

_TURN = 2 * math.pi


def _plain(solid: Array) -> Figure:
    """No belt: the ornament of these figures is a texture over the whole surface."""
    return Figure(solid, solid, 0.0, 0.0)


def flower(u: Array, v: Array, p: Proportions) -> Figure:
    """A flower with petals, stem and leaf."""
    centre, petals = (0.0, 0.3), 5 + round(p[0] + 1)
    du, dv = u - centre[0], v - centre[1]
    angle = np.arctan2(dv, du)
    radius = np.sqrt(du * du + dv * dv)
    lobes = 0.3 + 0.14 * np.cos(petals * angle + np.float32(p[1]))
    stem = capsule(u, v, (0.04 * p[2], -0.78), centre, 0.04)
    leaf = capsule(u, v, (0.02, -0.5), (0.3, -0.28), 0.05, 0.02)
    return _plain(union((radius - lobes) * 0.6, stem, leaf))


def stripe_pattern(u: Array, v: Array, p: Proportions) -> Figure:
    """Parallel bars across the whole image."""
    angle, pitch = math.pi * p[0], 0.36 + 0.08 * p[1]
    across = math.cos(angle) * u + math.sin(angle) * v + 0.2 * p[2]
    return _plain(np.abs(np.mod(across, pitch) - pitch / 2) - pitch / 4)


def checkerboard(u: Array, v: Array, p: Proportions) -> Figure:
    """Alternating squares across the whole image."""
    wave = math.pi / (0.28 + 0.06 * p[0])
    marks = np.sin(wave * (u + 0.2 * p[1])) * np.sin(wave * (v + 0.2 * p[2]))
    return _plain(marks * (1.0 / wave))


def spiral(u: Array, v: Array, p: Proportions) -> Figure:
    """An Archimedean spiral."""
    pitch = 0.34 + 0.06 * p[0]
    radius = np.sqrt(u * u + v * v)
    turn = np.arctan2(v, u if p[1] > 0 else -u) * (1.0 / _TURN) + 0.5 * p[2]
    return _plain(np.abs(np.mod(radius * (1.0 / pitch) - turn, 1.0) - 0.5) * pitch - pitch / 4)


def ring_pattern(u: Array, v: Array, p: Proportions) -> Figure:
    """Concentric rings."""
    pitch = 0.34 + 0.06 * p[0]
    du, dv = u - 0.15 * p[1], v - 0.15 * p[2]
    radius = np.sqrt(du * du + dv * dv)
    return _plain(np.abs(np.mod(radius, pitch) - pitch / 2) - pitch / 4)


def glyph_grid(u: Array, v: Array, p: Proportions) -> Figure:
    """A grid of small signs, each crossed strokes at its own slant."""
    pitch = 0.44 + 0.04 * p[0]
    column, row = np.floor(u * (1.0 / pitch) + 0.5), np.floor(v * (1.0 / pitch) + 0.5)
    du, dv = u - column * pitch, v - row * pitch
    slant = 2.4 * column + 1.3 * row + 3.0 * p[1]
    strokes = []
    # The second stroke is not square to the first, so that signs differ when mirrored.
    for angle, half in ((slant, 0.15), (slant + 1.0 + 0.4 * p[2], 0.1)):
        cos, sin = np.cos(angle), np.sin(angle)
        strokes.append(box(cos * du + sin * dv, cos * dv - sin * du, (0.0, 0.0), (half, 0.035)))
    return _plain(union(*strokes))


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


_TABLE = packaged_table(__package__, "nouns.yaml")


def _drawer(entry: Settings) -> Drawer:
    """The drawer of a thing that the table describes."""
    description, body = Description(entry), shape_of(entry["body"])
    parts = [shape_of(part) for part in entry.get("parts", ())]
    belt = number_of(entry.get("belt", [0, 0, 0.6]))

    def draw(u: Array, v: Array, p: Proportions) -> Figure:
        frame = description.frame(u, v, p)
        main = body(frame)
        return Figure(union(main, *(part(frame) for part in parts)), main, *belt(frame))

    return draw


def _noun(name: str, entry: Settings) -> Noun:
    kind = _TABLE["kinds"][entry["kind"]]
    draw = _drawer(entry) if "body" in entry else globals()[name.replace(" ", "_")]
    return Noun(kind["level"], (entry["kind"], *kind["hypernyms"]), draw)


NOUNS = {name: _noun(name, entry) for name, entry in _TABLE["things"].items()}
#: Household and storage vessels: the undated containers of everyday life.
CONTAINERS = tuple(
    name for name, n in NOUNS.items() if n.hypernyms[0] in ("household vessel", "container")
)
#: Broader words of a ding or gui, after its own name.
BRONZE_HYPERNYMS = ("ritual bronze", *NOUNS["hu"].hypernyms)
#: Names of the things at each semantic level, 1 to 5.
NOUNS_OF_LEVEL = grouped((noun.level, name) for name, noun in NOUNS.items())


def _with_article(words: str) -> str:
    return ("an " if words[0] in "aeiou" or words.startswith("x-") else "a ") + words


def caption_labels() -> list[str]:
    """All names with their articles: dated bronzes, other things, broader words."""
    bronzes = [f"{period.name} {category}" for period in PERIODS for category in CATEGORIES]
    broader = [word for noun in NOUNS.values() for word in noun.hypernyms]
    words = dict.fromkeys([*bronzes, *CATEGORIES, *NOUNS, *BRONZE_HYPERNYMS, *broader])
    return [_with_article(word) for word in words]


def caption_templates() -> list[str]:
    """One caption a phrase of a style and background; ``{}`` for the thing."""
    templates = []
    for style in STYLES.values():
        material = f"made of {style.material}" if style.material else ""
        for background in style.backgrounds:
            place = BACKGROUNDS[background].place
            for phrase in style.phrases:
                parts = (_with_article(phrase), "of", "{}", material, place)
                templates.append(" ".join(part for part in parts if part))
    return list(dict.fromkeys(templates))
