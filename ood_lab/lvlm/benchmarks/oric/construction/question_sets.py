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
from ood_lab.schema.arrays import Ints

#: ``split`` of ORIC's questions.
ORIC = "oric"
#: Ablations: which of the two samplers are ORIC's own; the others draw at random.
Ablation = Literal["uniform", "pos_only", "neg_only"]
_SAMPLERS: Mapping[Ablation, dict[str, Any]] = {
    "uniform": {"positives": "uniform", "negatives": "uniform"},
    "pos_only": {"negatives": "uniform"},
    "neg_only": {"positives": "uniform"},
}


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
            return self._construct(how), None
        order = np.random.default_rng([self.seed, 3]).permutation(len(self.contents))
        cut = round(len(order) * train_pairs / (train_pairs + how.pairs))
        train = replace(how, pairs=train_pairs)
        return self._construct(how, order[cut:]), self._construct(train, order[:cut])

    def _construct(self, how: OricConstruction, among: Ints | None = None) -> Constructed:
        return construct(how, self.contents, self.space, self.judge, self.seed, among)

    def ablation(
        self, how: OricConstruction, name: Ablation, among: Ints | None = None
    ) -> pd.DataFrame:
        """ORIC's questions with one or both of its samplers swapped for random draws.

        Args:
            how: ORIC's are made.
            name: which samplers stay.
            among: rows of the images that may be asked about; None = all.
        """
        return self._construct(replace(how, **_SAMPLERS[name]), among).questions
