"""AKG: archaeological knowledge guided classification of bronzes (arXiv 2303.15266)."""

from __future__ import annotations

from typing import NamedTuple

import torch
import torch.nn.functional as F
from torch import Tensor, nn
from torchvision.ops import sigmoid_focal_loss

from ood_lab.common.errors import UserError
from ood_lab.common.tensor_file import Batch, Tensors
from ood_lab.models.fgvc.base import FGVCModule, FGVCNet
from ood_lab.models.fgvc.label_tree import Hierarchy
from ood_lab.models.fgvc.layers import UNKNOWN, Branch, known_cross_entropy, known_mean, picked
from ood_lab.models.output import Output

#: The paper's beta and lambda.
FOCAL_WEIGHT, GRAPH_WEIGHT = 0.001, 0.1


def graph_losses(
    tree: Hierarchy,
    eras: Tensor,
    shapes: Tensor,
    attributes: Tensor,
    levels: Tensor,
    shape: Tensor,
    positives: Tensor,
) -> Tensors:
    """Negative log-likelihoods of era, shape and characteristics, each weighted by the last.

    The states of the shape graph are the empty one and every state h of the era tree (the empty
    one included) with exactly one shape k; likewise for the characteristics. All pairs are
    allowed. With potentials a (eras), b (shapes) and d (characteristics), the sums over all
    ``1 + (N + 1) K`` states factor:

        Z       = sum_h exp(h . a)
        p_era   = sum_{h with y} exp(h . a) / Z                      y: deepest known label
        p_shape = Z exp(b_k) / (1 + Z sum_k' exp(b_k'))
        p_attr  = Z sum_{j: t_j = 1} exp(d_j) / (1 + Z sum_j exp(d_j))    "any of the positives"

        era = -log p_era
        shape = -(1 - p_era)^2 log p_shape
        attributes = -(1 - p_shape)^3 log p_attr

    Gradients flow through the weights. Each loss is averaged over the images that it is defined
    for: a label is known, a shape is known, there is a characteristic. The weight of an image
    whose era or shape is unknown is 1.

    Args:
        tree: of the eras.
        eras: a, ``[B, N]``.
        shapes: b, ``[B, K]``.
        attributes: d, ``[B, A]``.
        levels: ``[B, L]`` labels coarse to fine, -1 = unknown.
        shape: ``[B]``, -1 = unknown.
        positives: ``[B, A]``, 0/1.

    Returns:
        The three losses, scalars, in float32 or better.
    """
    log_p, log_z = tree.log_marginals(eras)
    node = tree.deepest(levels)
    log_era = picked(log_p, node)
    log_shape = picked(log_z[:, None] + shapes, shape) - _log_total(log_z, shapes)
    some = positives.sum(1) > 0
    # Images without a positive sum over all of them: finite, and masked below. A sum over
    # nothing would be -inf, whose gradient is NaN even behind a mask.
    counted = (positives > 0) | ~some[:, None]
    log_any = attributes.masked_fill(~counted, -torch.inf).logsumexp(1)
    log_attribute = log_z + log_any - _log_total(log_z, attributes)
    shape_weight = _weight(log_era, node != UNKNOWN, 2.0)
    attribute_weight = _weight(log_shape, shape != UNKNOWN, 3.0)
    return {
        "era": known_mean(-log_era, node != UNKNOWN),
        "shape": known_mean(-shape_weight * log_shape, shape != UNKNOWN),
        "attributes": known_mean(-attribute_weight * log_attribute, some),
    }


def focal_cross_entropy(logits: Tensor, target: Tensor, gamma: float) -> Tensor:
    """``mean -(1 - p)^gamma log p`` with p the softmax at the target.

    Source: Lin et al., "Focal Loss for Dense Object Detection", arXiv 1708.02002.

    Args:
        logits: ``[B, K]``.
        target: ``[B]``, -1 = unknown, left out of the mean.
        gamma: exponent.
    """
    log_p = picked(logits.float().log_softmax(1), target)
    labelled = target != UNKNOWN
    return known_mean(-_weight(log_p, labelled, gamma) * log_p, labelled)


def focal_binary_cross_entropy(logits: Tensor, target: Tensor, gamma: float) -> Tensor:
    """``mean_b sum_j -(1 - q)^gamma log q`` with q the sigmoid, or 1 - it where the target is 0.

    Args:
        logits: ``[B, A]``.
        target: ``[B, A]``, 0/1.
        gamma: exponent.
    """
    losses = sigmoid_focal_loss(logits.float(), target.float(), alpha=-1, gamma=gamma)
    return losses.sum(1).mean()


def _log_total(log_z: Tensor, potentials: Tensor) -> Tensor:
    """``log(1 + Z sum_k exp(potentials_k))``, the normaliser over all states."""
    return F.softplus(log_z + potentials.logsumexp(1))


def _weight(log_p: Tensor, labelled: Tensor, gamma: float) -> Tensor:
    return torch.where(labelled, (1 - log_p.exp()).clamp(min=0) ** gamma, 1.0)


class AKGOutput(NamedTuple):
    """``logits [B, C]``, ``features [B, D]`` and the logits of everything else.

    ``eras [B, N]`` of the sigmoid heads of both levels, coarse first; ``shapes`` and
    ``shape_potentials [B, K]``; ``attributes [B, A]``; ``category``, None where the data has none.
    """

    logits: Tensor
    features: Tensor
    eras: Tensor
    shapes: Tensor
    shape_potentials: Tensor
    attributes: Tensor
    category: Tensor | None


