"""All sets of questions of a run: ORIC's, its ablations, and POPE's from the same annotations."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, Literal

import numpy as np
import pandas as pd

from ood_lab.axes import LEVELS
from ood_lab.errors import UserError
from ood_lab.lvlm.annotations import Annotations
from ood_lab.lvlm.oric.construct import OricConstruction
from ood_lab.lvlm.oric.contents import Contents
from ood_lab.lvlm.oric.drawing import Constructed, construct
from ood_lab.lvlm.oric.files import Item, problem_of
from ood_lab.lvlm.oric.judges import Judge
from ood_lab.lvlm.oric.pope import Pope, Sampling
from ood_lab.lvlm.oric.released import Article
from ood_lab.lvlm.oric.space import Space
from ood_lab.lvlm.parsers import YES

#: ``split`` of ORIC's questions.
ORIC = "oric"
#: Ablations: which of the two samplers are ORIC's own; the others draw at random.
Ablation = Literal["uniform", "pos_only", "neg_only"]
_SAMPLERS: Mapping[Ablation, dict[str, Any]] = {
    "uniform": {"positives": "uniform", "negatives": "uniform"},
    "pos_only": {"negatives": "uniform"},
    "neg_only": {"positives": "uniform"},
}
_PER_IMAGE = 3
_SEEN_BY_MODELS = ("p_context", "area_share", "tier", "cosine", "pair", *LEVELS)


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
            UserError: see :func:`~ood_lab.lvlm.oric.drawing.construct`.
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

    def ablation(self, how: OricConstruction, name: Ablation) -> pd.DataFrame:
        """ORIC's questions with one or both of its samplers swapped for random draws."""
        swapped = replace(how, **_SAMPLERS[name])
        return construct(swapped, self.contents, self.space, self.judge, self.seed).questions

    def pope(self, sampling: Sampling, questions: int) -> pd.DataFrame:
        """POPE's questions, as many as ORIC has."""
        images = max(1, -(-questions // (2 * _PER_IMAGE)))
        return Pope(images=images).build(self.contents, sampling, self.seed)


def items_of(
    questions: pd.DataFrame, annotations: Annotations, article: Article = "right"
) -> list[Item]:
    """Rows of ``oric_bench.json``, numbered from 1.

    Args:
        questions: ``row, object, label``.
        annotations: the images.
        article: of the object.
    """
    files = annotations.images["file"].tolist()
    triples = zip(questions["row"], questions["object"], questions["label"], strict=True)
    return [
        Item(number, files[row], str(name), problem_of(str(name), article), str(label))
        for number, (row, name, label) in enumerate(triples, 1)
    ]


def table_of(items: Sequence[Item], annotations: Annotations | None) -> pd.DataFrame:
    """Items of a file as rows of questions: ``row, image, object, label``.

    Args:
        items: of a published file.
        annotations: of its images; None = nothing is known of them, and ``row`` numbers them.

    Raises:
        UserError: an image or an object is not in the annotations, or they say otherwise.
    """
    names = [item.image for item in items]
    if annotations is None:
        rows = pd.factorize(pd.Index(names))[0]
    else:
        known = pd.Index([Path(file).name for file in annotations.images["file"]])
        rows = known.get_indexer(pd.Index([Path(name).name for name in names]))
        pairs = zip(annotations.objects["image"], annotations.objects["category"], strict=True)
        there, ids = set(pairs), annotations.images["image"].tolist()
        for item, row in zip(items, rows, strict=True):
            if row < 0:
                raise UserError(
                    f"the image {item.image} of question {item.id} is not among the "
                    f"{len(known):,} of {annotations.name}: choose the annotations of its images, "
                    "or their folder, task.images=DIR"
                )
            if item.target_object not in annotations.categories:
                raise UserError(
                    f"question {item.id} asks for '{item.target_object}', which {annotations.name} "
                    "does not annotate"
                )
            if ((ids[row], item.target_object) in there) != (item.solution == YES):
                raise UserError(
                    f"question {item.id} has the answer {item.solution}, but {annotations.name} "
                    f"says otherwise of '{item.target_object}' in {item.image}: choose the "
                    "annotations of its images, or their folder, task.images=DIR"
                )
    return pd.DataFrame(
        {
            "row": rows,
            "image": names,
            "object": [item.target_object for item in items],
            "label": [item.solution for item in items],
        }
    )


def meta_of(table: pd.DataFrame) -> list[dict[str, Any]]:
    """What goes into ``meta`` of each question: its set and what is known of it."""
    known = [name for name in ("split", *_SEEN_BY_MODELS) if name in table]
    rows = table[known].to_dict("records")
    return [{str(k): _json(v) for k, v in row.items() if not _missing(v)} for row in rows]


def _missing(value: Any) -> bool:
    return value is None or (isinstance(value, float) and np.isnan(value))


def _json(value: Any) -> Any:
    value = value.item() if isinstance(value, np.generic) else value
    return round(value, 6) if isinstance(value, float) else value
