"""BLIP-2's image-text retrieval heads."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, ClassVar, Literal

import torch
from torch import Tensor

from ood_lab.common.arguments import BatchSize, Positive
from ood_lab.lvlm.image_text.transformers import PretrainedScores


@dataclass(eq=False)
class Blip2Scores(PretrainedScores):
    """``s(x, y)`` of BLIP-2 (arXiv 2301.12597), by one of its two heads.

    ``itm``: logit of "matched" minus logit of "unmatched" of the image-text matching head.
    ``itc``: cosine, the largest over the query tokens, divided by ``temperature``. transformers
    returns the bare cosine: without a temperature, a softmax over 80 labels gives each about 1/80,
    less than OODBench's T, and every pair would be flagged.

    Args:
        path, template, device, name: see
            :class:`~ood_lab.lvlm.image_text.transformers.PretrainedScores`.
        batch_size: image-text pairs (``itm``) or images (``itc``) at a time.
        head: ``itm`` or ``itc``.
        temperature: of ``itc``.

    Raises:
        UserError: transformers is missing, or there is no such model.
    """

    batch_size: BatchSize = 64
    name: str = "blip2"
    head: Literal["itm", "itc"] = "itm"
    temperature: Positive = 0.01
    auto: ClassVar[str] = "Blip2ForImageTextRetrieval"

    @property
    def _settings(self) -> Mapping[str, Any]:
        scale = 1.0 if self.head == "itm" else 1.0 / self.temperature
        return {"head": self.head, "template": self.template, "scale": scale}

    def _images_at_once(self, labels: int) -> int:
        return max(1, self.batch_size // labels) if self.head == "itm" else self.batch_size

    def _scores(self, tokens: Any, pixels: Tensor) -> Tensor:
        return (self._matching if self.head == "itm" else self._cosines)(tokens, pixels)

    def _matching(self, tokens: Any, pixels: Tensor) -> Tensor:
        """The matching head sees one text and one image at a time: all texts with each image."""
        rows = []
        for image in pixels:
            many = image.expand(len(tokens["input_ids"]), *image.shape)
            logits = self.model(
                pixel_values=many, **tokens, use_image_text_matching_head=True
            ).logits_per_image
            rows.append(logits[:, 1] - logits[:, 0])
        return torch.stack(rows)

    def _cosines(self, tokens: Any, pixels: Tensor) -> Tensor:
        found = self.model(pixel_values=pixels, **tokens, use_image_text_matching_head=False)
        return found.logits_per_image / self.temperature
