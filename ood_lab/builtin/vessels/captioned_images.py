"""Captioned images of everything that can be drawn, to train a CLIP on."""

from __future__ import annotations

from typing import Any

import numpy as np

from ood_lab.builtin.vessels.covariate_styles import STYLES, styles_of_level
from ood_lab.builtin.vessels.id_vessels import draw_bronze
from ood_lab.builtin.vessels.nouns import NOUNS
from ood_lab.builtin.vessels.periods import CATEGORIES, CLASSES
from ood_lab.builtin.vessels.rendered_dataset import SceneDataset, check_counts, undated_columns
from ood_lab.builtin.vessels.scene import Scene, generator, pick, sample_scene

_BRONZE_SHARE = 0.5
_ID_STYLE_SHARE = 0.4
_ID_STYLES = styles_of_level(0)
_OTHER_STYLES = tuple(name for name in STYLES if name not in _ID_STYLES)


def _draw(rng: np.random.Generator, ambiguity: float) -> Scene:
    style = pick(rng, _ID_STYLES if rng.random() < _ID_STYLE_SHARE else _OTHER_STYLES)
    if rng.random() < _BRONZE_SHARE:
        category, period = int(rng.integers(len(CATEGORIES))), int(rng.integers(len(CLASSES)))
        return draw_bronze(rng, category, period, ambiguity, (style,))
    return sample_scene(rng, pick(rng, tuple(NOUNS)), style)


class VesselsWorld(SceneDataset):
    """All things in all styles, each sample with its ``caption``.

    Half of the images show a dated ding or gui, the others one of the undated things; 40% are in
    the styles of the ID images. ``label`` is the period of a bronze, whatever its style, else -1.
    Row ``i`` does not depend on ``n``.

    Args:
        name: name of the set, also names the random stream.
        n: number of images.
        seed: base seed, >= 0.
        ambiguity: see ``VesselsDataset``.

    Raises:
        UserError: a number out of range.
    """

    def __init__(self, name: str, n: int, seed: int, ambiguity: float = 1.0) -> None:
        check_counts(name, n=n, seed=seed)
        stream = f"world/{name}"
        scenes = [_draw(generator(seed, i, f"{stream}/scene"), ambiguity) for i in range(n)]
        columns = undated_columns(scenes)
        columns["label"] = columns["period"]
        super().__init__(name, scenes, columns, list(CLASSES), seed, stream)

    def __getitem__(self, index: int) -> dict[str, Any]:
        return {**super().__getitem__(index), "caption": str(self.table["caption"].iat[index])}
