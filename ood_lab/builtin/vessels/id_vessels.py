"""In-distribution vessels: ding and gui of eleven periods."""

from __future__ import annotations

import numpy as np
import pandas as pd

from ood_lab.builtin.vessels.covariate_styles import styles_of_level
from ood_lab.builtin.vessels.drawings.bronzes import SHAPES, Bronze, sample_bronze
from ood_lab.builtin.vessels.periods import CATEGORIES, CLASSES, DYNASTIES, PERIODS, PRIORS
from ood_lab.builtin.vessels.rendered_dataset import SceneDataset, check_counts
from ood_lab.builtin.vessels.scene import Scene, generator, pick, sample_scene
from ood_lab.common.errors import UserError
from ood_lab.schema.arrays import Floats

_ID_STYLES = styles_of_level(0)
_NAMES = {"level_0": DYNASTIES, "level_1": CLASSES, "category": CATEGORIES, "shape": SHAPES}


def cycle(index: int) -> tuple[int, int]:
    """(category, period) of a row that visits all 22 in turn."""
    return (index // len(PERIODS)) % len(CATEGORIES), index % len(PERIODS)


def draw_bronze(
    rng: np.random.Generator, category: int, period: int, ambiguity: float, styles: tuple[str, ...]
) -> Scene:
    """A scene with a bronze of a given class in one of the styles."""
    bronze = sample_bronze(rng, category, period, ambiguity)
    return sample_scene(rng, bronze, pick(rng, styles))


def _columns(bronzes: list[Bronze]) -> pd.DataFrame:
    period = np.array([b.period for b in bronzes])
    dynasty = np.array([p.dynasty for p in PERIODS])
    columns = {
        "label": period,
        "level_0": dynasty[period],
        "level_1": period,
        "category": [b.category for b in bronzes],
        "shape": [b.shape for b in bronzes],
        "semantic_level": 0,
        "covariate_level": 0,
    }
    attributes = pd.DataFrame([b.attributes() for b in bronzes]).add_prefix("attribute_")
    return pd.concat([pd.DataFrame(columns), attributes], axis=1)


class VesselsDataset(SceneDataset):
    """Bronze ding and gui photographed in a studio or a museum, 64 x 64 RGB.

    The class (``label``, ``level_1``) is the period, ``level_0`` the dynasty, ``category`` 0 for
    a ding and 1 for a gui, ``shape`` an index into ``SHAPES``, ``attribute_<name>`` 0/1
    characteristics. Row ``i`` does not depend on ``n``.

    Args:
        name: ``train``, ``val`` or ``test``: also names the random stream, so that splits of
            one seed share nothing.
        n: number of images.
        seed: base seed, >= 0.
        prior: ``balanced`` visits the 22 (category, period) pairs in turn; ``paper`` draws them
            from a long tail of about 45 to 1, as excavated bronzes have it.
        ambiguity: scale of the within-period variation; 0 = the period's mean measures
            and ornament (lids and pendants stay a matter of chance).
        min_per_class: under a long-tailed prior the first ``11 * min_per_class`` rows visit the
            periods in turn, so that none is missing.

    Raises:
        UserError: a number out of range, or an unknown prior.
    """

    def __init__(
        self,
        name: str,
        n: int,
        seed: int,
        prior: str = "balanced",
        ambiguity: float = 1.0,
        min_per_class: int = 20,
    ) -> None:
        check_counts(name, n=n, seed=seed)
        if prior not in PRIORS:
            raise UserError(f"vessels '{name}': prior={prior}; choose from {', '.join(PRIORS)}")
        cumulative: Floats | None = None
        if (weights := PRIORS[prior]) is not None:
            cumulative = np.cumsum(np.ravel(weights)) / np.sum(weights)
            if n < min_per_class * len(PERIODS):
                raise UserError(
                    f"vessels '{name}': n={n} holds no {min_per_class} images of each of "
                    f"{len(PERIODS)} periods; raise n or lower min_per_class"
                )
        stream = f"id/{name}"
        scenes = []
        for index in range(n):
            rng = generator(seed, index, f"{stream}/scene")
            category, period = cycle(index)
            if cumulative is not None and index >= min_per_class * len(PERIODS):
                cell = int(np.searchsorted(cumulative, rng.random(), side="right"))
                category, period = divmod(cell, len(PERIODS))
            scenes.append(draw_bronze(rng, category, period, ambiguity, _ID_STYLES))
        bronzes = [scene.bronze for scene in scenes if scene.bronze is not None]
        super().__init__(name, scenes, _columns(bronzes), list(CLASSES), seed, stream, _NAMES)
