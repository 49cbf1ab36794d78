"""AKG's losses on the graphs of eras, shapes and characteristics, in closed form."""

from __future__ import annotations

from dataclasses import dataclass

import torch
import torch.nn.functional as F
from torch import Tensor
from torchvision.ops import sigmoid_focal_loss

from ood_lab.common.tensor_file import Tensors
from ood_lab.models.fgvc.label_tree import Hierarchy
from ood_lab.models.fgvc.layers import UNKNOWN


@dataclass(frozen=True)
class GraphLosses:
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
        shape = -(1 - p_era)^shape_gamma log p_shape
        attributes = -(1 - p_shape)^attribute_gamma log p_attr

    Gradients flow through the weights. Each loss is averaged over the images that it is defined
    for: a label is known, a shape is known, there is a characteristic. The weight of an image
    whose era or shape is unknown is 1.

    Args:
        tree: of the eras.
        shape_gamma: exponent of the weight of the shape loss.
        attribute_gamma: exponent of the weight of the characteristics loss.
    """

    tree: Hierarchy
    shape_gamma: float = 2.0
    attribute_gamma: float = 3.0

    def __call__(
        self,
        eras: Tensor,
        shapes: Tensor,
        attributes: Tensor,
        levels: Tensor,
        shape: Tensor,
        positives: Tensor,
    ) -> Tensors:
        """The three losses, scalars, in float32 or better.

        Args:
            eras: a, ``[B, N]``.
            shapes: b, ``[B, K]``.
            attributes: d, ``[B, A]``.
            levels: ``[B, L]`` labels coarse to fine, -1 = unknown.
            shape: ``[B]``, -1 = unknown.
            positives: ``[B, A]``, 0/1.
        """
        log_p, log_z = self.tree.log_marginals(eras)
        node = self.tree.deepest(levels)
        log_era = _gather(log_p, node)
        log_shape = _gather(log_z[:, None] + shapes, shape) - _log_total(log_z, shapes)
        some = positives.sum(1) > 0
        # Images without a positive sum over all of them: finite, and masked below. A sum over
        # nothing would be -inf, whose gradient is NaN even behind a mask.
        counted = (positives > 0) | ~some[:, None]
        log_any = attributes.masked_fill(~counted, -torch.inf).logsumexp(1)
        log_attribute = log_z + log_any - _log_total(log_z, attributes)
        shape_weight = _weight(log_era, node != UNKNOWN, self.shape_gamma)
        attribute_weight = _weight(log_shape, shape != UNKNOWN, self.attribute_gamma)
        return {
            "era": _mean(-log_era, node != UNKNOWN),
            "shape": _mean(-shape_weight * log_shape, shape != UNKNOWN),
            "attributes": _mean(-attribute_weight * log_attribute, some),
        }


def focal_cross_entropy(logits: Tensor, target: Tensor, gamma: float) -> Tensor:
    """``mean -(1 - p)^gamma log p`` with p the softmax at the target.

    Source: Lin et al., "Focal Loss for Dense Object Detection", arXiv 1708.02002.

    Args:
        logits: ``[B, K]``.
        target: ``[B]``, -1 = unknown, left out of the mean.
        gamma: exponent.
    """
    log_p = _gather(logits.float().log_softmax(1), target)
    labelled = target != UNKNOWN
    return _mean(-_weight(log_p, labelled, gamma) * log_p, labelled)


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


def _gather(values: Tensor, index: Tensor) -> Tensor:
    return values.gather(1, index.clamp(min=0)[:, None]).squeeze(1)


def _weight(log_p: Tensor, labelled: Tensor, gamma: float) -> Tensor:
    return torch.where(labelled, (1 - log_p.exp()).clamp(min=0) ** gamma, 1.0)


def _mean(values: Tensor, labelled: Tensor) -> Tensor:
    return (values * labelled).sum() / labelled.sum().clamp(min=1)
