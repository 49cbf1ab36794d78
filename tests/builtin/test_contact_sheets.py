"""Contact sheets of the builtin scenes."""

import numpy as np

from ood_lab.builtin.scenes import PLACES, STYLES, THINGS
from ood_lab.builtin.scenes.contact_sheets import breaks, places, styles, things
from ood_lab.report.figures.image_grid import Box, Tile, annotated


def test_sheets_show_everything():
    titles = [tile.title for tile in things()]
    assert set(THINGS) == {title.split(":")[0] for title in titles}
    assert {"umbrella: open", "umbrella: closed", "mug"} <= set(titles)
    shown = places(0)
    assert [tile.title for tile in shown] == list(PLACES)
    assert all(len(tile.boxes) >= 2 for tile in shown)
    assert [tile.title[:7] for tile in breaks(0)] == [
        f"level {n}" for n in (1, 2, 3, 4, 5) for _ in "abc"
    ]
    assert [tile.title.split(" ")[0] for tile in styles(0)] == list(STYLES)


def test_boxes_lie_on_their_pixels(tmp_path):
    pixels = np.zeros((20, 30, 3), np.uint8)
    tile = Tile(pixels, "a title", [Box(2, 3, 10, 5, "red mug"), Box(20, 1, 8, 8, "dog")])
    figure = annotated([tile, tile, tile], columns=2, footer="a footer")
    assert len(figure.axes) == 3
    (axes, *_) = figure.axes
    assert axes.get_title() == "a title"
    assert [patch.get_bbox().extents.tolist() for patch in axes.patches] == [
        [1.5, 2.5, 11.5, 7.5],
        [19.5, 0.5, 27.5, 8.5],
    ]
    assert [text.get_text() for text in axes.texts] == ["red mug", "dog"]
    assert [text.get_ha() for text in axes.texts] == ["left", "right"]