class AKGNet(FGVCNet):
    """Four branches on the last map: coarse eras, fine eras, shape, characteristics.

        a_c = sigmoid(Linear(ReLU(e_c + sg(e_f))))      sg = no gradient
        h   = ReLU(e_f + e_c)
        a_f = sigmoid(Linear(h)),  u = Linear(h)        u are the logits
        b   = sigmoid(Linear(ReLU(e_s))),  v = Linear(ReLU(e_s))
        d   = sigmoid(Linear(ReLU(e_a)))

    Shape and characteristics guide the trunk only in training; the test path leaves their
    branches out.

    Deviation from the released code, which has no category: where the data has one, a linear
    layer on the pooled map tells it.
    """

    method = "AKG"
    needs = ("levels", "shapes", "attributes")
    level_heads = ("coarse",)

    def add_heads(self, width: int = 1024, embedding: int = 512) -> None:
        """Adds the branches and heads.

        Args:
            width: hidden channels of a branch.
            embedding: D.

        Raises:
            UserError: not two levels.
        """
        space, channels = self.labels, self.channels[-1]
        if len(space.level_sizes) != 2:
            raise UserError(
                f"{self.method} dates by a hierarchy of two levels, and the data has "
                f"{len(space.level_sizes)}: keep two, or choose hrn or yourfl"
            )
        self.tree = Hierarchy(space.level_sizes, space.parents)
        self.coarse_branch, self.fine_branch, self.shape_branch, self.attribute_branch = (
            Branch(channels, width, embedding) for _ in range(4)
        )
        self.coarse = nn.Linear(embedding, space.level_sizes[0])
        self.fine = nn.Linear(embedding, space.classes)
        self.head = nn.Linear(embedding, space.classes)
        self.shapes = nn.Linear(embedding, space.shapes)
        self.shape_potentials = nn.Linear(embedding, space.shapes)
        self.attributes = nn.Linear(embedding, space.attributes)
        if space.categories:
            pool = nn.Sequential(nn.AdaptiveAvgPool2d(1), nn.Flatten())
            self.category = nn.Sequential(pool, nn.Linear(channels, space.categories))
            self.category_head = "category"

    def forward(self, image: Tensor) -> Output:
        """Maps ``image [B, 3, H, W]`` to ``Output(logits [B, C], features [B, D])``."""
        features, _, _ = self._date(self.maps(image)[-1])
        return Output(self.head(features), features)

    def train_outputs(self, image: Tensor) -> AKGOutput:
        """All heads on ``image [B, 3, H, W]``."""
        last = self.maps(image)[-1]
        features, coarse, category = self._date(last)
        shape = self.shape_branch(last).relu()
        return AKGOutput(
            self.head(features),
            features,
            torch.cat([coarse, self.fine(features)], dim=1),
            self.shapes(shape),
            self.shape_potentials(shape),
            self.attributes(self.attribute_branch(last).relu()),
            category,
        )

    def _date(self, last: Tensor) -> tuple[Tensor, Tensor, Tensor | None]:
        """The features h, the logits of the coarse eras and those of the category."""
        coarse, fine = self.coarse_branch(last), self.fine_branch(last)
        logits = self.coarse((coarse + fine.detach()).relu())
        return (fine + coarse).relu(), logits, self.category(last) if self.category_head else None


class AKG(FGVCModule):
    """Trains :class:`AKGNet`.

        loss = CE(u, class) + L_era + beta FL(v, shape) + lambda L_shape
               + beta FB(d, characteristics) + lambda L_attributes [ + CE of the category ]

    with beta = 0.001 and lambda = 0.1. See :func:`graph_losses` for the L; FL and FB are focal
    losses with exponents 5 and 3.

    Deviations from the released code: images without a characteristic, whose L_attributes is
    infinite there, are excluded; images without a shape (-1) are excluded from both shape
    losses and weigh 1 in L_attributes. Focal probabilities are not clamped to
    [1e-4, 1 - 1e-4], since the loss is computed from the logits.
    """

    backbone: AKGNet

    def losses(self, outputs: AKGOutput, batch: Batch) -> Tensors:
        """Terms ``ce``, ``era``, ``shape_focal``, ``shape``, ``attributes_focal``, ``attributes``.

        And ``category``, where the data has any.
        """
        levels, shape, attributes = batch["levels"], batch["shape"], batch["attributes"]
        graph = graph_losses(
            self.backbone.tree,
            outputs.eras.float().sigmoid(),
            outputs.shape_potentials.float().sigmoid(),
            outputs.attributes.float().sigmoid(),
            levels,
            shape,
            attributes,
        )
        focal_shape = focal_cross_entropy(outputs.shapes, shape, 5.0)
        focal = focal_binary_cross_entropy(outputs.attributes, attributes, 3.0)
        terms = {
            "ce": known_cross_entropy(outputs.logits, levels[:, -1], self.smoothing),
            "era": graph["era"],
            "shape_focal": FOCAL_WEIGHT * focal_shape,
            "shape": GRAPH_WEIGHT * graph["shape"],
            "attributes_focal": FOCAL_WEIGHT * focal,
            "attributes": GRAPH_WEIGHT * graph["attributes"],
        }
        return terms | self.category_loss(outputs.category, batch)
