"""Builtin procedural data: bronze ding and gui, and controlled shifts away from them.

Everything is drawn with numpy from ``(seed, index)``: no files, no downloads, the same images for
any number of workers. Semantic levels (0 ding and gui, 1 similar vessels, 2 containers, 3 tools,
4 natural things, 5 abstract patterns) and covariate levels (0 studio and museum photos,
1 degraded photos, 2 other surroundings, 3 other materials in colourful scenes, 4 drawings,
5 mosaic, neon, x-ray) are independent and known.
"""

from ood_lab.builtin.vessels.datasets import SHIFTS as SHIFTS
from ood_lab.builtin.vessels.datasets import LightAugment as LightAugment
from ood_lab.builtin.vessels.datasets import ShiftedVessels as ShiftedVessels
from ood_lab.builtin.vessels.datasets import VesselsDataset as VesselsDataset
from ood_lab.builtin.vessels.datasets import VesselsGrid as VesselsGrid
from ood_lab.builtin.vessels.drawings.bronzes import SHAPES as SHAPES
from ood_lab.builtin.vessels.nouns import caption_labels as caption_labels
from ood_lab.builtin.vessels.nouns import caption_templates as caption_templates
from ood_lab.builtin.vessels.periods import CATEGORIES as CATEGORIES
from ood_lab.builtin.vessels.periods import CLASSES as CLASSES
from ood_lab.builtin.vessels.periods import DYNASTIES as DYNASTIES
from ood_lab.builtin.vessels.scene import OtherPlaces as OtherPlaces
