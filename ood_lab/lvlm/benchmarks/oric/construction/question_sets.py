"""Sets of questions that are made: ORIC's, and its ablations."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any, Literal

import numpy as np
import pandas as pd

from ood_lab.lvlm.annotations.image_contents import Contents
from ood_lab.lvlm.benchmarks.oric.construction.construction_settings import OricConstruction
from ood_lab.lvlm.benchmarks.oric.construction.judges import Judge
from ood_lab.lvlm.benchmarks.oric.construction.question_drawing import Constructed, construct
from ood_lab.lvlm.image_text.clip_space import Space
from ood_lab.lvlm.questions import question_files
from ood_lab.schema.arrays import Ints
from ood_lab.schema.shift_axes import LEVELS

#: ``split`` of ORIC's questions.
ORIC = "oric"
#: Ablations: which of the two samplers are ORIC's own; the others draw at random.
Ablation = Literal["uniform", "pos_only", "neg_only"]
_SAMPLERS: Mapping[Ablation, dict[str, Any]] = {
    "uniform": {"positives": "uniform", "negatives": "uniform"},
    "pos_only": {"negatives": "uniform"},
    "neg_only": {"positives": "uniform"},
}
_SEEN_BY_MODELS = (
    *("p_context", "area_share", "tier", "coco_tier", "cosine", "pair"),
    *LEVELS,
)


@dataclass(frozen=True)
class Builder:
    """Builds sets of questions from the same images.

    Attributes:
        contents: what is in N images.
        space: the same images, and the labels.
        judge: says what is unexpected.
        seed: of all draws.
    """

    contents: Contents
    space: Space
    judge: Judge
    seed: int

    def oric(
        self, how: OricConstruction, train_pairs: int = 0
    ) -> tuple[Constructed, Constructed | None]:
        """ORIC's questions, and others to train on.

        The images are dealt to the two at random, in proportion to their pairs: none is in both.

        Args:
            how: pairs are those of the benchmark.
            train_pairs: pairs to train on.

        Raises:
            UserError: see
                :func:`~ood_lab.lvlm.benchmarks.oric.construction.question_drawing.construct`.
        """
        if not train_pairs:
            return construct(how, self.contents, self.space, self.judge, self.seed), None
        order = np.random.default_rng([self.seed, 3]).permutation(len(self.contents))
        cut = round(len(order) * train_pairs / (train_pairs + how.pairs))
        train = replace(how, pairs=train_pairs)
        parts = ((how, order[cut:]), (train, order[:cut]))
        bench, other = (
            construct(each, self.contents, self.space, self.judge, self.seed, among)
            for each, among in parts
        )
        return bench, other

    def ablation(
        self, how: OricConstruction, name: Ablation, among: Ints | None = None
    ) -> pd.DataFrame:
        """ORIC's questions with one or both of its samplers swapped for random draws.

        Args:
            how: ORIC's are made.
            name: which samplers stay.
            among: rows of the images that may be asked about; None = all.
        """
        swapped = replace(how, **_SAMPLERS[name])
        found = construct(swapped, self.contents, self.space, self.judge, self.seed, among)
        return found.questions


def meta_of(table: pd.DataFrame) -> list[dict[str, Any]]:
    """What goes into ``meta`` of each question: its set and what is known of it."""
    known = [name for name in ("split", *_SEEN_BY_MODELS) if name in table]
    rows = map(question_files.meta_of, table[known].to_dict("records"))
    return [{k: round(v, 6) if isinstance(v, float) else v for k, v in row.items()} for row in rows]
