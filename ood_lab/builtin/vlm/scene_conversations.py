"""Builtin scenes as examples: rendered images with questions about them."""

from __future__ import annotations

import random
from collections.abc import Hashable, Sequence

from PIL import Image, ImageOps
from torch.utils.data import Dataset

from ood_lab.builtin.scenes import THINGS, ScenesDataset, Visible, visible
from ood_lab.builtin.scenes.drawings.colours import COLOURS
from ood_lab.builtin.scenes.scene import Scene
from ood_lab.builtin.scenes.things import STATE_WORDS
from ood_lab.builtin.vlm.dialogues import (
    Dialogue,
    SeenScene,
    VisibleObject,
    dialogues,
    presence,
)
from ood_lab.lvlm.training.examples import Example, conversation

#: What the tower learns to name: kinds, colours, states and actions.
WORDS = tuple(dict.fromkeys([*THINGS, *COLOURS, *STATE_WORDS]))


class SceneChats(Dataset[Example]):
    """Scenes with questions.

    Row ``i`` has questions about a thing that is there and one that is not; ``(i, draw)`` those
    of the draw, and half of the time mirrored: training sees others in every epoch.

    Args:
        split: name of the random stream: ``train`` or ``val``.
        n: number of scenes.
        seed: of the scenes and the questions.
        breaks: share of scenes that break the prior of their place.
        questions: asked about each image in training.
    """

    def __init__(
        self,
        split: str,
        n: int,
        seed: int = 0,
        breaks: float = 0.3,
        questions: int = 6,
    ) -> None:
        self._data = ScenesDataset(split, n, seed, breaks=breaks, keep=False)
        self._kept: dict[int, tuple[Image.Image, SeenScene]] = {}
        self._seed = f"{seed}/{split}"
        self._questions = questions

    def __len__(self) -> int:
        return len(self._data)

    def __getitem__(self, index: int | tuple[int, int]) -> Example:
        if isinstance(index, int):
            image, scene = self._at(index)
            rng = random.Random(f"{self._seed}/{index}")
            asked = [_presence(scene, present, rng) for present in (True, False)]
            return _example(image, scene, asked, ("yes", "no"))
        row, draw = index
        image, scene = self._at(row)
        rng = random.Random(f"{self._seed}/{row}/{draw}")
        mirrored = rng.random() < 0.5
        if mirrored:
            image, scene = ImageOps.mirror(image), _mirrored(scene)
        return _example(image, scene, dialogues(scene, rng, self._questions), (), (row, mirrored))

    def _at(self, index: int) -> tuple[Image.Image, SeenScene]:
        if index not in self._kept:
            scene = self._data.scene(index)
            image = Image.fromarray(self._data.paint(index, scene))
            self._kept[index] = image, seen_scene(scene, visible(scene))
        return self._kept[index]


def seen_scene(scene: Scene, objects: Sequence[Visible]) -> SeenScene:
    """A scene as far as questions are about it."""
    return SeenScene(scene.place, tuple(_seen(scene, each) for each in objects))


def _example(
    image: Image.Image,
    scene: SeenScene,
    asked: Sequence[Dialogue],
    kinds: Sequence[str],
    key: Hashable = None,
) -> Example:
    grounds = [((seen.name, *seen.attributes.values()), seen.centre) for seen in scene.objects]
    return Example(image, [conversation(*pair) for pair in asked], kinds, grounds, key)


def _seen(scene: Scene, each: Visible) -> VisibleObject:
    left, top, width, height = each.box
    centre = (left + width / 2) / scene.size, (top + height / 2) / scene.size
    return VisibleObject(each.item.look.thing, centre, each.area, scene.attributes(each.item))


def _mirrored(scene: SeenScene) -> SeenScene:
    objects = tuple(
        VisibleObject(o.name, (1.0 - o.centre[0], o.centre[1]), o.area, o.attributes)
        for o in scene.objects
    )
    return SeenScene(scene.place, objects)


def _presence(scene: SeenScene, present: bool, rng: random.Random) -> Dialogue:
    name = rng.choice(list(scene.counts)) if present else scene.absent(rng)
    return presence(name, present, rng)
