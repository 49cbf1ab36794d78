"""Builtin procedural data: bronze ding and gui, and controlled shifts away from them.

Everything is drawn with numpy from ``(seed, index)``: no files, no downloads, the same images for
any number of workers. Semantic levels (0 ding and gui, 1 similar vessels, 2 containers, 3 tools,
4 natural things, 5 abstract patterns) and covariate levels (0 studio and museum photos,
1 degraded photos, 2 other surroundings, 3 other materials in colourful scenes, 4 drawings,
5 mosaic, neon, x-ray) are independent and known.
"""

from ood_lab.builtin.vessels.augmentation import LightAugment
from ood_lab.builtin.vessels.captioned_images import VesselsWorld
from ood_lab.builtin.vessels.captions import caption_labels, caption_templates
from ood_lab.builtin.vessels.drawings.bronzes import SHAPES
from ood_lab.builtin.vessels.id_vessels import VesselsDataset
from ood_lab.builtin.vessels.ood_vessels import SHIFTS, ShiftedVessels, VesselsGrid
from ood_lab.builtin.vessels.periods import CATEGORIES, CLASSES, DYNASTIES
from ood_lab.builtin.vessels.place_backgrounds import OtherPlaces

__all__ = [
    "CATEGORIES",
    "CLASSES",
    "DYNASTIES",
    "SHAPES",
    "SHIFTS",
    "LightAugment",
    "OtherPlaces",
    "ShiftedVessels",
    "VesselsDataset",
    "VesselsGrid",
    "VesselsWorld",
    "caption_labels",
    "caption_templates",
]
