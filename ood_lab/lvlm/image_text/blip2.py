"""BLIP-2's image-text retrieval heads."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from functools import cached_property
from pathlib import Path
from typing import Any, Literal

import torch
from PIL import Image
from torch import Tensor

from ood_lab.common.arguments import BatchSize, Positive
from ood_lab.common.compute_device import chosen_device
from ood_lab.lvlm.image_text.base import Scores, in_batches, texts_of
from ood_lab.lvlm.image_text.transformers import TEXT_AND_IMAGE, load_pretrained
from ood_lab.models.weights import weights_sha256


class Blip2Scores:
    """``s(x, y)`` of BLIP-2 (arXiv 2301.12597), by one of its two heads.

    ``itm``: logit of "matched" minus logit of "unmatched" of the image-text matching head.
    ``itc``: cosine, the largest over the query tokens, divided by ``temperature``. transformers
    returns the bare cosine: without a temperature, a softmax over 80 labels gives each about 1/80,
    less than OODBench's T, and every pair would be flagged.

    Args:
        path: folder, or name of a model that is in the cache; nothing is downloaded.
        head: ``itm`` or ``itc``.
        temperature: of ``itc``.
        template: text with ``{}`` for the label.
        batch_size: image-text pairs (``itm``) or images (``itc``) at a time.
        device: None = the first GPU, else the CPU.
        name: for tables and columns.

    Raises:
        UserError: transformers is missing, or there is no such model.
    """

    def __init__(
        self,
        path: str,
        head: Literal["itm", "itc"] = "itm",
        temperature: Positive = 0.01,
        template: str = "{}",
        batch_size: BatchSize = 64,
        device: str | None = None,
        name: str = "blip2",
    ) -> None:
        self.tokenizer, self.image_processor, self.model = load_pretrained(
            "image_text path", path, *TEXT_AND_IMAGE, "Blip2ForImageTextRetrieval"
        )
        self.name = name
        self.path = path
        self.head = head
        self.temperature = temperature
        self.template = template
        self.batch_size = batch_size
        self.device = chosen_device(device)

    @cached_property
    def made_with(self) -> Mapping[str, Any]:
        """Weights, head, template and scale."""
        return {
            "name": self.name,
            "weights_sha256": weights_sha256(self.model),
            "head": self.head,
            "template": self.template,
            "scale": 1.0 if self.head == "itm" else 1.0 / self.temperature,
        }

    def scores(self, images: Sequence[Path], labels: Sequence[str]) -> Scores:
        """See :class:`~ood_lab.lvlm.image_text.base.ImageTextModel`."""
        self.model.to(self.device).eval()
        tokens = self.tokenizer(
            texts_of(labels, self.template), padding=True, truncation=True, return_tensors="pt"
        ).to(self.device)
        matched = self.head == "itm"
        size = max(1, self.batch_size // len(labels)) if matched else self.batch_size
        score = self._matching if matched else self._cosines

        def of_batch(batch: list[Image.Image]) -> Tensor:
            pixels = self.image_processor(batch, return_tensors="pt")["pixel_values"]
            return score(tokens, pixels.to(self.device))

        return in_batches(images, size, len(labels), self.name, of_batch)

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
