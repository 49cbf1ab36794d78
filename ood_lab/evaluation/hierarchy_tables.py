"""Hierarchy tables: accuracy of every level of the labels, and recall of every class."""

from __future__ import annotations

import itertools
from collections.abc import Sequence

import numpy as np
import pandas as pd
import torch
from torch import Tensor

from ood_lab.common.errors import UserError
from ood_lab.common.tensor_file import Tensors
from ood_lab.data.datamodules.base import OODDataModule
from ood_lab.data.dataset import columns_with
from ood_lab.features.bank import FeatureBank
from ood_lab.features.extraction_hooks import BankColumn
from ood_lab.metrics import hierarchy_table
from ood_lab.models import Backbone
from ood_lab.models.fgvc.base import FGVCNet
from ood_lab.models.output import Output
from ood_lab.schema.label_space import LabelSpace
from ood_lab.schema.results import Kind


class HeadPredictions(BankColumn):
    """Most likely label of every named head, ``[B, len(heads)] int64``.

    Args:
        heads: names of sub-modules whose outputs are logits ``[B, C_l]``, or any increasing
            function of them.
    """

    of_tiles = False

    def __init__(self, heads: Sequence[str]) -> None:
        self.heads = list(heads)
        self.key = f"argmax of {', '.join(self.heads)}"

    def layers(self, backbone: Backbone) -> list[str]:
        """The heads.

        Raises:
            UserError: the backbone has no such sub-module.
        """
        modules = dict(backbone.named_modules())
        if missing := [head for head in self.heads if head not in modules]:
            raise UserError(f"{backbone.name} has no head '{missing[0]}'")
        return self.heads

    def compute(self, backbone: Backbone, image: Tensor, output: Output, maps: Tensors) -> Tensor:
        """``argmax_c`` of the output of each head."""
        return torch.stack([maps[head].argmax(dim=1) for head in self.heads], dim=1)


#: ``label_level``: coarse, fine; ``subset`` of the images; ``name`` of a class whose recall it is.
KIND = Kind("hierarchy", "image", ("label_level", "source", "subset", "name", "correct"))
CATEGORY = "category"


def level_titles(levels: int) -> list[str]:
    """What the levels are called, coarse to fine: ``coarse, fine`` where there are two."""
    middle = [f"level {i}" for i in range(1, levels - 1)]
    return ["coarse", *middle, "fine"] if levels > 1 else ["fine"]


def heads_to_read(data: OODDataModule, backbone: Backbone) -> HeadPredictions | None:
    """Heads of the network for the labels of the ID test set; None where it has none of use."""
    heads = [name for names in _heads(data.labels, backbone) for name in names]
    return HeadPredictions(heads) if heads else None


def _heads(labels: LabelSpace, backbone: Backbone) -> tuple[Sequence[str], Sequence[str]]:
    """Heads for the coarser levels, and for the category, of labels that the network knows."""
    if not isinstance(backbone, FGVCNet):
        return (), ()
    of_network, category = backbone.labels, backbone.category_head
    knows_category = 0 < labels.categories == of_network.categories
    levels = backbone.level_heads if list(of_network.level_sizes) == labels.level_sizes else ()
    return levels, (category,) if category and knows_category else ()


def hierarchy_results(
    data: OODDataModule, bank: FeatureBank, backbone: Backbone, model: str, seed: int
) -> pd.DataFrame | None:
    """The hierarchy table of the ID test set; None where it has neither levels nor a category.

    ``label_level`` is ``category``, ``coarse``, ``fine`` (``level 1``, ... between them);
    ``subset`` is ``all`` or a category. ``source`` says where a prediction is from: a ``head`` of
    the network, or ``derived``, the parent of the predicted class. A category has no parent among
    the classes: without a head for it there is no accuracy, and it only divides the images.
    ``bank`` has the columns of :func:`heads_to_read`; ``model`` and ``seed`` are
    written to every row.
    """
    test = data.splits["test"]
    # Coarse to fine; those that train does not have are none.
    levels = sorted(columns_with("level_", test.table)) if data.labels.level_sizes else []
    if not levels and CATEGORY not in test.table:
        return None
    column = heads_to_read(data, backbone)
    read = bank.columns[column.key].numpy() if column else np.empty((len(bank), 0), np.int64)
    parts, subsets = [], {}
    level_heads, category_head = _heads(data.labels, backbone)
    if CATEGORY in test.table:
        categories, truth = test.names_of(CATEGORY), test.table[CATEGORY].to_numpy()
        subsets = {name: truth == value for value, name in enumerate(categories)}
        if category_head:
            table = hierarchy_table(truth, read[:, -1], categories, groups=test.groups)
            parts.append(table.assign(label_level=CATEGORY, source="head"))
    of_heads = read[:, : len(level_heads)]
    predictions = _level_predictions(data.labels, bank.predictions.numpy(), of_heads)
    truths = [(test.table[c].to_numpy(), test.names_of(c)) for c in levels[:-1]]
    truths.append((test.labels.numpy(), tuple(test.classes)))
    for title, (truth, names), (predicted, source) in zip(
        level_titles(len(levels)), truths, predictions[-len(truths) :], strict=True
    ):
        table = hierarchy_table(truth, predicted, names, subsets, test.groups)
        parts.append(table.assign(label_level=title, source=source))
    return KIND.table(pd.concat(parts, ignore_index=True), model=model, seed=seed)


def _level_predictions(
    labels: LabelSpace, classes: np.ndarray, heads: np.ndarray
) -> list[tuple[np.ndarray, str]]:
    """Predictions and their source, coarse to fine.

    From predicted classes ``[N]``, and from heads of the coarser levels ``[N, H]``, coarsest first.
    """
    upwards = itertools.accumulate(
        reversed(labels.parents), lambda level, parents: np.asarray(parents)[level], initial=classes
    )
    *coarser, finest = reversed(list(upwards))
    levels = [(values, "derived") for values in coarser]
    levels[: heads.shape[1]] = [(values, "head") for values in heads.T]
    return [*levels, (finest, "head")]
