"""NTS-Net: navigate to parts, judge them, classify with the best.

Yang et al., Learning to Navigate for Fine-grained Classification, ECCV 2018, arXiv 1809.00287.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import NamedTuple

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from ood_lab.common.tensor_file import Batch, Tensors
from ood_lab.models.fgvc.base import FGVCModule, FGVCNet
from ood_lab.models.fgvc.discriminative_parts import PartProposals, rank_loss
from ood_lab.models.forward_hooks import hooked, watched
from ood_lab.models.output import Output


class NTSOutput(NamedTuple):
    """Logits of image and parts ``[B, C]``, image only ``[B, C]``, parts ``[B, M, C]``.

    ``scores [B, M]`` are those of the parts.
    """

    logits: Tensor
    raw: Tensor
    parts: Tensor
    scores: Tensor


class NTSNet(FGVCNet):
    """The image and M crops of it through one trunk.

    ``f = drop(GAP(C5))`` of the image, ``p_m`` of the crops; the logits are linear in
    ``[p_1, ..., p_K, f]``, the features. Two more linear layers classify ``f`` and every ``p_m``
    in training.

    Differs from the released code in that dropout is off at test, where the code leaves it on,
    and that images with fewer than M parts that do not overlap take the best overlapping ones,
    where the code stops.

    Settings: ``parts`` M, ``best`` K, ``crop`` side of a crop in pixels, ``anchor_scale`` of the
    parts' size (1 for 448 pixels), ``dropout``.
    """

    method = "NTS-Net"

    def add_heads(
        self,
        parts: int = 6,
        best: int = 4,
        crop: int = 224,
        anchor_scale: float = 1.0,
        dropout: float = 0.5,
    ) -> None:
        """Adds the proposals and three classifiers."""
        width, classes = self.channels[-1], self.labels.classes
        self.best = best
        self.proposals = PartProposals(width, parts, crop, anchor_scale)
        self.dropout = nn.Dropout(dropout)
        self.raw = nn.Linear(width, classes)
        self.part = nn.Linear(width, classes)
        self.head = nn.Linear(width * (best + 1), classes)

    def forward(self, image: Tensor) -> Output:
        """Maps ``image [B, 3, H, W]`` to logits and ``[p_1, ..., p_K, f]``."""
        image_vector, parts, _ = self._vectors(image, self.best)
        return self._classify(image_vector, parts)

    def train_outputs(self, image: Tensor) -> NTSOutput:
        """All M parts, and the logits of each layer."""
        image_vector, parts, scores = self._vectors(image, self.proposals.count)
        logits = self._classify(image_vector, parts).logits
        return NTSOutput(logits, self.raw(image_vector), self.part(parts), scores)

    @contextmanager
    def capture(self, layers: Sequence[str]) -> Iterator[Tensors]:
        """As in :class:`Backbone`, of the pass of the whole image, not of its crops."""
        maps: Tensors = {}
        begin = self.register_forward_pre_hook(lambda module, inputs: maps.clear())
        with hooked([begin]), watched(self, layers, after=maps.setdefault):
            yield maps

    def _vectors(self, image: Tensor, count: int) -> tuple[Tensor, Tensor, Tensor]:
        """``f [B, D]``, ``p [B, count, D]`` and the scores of the parts."""
        top = self.maps(image)[0]
        crops, scores = self.proposals(image, top, count)
        parts = self._pool(self.maps(crops)[0])
        return self._pool(top), parts.view(len(image), count, -1), scores

    def _pool(self, top: Tensor) -> Tensor:
        return self.dropout(top.mean((2, 3)))

    def _classify(self, image_vector: Tensor, parts: Tensor) -> Output:
        features = torch.cat([parts[:, : self.best].flatten(1), image_vector], dim=1)
        return Output(self.head(features), features)


class NTS(FGVCModule):
    """``CE(raw) + CE(concat) + mean_bm CE(part_bm) + L_rank(scores, CE(part))``, weights 1."""

    def losses(self, outputs: NTSOutput, batch: Batch) -> Tensors:
        """The four terms; ``concat`` is that of the tested logits."""
        label, smoothing = batch["label"], self.smoothing
        per_part = label.repeat_interleave(outputs.parts.shape[1])
        logits = outputs.parts.float().flatten(0, 1)
        hard = F.cross_entropy(logits.detach(), per_part, reduction="none")
        return {
            "raw": F.cross_entropy(outputs.raw.float(), label, label_smoothing=smoothing),
            "concat": F.cross_entropy(outputs.logits.float(), label, label_smoothing=smoothing),
            "part": F.cross_entropy(logits, per_part, label_smoothing=smoothing),
            "rank": rank_loss(outputs.scores, hard.view_as(outputs.scores)),
        }
