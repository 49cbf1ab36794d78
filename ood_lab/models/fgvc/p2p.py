"""P2P-Net: classify image and parts at three stages, and guess the image from its aligned parts.

Yang et al., Fine-Grained Object Classification via Self-Supervised Pose Alignment, CVPR 2022,
arXiv 2203.15987.
"""

from __future__ import annotations

import itertools
from collections.abc import Sequence
from typing import NamedTuple

import torch
import torch.distributed as dist
import torch.nn.functional as F
from torch import Tensor, nn

from ood_lab.common.tensor_arithmetic import full_precision
from ood_lab.common.tensor_file import Batch, Tensors
from ood_lab.models.fgvc.base import FGVCModule, FGVCNet, fused_head
from ood_lab.models.fgvc.discriminative_parts import PartProposals, rank_loss
from ood_lab.models.fgvc.layers import BasicConv, elu_mlp
from ood_lab.models.output import Output


class P2POutput(NamedTuple):
    """What the losses read; ``k`` runs over the three stages and their concatenation.

    Attributes:
        logits: sum of the image's, ``[B, C]``.
        image: ``y_k [B, C]``.
        parts: ``y^p_k [B, M, C]``.
        scores: of the parts, ``[B, M]``.
        vectors: of the image at each stage, ``r_k [B, D]``.
        guesses: of these vectors from the aligned parts, ``g_k [B, D]``.
    """

    logits: Tensor
    image: list[Tensor]
    parts: list[Tensor]
    scores: Tensor
    vectors: list[Tensor]
    guesses: list[Tensor]


class P2PNet(FGVCNet):
    """Three stages of the trunk, each with its own classifier, and one for all together.

    ``r_k = GMP(conv(C_k))``, ``k = 1..3`` at strides 8, 16, 32; ``y_k = cls_k(r_k)`` and ``y_4 =
    cls_4([r_1, r_2, r_3])``. At test the logits are ``y_1 + y_2 + y_3 + y_4`` of only the image,
    linear in the four hidden layers of the classifiers, which are the features. In training M
    parts take the same way, and a perceptron per stage guesses ``r_k`` from the parts' vectors in
    the order that :class:`PoseMemory` finds.

    Differs from the released code in that all permutations of the parts are really tried (there,
    each try permutes the outcome of the one before), in that the centres of the parts are saved
    and shared by all processes, and as :class:`NTSNet` where parts are few. The last epoch has the
    smallest learning rate of the cosine, not the largest.

    Settings: ``parts`` M, ``crop`` side of a crop in pixels, ``anchor_scale`` of the parts' size
    (1 for 448 pixels), ``hidden`` width of the stages' first convolution and of the features,
    ``dropout`` in the classifiers of the single stages.
    """

    method = "P2P-Net"
    strides = (8, 16, 32)

    def add_heads(
        self,
        parts: int = 4,
        crop: int = 224,
        anchor_scale: float = 1.0,
        hidden: int = 512,
        dropout: float = 0.5,
    ) -> None:
        """Adds the proposals, and per stage: convolutions, classifier, perceptron."""
        width = self.channels[-1] // 2
        stages = len(self.strides)
        self.proposals = PartProposals(self.channels[-1], parts, crop, anchor_scale)
        self.convs = nn.ModuleList(
            nn.Sequential(BasicConv(channels, hidden, 1), BasicConv(hidden, width, 3))
            for channels in self.channels
        )
        self.necks = nn.ModuleList(
            nn.Sequential(elu_mlp(width, hidden), nn.Dropout(dropout)) for _ in range(stages)
        )
        self.necks.append(elu_mlp(width * stages, hidden))
        self.classifiers = nn.ModuleList(
            nn.Linear(hidden, self.labels.classes) for _ in range(stages + 1)
        )
        self.memory = PoseMemory(parts, width)
        self.guess = nn.ModuleList(
            nn.Sequential(nn.Linear(width * parts, width), nn.ELU(), nn.Linear(width, width))
            for _ in range(stages)
        )

    @property
    def head(self) -> nn.Linear:  # type: ignore[override]  # four layers in one
        """The four classifiers on the four hidden layers, ``[C, 4 * hidden]``."""
        return fused_head(list(self.classifiers))  # type: ignore[arg-type]

    def forward(self, image: Tensor) -> Output:
        """Maps ``image [B, 3, H, W]`` to the summed logits and the four hidden layers."""
        logits, hidden = self._classify(self._stages(self.maps(image)))
        return Output(torch.stack(logits).sum(0), torch.cat(hidden, dim=1))

    def train_outputs(self, image: Tensor) -> P2POutput:
        """Image and parts; in training mode the centres of the parts move."""
        maps = self.maps(image)
        vectors = self._stages(maps)
        logits, _ = self._classify(vectors)
        crops, scores = self.proposals(image, maps[-1])
        part_vectors = self._stages(self.maps(crops))
        part_logits, _ = self._classify(part_vectors)
        by_image = [v.unflatten(0, scores.shape) for v in part_vectors]
        order = self.memory(by_image[-1])[:, :, None]
        guesses = [
            guess(torch.take_along_dim(parts, order, dim=1).flatten(1))
            for guess, parts in zip(self.guess, by_image, strict=True)
        ]
        return P2POutput(
            torch.stack(logits).sum(0),
            logits,
            [y.unflatten(0, scores.shape) for y in part_logits],
            scores,
            vectors,
            guesses,
        )

    def _stages(self, maps: Sequence[Tensor]) -> list[Tensor]:
        return [conv(m).amax((2, 3)) for conv, m in zip(self.convs, maps, strict=True)]

    def _classify(self, vectors: Sequence[Tensor]) -> tuple[list[Tensor], list[Tensor]]:
        inputs = [*vectors, torch.cat(list(vectors), dim=1)]
        hidden = [neck(x) for neck, x in zip(self.necks, inputs, strict=True)]
        return [linear(h) for linear, h in zip(self.classifiers, hidden, strict=True)], hidden


