"""The features of one dataset under one backbone, as tensors in dataset order."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from functools import cached_property

import torch
from torch import Tensor, nn

from ood_lab.common.tensor_file import Tensors
from ood_lab.features.moments import Derived
from ood_lab.models.head_kind import HeadKind, Part, parts_of
from ood_lab.models.output import WeightAndBias
from ood_lab.schema.image_columns import SEVERAL
from ood_lab.schema.run_record import BankRecord

#: Column of a bank of images that passed as tiles.
TILES = "tiles"


@dataclass(frozen=True)
class FeatureBank:
    """Everything a post-hoc detector may read.

    Attributes:
        features: ``[N, D] float32``, the exact input of the last linear layer; D = 0 without any.
        logits: ``[N, C] float32``; C = 0 without any.
        labels: ``[N] int64``, -1 = OOD or unknown, -2 = several classes (multi-label data).
        index: ``[N] int64``, row of the dataset's table; ``arange(N)`` for a whole dataset.
        head_weight: ``[C, D] float32`` and
        head_bias: ``[C] float32`` (zeros where the head has none), so that
            ``features @ head_weight.T + head_bias == logits``; both empty without a linear head.
        columns: what detectors computed in the extraction pass, ``{column key: [N, ...]}``.
        label_classes: number of classes that ``labels`` name, where the head has others; None where
            they are those of the logits.
        groups: ``[N] int64``, equal where images belong together, in all banks alike; None = each
            image is its own (:mod:`ood_lab.features.image_groups`).
        record: what it was made from.
        derived: what follows from the rows, worked out once; made again for other rows.
    """

    features: Tensor
    logits: Tensor
    labels: Tensor
    index: Tensor
    head_weight: Tensor
    head_bias: Tensor
    columns: Tensors = field(default_factory=dict)
    record: BankRecord = field(default_factory=BankRecord)
    label_classes: int | None = None
    groups: Tensor | None = None
    derived: Derived = field(default=None, repr=False, compare=False)  # type: ignore[assignment]

    def __post_init__(self) -> None:
        rows = (self.features, self.logits, self.labels)
        pairs = self.derived and zip(rows, self.derived.rows, strict=True)
        if not pairs or any(here is not there for here, there in pairs):
            derived = Derived(self.features, self.logits, self.labels)
            object.__setattr__(self, "derived", derived)

    def __len__(self) -> int:
        return len(self.features)

    def __repr__(self) -> str:
        """One line: what there is of it, not the numbers."""
        labelled = int((self.labels >= 0).sum())
        parts = [f"{len(self):,} images, {labelled:,} with a label"]
        parts += [f"{self.width:,} features", f"{self.num_classes:,} classes"]
        parts += [f"columns {', '.join(self.columns)}"] if self.columns else []
        return f"FeatureBank({', '.join(parts)})"

    @property
    def width(self) -> int:
        """D, 0 without features."""
        return self.features.shape[1]

    @property
    def num_classes(self) -> int:
        """C, 0 without logits."""
        return self.logits.shape[1]

    @property
    def gives(self) -> frozenset[Part]:
        """What detectors may read of it, in addition to the columns."""
        return parts_of(
            self.width,
            self.num_classes,
            self.head_weight.numel() > 0,
            self.derived.normalised,
            self.label_classes is None,
        )

    @property
    def kind(self) -> HeadKind:
        """How its logits follow from its features."""
        return HeadKind.of(self.gives)

    @property
    def classes(self) -> int:
        """Number of classes that labels name."""
        return self.num_classes if self.label_classes is None else self.label_classes

    @property
    def network(self) -> str | None:
        """Names the network and weights that made the features; None where they are not known."""
        return self.record.network or self.record.weights_sha256 or None

    @property
    def multilabel(self) -> bool:
        """Whether its images have any number of classes each."""
        return bool((self.labels == SEVERAL).any())

    @property
    def predictions(self) -> Tensor:
        """Predicted class of every image, ``[N] int64``; -1 without logits."""
        return self.derived.predictions

    @cached_property
    def of_tiles(self) -> FeatureBank:
        """A row for each tile where images passed as tiles, those of an image as one group."""
        if (tiles := self.columns.get(TILES)) is None:
            return self
        n, t = tiles.shape[:2]
        rows = torch.arange(n).repeat_interleave(t)
        groups = torch.arange(n) if self.groups is None else self.groups
        features, logits = tiles.flatten(0, 1).split([self.width, self.num_classes], 1)
        columns = {
            key: values.flatten(0, 1)
            for key, values in self.columns.items()
            if key != TILES and values.shape[1:2] == (t,)
        }
        return replace(
            self,
            features=features,
            logits=logits,
            labels=self.labels[rows],
            index=self.index[rows],
            columns=columns,
            groups=groups[rows],
        )

    def rows(self, selection: Tensor) -> FeatureBank:
        """The bank of the selected rows (``selection``: bool mask ``[N]`` or row numbers)."""
        picked = torch.nonzero(selection).flatten() if selection.dtype == torch.bool else selection
        return replace(
            self,
            features=self.features[picked],
            logits=self.logits[picked],
            labels=self.labels[picked],
            index=self.index[picked],
            columns={key: value[picked] for key, value in self.columns.items()},
            groups=None if self.groups is None else self.groups[picked],
        )


#: By the name of their set.
Banks = Mapping[str, FeatureBank]


def weight_and_bias(head: nn.Linear | None) -> WeightAndBias:
    """``[C, D]`` and ``[C]``, as a bank holds them; empty without a head."""
    if head is None:
        return torch.zeros(0, 0), torch.zeros(0)
    weight = head.weight.detach().float().cpu().contiguous()
    bias = torch.zeros(len(weight)) if head.bias is None else head.bias.detach().float().cpu()
    return weight, bias


def other_network(one: str | None, other: str | None) -> bool:
    """True where features are known to be of different networks (:attr:`FeatureBank.network`)."""
    return one is not None and other is not None and one != other
