"""Builtin scenes: rendered places with several objects each, exactly annotated.

Everything is drawn with numpy from ``(seed, index)``: no files, no downloads, the same images for
any number of workers. 15 places, each with a co-occurrence prior over 37 familiar things; 4
unfamiliar ones and 4 abstract patterns break it. Semantic levels (0 expected, 1 at home next
door, 2 out of place, 3 on the wrong side of the door, 4 unfamiliar, 5 no thing at all) and
covariate levels (those of the vessels; 2 = other light and weather) are independent and known.
Every object has an exact visible mask, box and area, and attributes that a question can be asked
about: a colour, and a state or an action.

``sample_scene(rng, place=..., style=..., wanted=[ObjectRequest("umbrella", "red", "open"), ...])``
draws a scene with given content, ``render`` its pixels, ``visible`` what can be seen of each
object.
"""

from ood_lab.builtin.scenes.coco_files import write_coco as write_coco
from ood_lab.builtin.scenes.covariate_styles import STYLES as STYLES
from ood_lab.builtin.scenes.dataset import SHIFTS as SHIFTS
from ood_lab.builtin.scenes.dataset import ScenesDataset as ScenesDataset
from ood_lab.builtin.scenes.dataset import ScenesGrid as ScenesGrid
from ood_lab.builtin.scenes.dataset import ShiftedScenes as ShiftedScenes
from ood_lab.builtin.scenes.places import PLACES as PLACES
from ood_lab.builtin.scenes.places import level_of as level_of
from ood_lab.builtin.scenes.places import things_at as things_at
from ood_lab.builtin.scenes.rendering import Visible as Visible
from ood_lab.builtin.scenes.rendering import render as render
from ood_lab.builtin.scenes.rendering import visible as visible
from ood_lab.builtin.scenes.scene import Scene as Scene
from ood_lab.builtin.scenes.scene_sampling import ObjectRequest as ObjectRequest
from ood_lab.builtin.scenes.scene_sampling import sample_scene as sample_scene
from ood_lab.builtin.scenes.things import THINGS as THINGS
