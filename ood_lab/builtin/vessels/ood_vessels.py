"""Out-of-distribution vessels: five shifted sets, and the semantic x covariate grid."""

from __future__ import annotations

from dataclasses import dataclass
from itertools import product

import numpy as np

from ood_lab.builtin.vessels.covariate_styles import styles_of_level
from ood_lab.builtin.vessels.id_vessels import cycle, draw_bronze
from ood_lab.builtin.vessels.nouns import CONTAINERS, nouns_of_level
from ood_lab.builtin.vessels.periods import CATEGORIES
from ood_lab.builtin.vessels.rendered_dataset import SceneDataset, check_counts, undated_columns
from ood_lab.builtin.vessels.scene import Scene, generator, pick, sample_scene
from ood_lab.common.errors import UserError


@dataclass(frozen=True)
class _Shift:
    """Nouns (none: dated ding and gui), styles, and backgrounds (none: those of the style)."""

    nouns: tuple[str, ...]
    styles: tuple[str, ...]
    backgrounds: tuple[str, ...] = ()


_SCENES = ("indoor", "outdoor", "colourful")
_MATERIALS = styles_of_level(3)
_FAR = tuple(noun for level in (3, 4, 5) for noun in nouns_of_level(level))

#: The five OOD sets, in the declared order of growing shift.
SHIFTS = {
    "transferred_bronze": _Shift((), ("indoor", "outdoor")),
    "transferred_container": _Shift(CONTAINERS, styles_of_level(0)),
    "sketch_rubbing": _Shift((), ("sketch", "rubbing")),
    "container": _Shift(CONTAINERS, _MATERIALS, _SCENES),
    "general": _Shift(_FAR, _MATERIALS, _SCENES),
}


def _draw(rng: np.random.Generator, index: int, ambiguity: float, shift: _Shift) -> Scene:
    if not shift.nouns:
        return draw_bronze(rng, *cycle(index), ambiguity, shift.styles)
    noun, style = pick(rng, shift.nouns), pick(rng, shift.styles)
    background = pick(rng, shift.backgrounds) if shift.backgrounds else None
    return sample_scene(rng, noun, style, background)


class ShiftedVessels(SceneDataset):
    """One of the five OOD sets; every label is -1.

    ``transferred_bronze``: the ID vessels before new backgrounds; ``transferred_container``:
    household containers in the ID styles; ``sketch_rubbing``: drawings of the ID vessels;
    ``container``: containers of other materials before new backgrounds; ``general``: tools,
    natural things and patterns, the same way.

    The table has ``true_semantic_level`` and ``true_covariate_level`` (by construction): these
    sets are read as a whole, not by level, hence not under the names of the grid.

    Args:
        name: name of the set, also names the random stream.
        kind: one of ``SHIFTS``.
        n: number of images.
        seed: base seed, >= 0.
        ambiguity: see ``VesselsDataset``.

    Raises:
        UserError: a number out of range, or an unknown kind.
    """

    def __init__(self, name: str, kind: str, n: int, seed: int, ambiguity: float = 1.0) -> None:
        check_counts(name, n=n, seed=seed)
        if kind not in SHIFTS:
            raise UserError(f"vessels '{name}': kind={kind}; choose from {', '.join(SHIFTS)}")
        stream = f"shift/{kind}/{name}"
        scenes = [
            _draw(generator(seed, i, f"{stream}/scene"), i, ambiguity, SHIFTS[kind])
            for i in range(n)
        ]
        columns = undated_columns(scenes, "true_")
        super().__init__(name, scenes, columns, [], seed, stream, {"category": CATEGORIES})


class VesselsGrid(SceneDataset):
    """Every pair of semantic level 0..5 and covariate level 0..5 but (0, 0); labels are -1.

    The cell (0, 0) would be in-distribution: the test split stands for it. Rows go round the 35
    cells in turn, so that row ``i`` does not depend on ``per_cell``. Columns ``semantic_level``,
    ``covariate_level`` and, for the dated vessels of semantic level 0, ``category``, ``period``.

    Args:
        name: name of the set, also names the random stream.
        per_cell: images in each cell.
        seed: base seed, >= 0.
        ambiguity: see ``VesselsDataset``.

    Raises:
        UserError: a number out of range.
    """

    def __init__(self, name: str, per_cell: int, seed: int, ambiguity: float = 1.0) -> None:
        check_counts(name, per_cell=per_cell, seed=seed)
        stream = f"grid/{name}"
        cells = list(product(range(6), range(6)))[1:]
        scenes = []
        for index in range(per_cell * len(cells)):
            semantic, covariate = cells[index % len(cells)]
            shift = _Shift(nouns_of_level(semantic), styles_of_level(covariate))
            rng = generator(seed, index, f"{stream}/scene")
            scenes.append(_draw(rng, index // len(cells), ambiguity, shift))
        columns = undated_columns(scenes, "")
        super().__init__(name, scenes, columns, [], seed, stream, {"category": CATEGORIES})
