"""The contract of a training objective, and the objectives that read only logits.

An objective says which layers it adds, which outliers it wants and what a batch loses. The module
that trains (:class:`~ood_lab.models.training.classifier.Classifier`) calls it and knows no method.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass
from typing import Annotated, ClassVar, Literal

import torch
import torch.nn.functional as F
from annotated_types import Ge
from torch import Tensor, nn

from ood_lab.common.arguments import NotNegative
from ood_lab.common.errors import UserError
from ood_lab.common.tensor_file import Tensors
from ood_lab.models.backbone import AddedLayers, Backbone
from ood_lab.models.output import Output

Weight = NotNegative


@dataclass(frozen=True)
class Step:
    """One batch of a training, or of its validation.

    Attributes:
        backbone: the network.
        image: ID images ``[B, 3, H, W]``.
        label: ``[B] int64``.
        outliers: images ``[M, 3, H, W]`` that are neither ID nor evaluated; None in validation, and
            where the objective reads none.
        views: the ID images in other random transforms, ``[B, V - 1, 3, H, W]``; None in
            validation, and where the objective wants one view.
        smoothing: of the labels; 0 in validation.
        progress: share of the epochs that is over, from 0 to 1.
    """

    backbone: Backbone
    image: Tensor
    label: Tensor
    outliers: Tensor | None = None
    views: Tensor | None = None
    smoothing: float = 0.0
    progress: float = 0.0

    @property
    def training(self) -> bool:
        """False in validation and test."""
        return self.backbone.training

    @property
    def head(self) -> nn.Linear:
        """The last layer; :meth:`Objective.attach` has seen that there is one."""
        assert self.backbone.head is not None
        return self.backbone.head

    def together(self, images: Tensor) -> tuple[Output, Output]:
        """Outputs of the ID images and of ``images``, which pass as one batch.

        So the statistics of a batch norm are those of both.
        """
        logits, features = self.backbone(torch.cat([self.image, images]))
        n = len(self.image)
        return Output(logits[:n], features[:n]), Output(logits[n:], features[n:])

    def cross_entropy(self, logits: Tensor, target: Tensor | None = None) -> Tensor:
        """With ``target``, classes ``[N]`` or probabilities ``[N, C]``; None = the labels."""
        target = self.label if target is None else target
        return F.cross_entropy(logits, target, label_smoothing=self.smoothing)


@dataclass(frozen=True)
class Loss:
    """What an objective says of a batch.

    Attributes:
        logits: of the ID images ``[B, C]``, for their accuracy; None where the network has not
            seen them unchanged.
        terms: the weighted terms by name, scalars, whose sum is minimised.
    """

    logits: Tensor | None
    terms: Tensors


class Objective(AddedLayers):
    """What a classifier minimises. It is a part of the network, whose checkpoints hold it.

    Attributes:
        outliers_per_image: M / B in training; 0 = it reads none.
        views: V, random transforms of every image in training.
        reads: what it cannot do without; empty = only logits.
    """

    outliers_per_image: int = 0
    views: int = 1
    reads: ClassVar[Literal["", "features", "a linear head"]] = ""

    def __post_init__(self) -> None:
        """Of a class :func:`~ood_lab.common.arguments.with_settings`."""
        super().__init__()

    def attach(self, backbone: Backbone) -> None:
        """Becomes a part of the network, with the layers that it needs.

        Raises:
            UserError: the network cannot be trained so; the message says why.
        """
        has = backbone.num_features if self.reads == "features" else backbone.head is not None
        if self.reads and not has:
            raise UserError(
                f"{type(self).__name__} needs {self.reads}, which {backbone.name} does not have: "
                "choose another loss, or another network"
            )
        if self.probed and not backbone.differentiable:
            raise UserError(
                f"{type(self).__name__} trains features, which {backbone.name} has fixed: "
                "choose another loss"
            )
        self.build(backbone)
        if self.probed:
            backbone.freeze_head()
            backbone.fitted_head = "linear"
        backbone.add(self)

    def build(self, backbone: Backbone) -> None:
        """Makes the layers and the memory for the widths of a network.

        Raises:
            UserError: see :meth:`attach`.
        """

    def undecayed(self) -> Iterable[nn.Parameter]:
        """Parameters without weight decay."""
        return ()

    def forward(self, step: Step) -> Loss:
        """The loss of a batch. The default is cross-entropy."""
        logits = step.backbone(step.image).logits
        return Loss(logits, {"ce": step.cross_entropy(logits)})

    def evaluated(self, backbone: Backbone) -> Tensors:
        """Tensors by name that evaluation reads in place of those of the trained network."""
        return {}


class LogitsObjective(Objective):
    """An objective that reads the logits of ID images and outliers, and nothing else."""

    def forward(self, step: Step) -> Loss:
        """One pass of both, then :meth:`of_logits`."""
        if step.outliers is None:
            logits = step.backbone(step.image).logits
            return Loss(logits, self.of_logits(step, logits, None))
        inside, outside = step.together(step.outliers)
        return Loss(inside.logits, self.of_logits(step, inside.logits, outside.logits))

    def of_logits(self, step: Step, logits: Tensor, outliers: Tensor | None) -> Tensors:
        """The terms, of logits ``[B, C]`` and, in training, ``[M, C]``."""
        raise NotImplementedError


class LabelledLoss(LogitsObjective):
    """``loss(logits, labels)`` of another package, in which outliers have the label -1.

    So are the losses of pytorch-ood that read logits; the smoothing of labels is theirs.

    Args:
        loss: the function; it returns a scalar.
        outliers_per_image: outliers of a batch for each of its images; 0 = none.
    """

    def __init__(
        self,
        loss: Callable[[Tensor, Tensor], Tensor],
        outliers_per_image: Annotated[int, Ge(0)] = 0,
    ) -> None:
        super().__init__()
        self.loss, self.outliers_per_image = loss, outliers_per_image

    def of_logits(self, step: Step, logits: Tensor, outliers: Tensor | None) -> Tensors:
        """The one term, called by the class of the loss."""
        label = step.label
        if outliers is not None:
            label = torch.cat([label, label.new_full((len(outliers),), -1)])
            logits = torch.cat([logits, outliers])
        value = self.loss(logits, label)
        if value.ndim:
            raise UserError(f"{type(self.loss).__name__} returns no scalar: set reduction=mean")
        return {type(self.loss).__name__: value}
