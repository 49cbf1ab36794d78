"""Contact sheets of the builtin scenes, to see what the benchmarks ask about.

``python -m ood_lab.builtin.scenes.contact_sheets FOLDER`` writes, as PNG and SVG: ``things`` (every
thing in every state, large and small), ``places`` (a scene of each, with boxes, names and
attributes), ``breaks`` (scenes of semantic levels 1 to 5) and ``styles`` (one scene in every
style).
"""

from __future__ import annotations

import argparse
from collections.abc import Sequence
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from ood_lab.builtin.scenes import PLACES, STYLES, THINGS, Scene, render, sample_scene, visible
from ood_lab.builtin.scenes.sprite import Look, draw
from ood_lab.builtin.vessels.scene import generator
from ood_lab.report.figures.image_grid import Box, Tile, annotated
from ood_lab.report.rendering.drawing import write_figure
from ood_lab.report.rendering.fonts import rc

#: Squares that a thing is drawn on in the sheet of things, pixels.
_SIZES = (48, 24, 12)
_GREY = 0.82


def things() -> list[Tile]:
    """Every thing in every state, on squares of 48, 24 and 12 pixels."""
    tiles = []
    for name, thing in THINGS.items():
        for state in thing.states.words if thing.states else ("",):
            pictures = []
            for number, size in enumerate(_SIZES):
                colour = thing.colours[number % len(thing.colours)] if thing.colours else ""
                pictures.append(_alone(Look(name, colour, state, size)))
            title = f"{name}: {state}" if state else name
            tiles.append(Tile(np.concatenate(pictures, axis=1), title))
    return tiles


def _alone(look: Look) -> NDArray[np.uint8]:
    sprite = draw(look)
    height, width = sprite.alpha.shape
    page = np.full((3, _SIZES[0], look.size), _GREY, np.float32)
    part = page[:, sprite.top : sprite.top + height, sprite.left : sprite.left + width]
    part += sprite.alpha * (sprite.colour * sprite.light - part)
    return (np.clip(page, 0.0, 1.0) * 255.0).astype(np.uint8).transpose(1, 2, 0)


def places(seed: int) -> list[Tile]:
    """A scene of every place."""
    return [
        _tile(sample_scene(generator(seed, number, "places"), place=place), place)
        for number, place in enumerate(PLACES)
    ]


def breaks(seed: int) -> list[Tile]:
    """Three scenes of each semantic level from 1 to 5; a row has one level."""
    return [
        _tile(scene, f"level {level}: {scene.place}")
        for level in range(1, 6)
        for number in range(3)
        for scene in [
            sample_scene(generator(seed, 3 * level + number, "breaks"), semantic_level=level)
        ]
    ]


def styles(seed: int) -> list[Tile]:
    """One scene in every style."""
    return [
        _tile(
            sample_scene(generator(seed, 0, "styles"), place="street", style=style),
            f"{style} (level {STYLES[style].level})",
            boxes=False,
        )
        for style in STYLES
    ]


def _tile(scene: Scene, title: str, boxes: bool = True) -> Tile:
    named = []
    for seen in visible(scene) if boxes else ():
        words = [*scene.attributes(seen.item).values(), seen.item.look.thing]
        named.append(Box(*seen.box, " ".join(words)))
    return Tile(render(scene, generator(0, 0, "texture")), title, named)


def write(folder: Path, seed: int) -> list[Path]:
    """Writes all sheets to ``folder``; returns the PNG files."""
    sheets: dict[str, tuple[Sequence[Tile], int, str]] = {
        "things": (things(), 8, "Each on squares of 48, 24 and 12 pixels."),
        "places": (places(seed), 5, "Level 0: what a place's prior expects."),
        "breaks": (breaks(seed), 3, "Semantic levels: 1 at home next door to 5 no thing at all."),
        "styles": (styles(seed), 6, "One scene; covariate levels in brackets."),
    }
    files = []
    with rc():
        for name, (tiles, columns, caption) in sheets.items():
            figure = annotated(tiles, columns, caption)
            files.append(write_figure(folder, name, name.capitalize(), caption, figure).png)
    return files


def main() -> None:
    """Reads the command line."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("folder", type=Path, help="where to; made if missing")
    parser.add_argument("--seed", type=int, default=0, help="of the scenes")
    arguments = parser.parse_args()
    for file in write(arguments.folder, arguments.seed):
        print(file)


if __name__ == "__main__":
    main()