#: ``q_k``, share of the target on the true class, for the stages and all together; and w.
PEAKS, GUESS_WEIGHT = (0.7, 0.8, 0.9, 1.0), 0.1


class P2P(FGVCModule):
    """Smoothed cross-entropies of image and parts, ranking of parts, and the guessed vectors.

    ``sum_k SCE(y_k; q_k) + sum_k SCE(y^p_k; q_k) + L_rank(scores, CE(y^p_4)) + w sum_k mean_b
    CE(softmax(g_k), softmax(r_k))``; the targets ``r_k`` of the last term take part in the
    gradient.
    """

    backbone: P2PNet

    def losses(self, outputs: P2POutput, batch: Batch) -> Tensors:
        """The four terms, each summed over the stages."""
        label = batch["label"]
        per_part = label.repeat_interleave(outputs.scores.shape[1])
        parts = [y.flatten(0, 1) for y in outputs.parts]
        hard = F.cross_entropy(parts[-1].detach().float(), per_part, reduction="none")
        guesses = [
            F.cross_entropy(g.float(), r.float().softmax(1))
            for g, r in zip(outputs.guesses, outputs.vectors, strict=True)
        ]
        return {
            "image": self._smoothed(outputs.image, label),
            "parts": self._smoothed(parts, per_part),
            "rank": rank_loss(outputs.scores, hard.view_as(outputs.scores)),
            "guess": GUESS_WEIGHT * torch.stack(guesses).sum(),
        }

    def _smoothed(self, logits: Sequence[Tensor], label: Tensor) -> Tensor:
        terms = [peaked_cross_entropy(y, label, q) for y, q in zip(logits, PEAKS, strict=True)]
        return torch.stack(terms).sum()


def peaked_cross_entropy(logits: Tensor, label: Tensor, peak: float) -> Tensor:
    """Mean cross-entropy against ``peak`` on the true class, the rest shared by all others.

    Args:
        logits: ``[B, C]``.
        label: ``[B]``.
        peak: in [1 / C, 1].
    """
    classes = logits.shape[1]
    # PyTorch's smoothing gives the true class a share of what is spread, too.
    smoothing = (1 - peak) * classes / (classes - 1)
    return F.cross_entropy(logits.float(), label, label_smoothing=smoothing)


_MOMENTUM = 0.9


class PoseMemory(nn.Module):
    """Running centres of M parts, against which the parts of an image are ordered.

    The centres and their count are buffers: they are saved, and the same in all processes.

    Args:
        parts: M; all M! orders are tried.
        width: D.
    """

    centres: Tensor
    count: Tensor

    def __init__(self, parts: int, width: int) -> None:
        super().__init__()
        self.register_buffer("centres", torch.zeros(parts, width))
        self.register_buffer("count", torch.zeros((), dtype=torch.long))

    @torch.no_grad()
    def forward(self, parts: Tensor) -> Tensor:
        """The order of the parts of every image; in training the centres then move.

        ``Q_i <- (0.9 n Q_i + B mean_b P_{b, order_b(i)}) / (0.9 n + B)``, ``n <- n + B``, where B
        counts the images of all processes.

        Args:
            parts: ``P [B, M, D]``.

        Returns:
            ``[B, M]``: the part that takes each place; ``0, 1, ..., M - 1`` before any training.
        """
        # Half precision would mix up parts that are alike.
        with full_precision(parts):
            parts = parts.float()
            order = best_orders(self.centres, parts)
            if self.training:
                self._update(torch.take_along_dim(parts, order[:, :, None], dim=1))
        return order

    def _update(self, ordered: Tensor) -> None:
        total, images = ordered.sum(0), torch.full_like(self.count, len(ordered))
        if dist.is_available() and dist.is_initialized():
            dist.all_reduce(total)
            dist.all_reduce(images)
        kept = _MOMENTUM * self.count
        self.centres.copy_((kept * self.centres + total) / (kept + images))
        self.count += images


def best_orders(centres: Tensor, parts: Tensor) -> Tensor:
    """The order of parts whose similarities agree best with those of the centres.

    ``argmax_w sum_ij A_ij K_{w(i) w(j)}`` over all permutations ``w``, with ``A = Q Q^T / max`` and
    ``K = P P^T / max``; the first in lexicographic order where several are best.

    Args:
        centres: ``Q [M, D]``; all zero gives the order unchanged.
        parts: ``P [B, M, D]``.

    Returns:
        ``[B, M] int64``.
    """
    m = len(centres)
    orders = torch.tensor(list(itertools.permutations(range(m))), device=parts.device)
    similar = _similarities(parts)[:, orders[:, :, None], orders[:, None, :]]  # [B, M!, M, M]
    agreement = (similar * _similarities(centres)).sum((2, 3))
    return orders[agreement.argmax(dim=1)]


def _similarities(vectors: Tensor) -> Tensor:
    products = vectors @ vectors.mT
    largest = products.amax((-2, -1), keepdim=True)
    return products / largest.clamp(min=torch.finfo(products.dtype).tiny)
