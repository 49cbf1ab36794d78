"""Annotations, features and a judge so small that every outcome can be computed by hand."""

from pathlib import Path

import numpy as np
import pandas as pd

from ood_lab.lvlm.annotations.annotation_table import Annotations, objects_table
from ood_lab.lvlm.image_text.clip import ClipSpace

CATEGORIES = ("person", "dog", "cup", "car", "boat", "kite")
#: Image, category, box. Areas of the unions: a: person 1000, car 900, dog 150 (two boxes of 100
#: that share 50), cup 20, kite 30; b: boat 800, person 600, cup 10, dog 5; c: car 400, person 300,
#: dog 200; d: kite 50.
OBJECTS = [
    ("a", "cup", (0, 0, 4, 5)),
    ("a", "dog", (0, 0, 10, 10)),
    ("a", "person", (0, 0, 50, 20)),
    ("a", "dog", (5, 0, 10, 10)),
    ("a", "car", (0, 0, 30, 30)),
    ("a", "kite", (0, 0, 6, 5)),
    ("b", "boat", (0, 0, 40, 20)),
    ("b", "person", (0, 0, 30, 20)),
    ("b", "cup", (0, 0, 5, 2)),
    ("b", "dog", (0, 0, 5, 1)),
    ("c", "car", (0, 0, 20, 20)),
    ("c", "person", (0, 0, 15, 20)),
    ("c", "dog", (0, 0, 10, 20)),
    ("d", "kite", (0, 0, 10, 5)),
]
#: Directions of the images; a is nearest to c, then b.
IMAGES = np.array([[1, 0.0], [0.6, 0.8], [0.96, 0.28], [0, 1.0]], np.float32)
#: Cosines with image c (0.96, 0.28) fall in the order boat, kite, cup among what is not in it.
LABELS = np.array([[1, 0], [0, 1], [-0.6, 0.8], [0.8, 0.6], [1, 0], [0.6, 0.8]], np.float32)


def annotations() -> Annotations:
    """Four images of 100 by 100 pixels."""
    images = pd.DataFrame(
        {
            "image": list("abcd"),
            "file": [f"{name}.png" for name in "abcd"],
            "width": 100,
            "height": 100,
        }
    )
    boxes = np.array([box for *_, box in OBJECTS], float)
    objects = objects_table(
        [image for image, *_ in OBJECTS],
        [CATEGORIES.index(category) for _, category, _ in OBJECTS],
        CATEGORIES,
        boxes,
        boxes[:, 2] * boxes[:, 3],
        [False] * len(OBJECTS),
    )
    return Annotations("toy", CATEGORIES, Path("/toy"), images, objects)


def space() -> ClipSpace:
    """The features above."""
    return ClipSpace(IMAGES, LABELS)


class Says:
    """A judge that answers from a table of targets."""

    def __init__(self, replies, otherwise="Yes."):
        self.table, self.otherwise, self.asked = replies, otherwise, []
        self.made_with = {"model": "table"}

    def replies(self, asked):
        self.asked += asked
        return [self.table.get(each.target, self.otherwise) for each in asked]
