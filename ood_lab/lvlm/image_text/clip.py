"""CLIP models of open_clip, the shipped ones included."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any

import torch
from PIL import Image
from torch import Tensor

from ood_lab.clip import ClipModel
from ood_lab.common.arguments import BatchSize
from ood_lab.common.compute_device import chosen_device
from ood_lab.common.errors import UserError
from ood_lab.lvlm.image_text.base import ImageTextModel, Scores, in_batches, texts_of


@dataclass(eq=False)
class ClipScores:
    """``s(x, y) = e^t cos(f_x, g_y)`` with the logit scale ``e^t`` of a CLIP.

    Args:
        clip: the model.
        template: text with ``{}`` for the label.
        scale: factor of the cosine; None = the model's own (100 for OpenAI's weights).
        batch_size: images at a time.
        device: None = the first GPU, else the CPU.
        name: for tables and columns; empty = the CLIP's.
    """

    clip: ClipModel
    template: str = "{}"
    scale: float | None = None
    batch_size: BatchSize = 64
    device: str | None = None
    name: str = ""

    def __post_init__(self) -> None:
        self.name = self.name or self.clip.name

    @property
    def _factor(self) -> float:
        return self.clip.logit_scale if self.scale is None else self.scale

    @cached_property
    def made_with(self) -> Mapping[str, Any]:
        """Weights, template and scale."""
        return {**self.clip.identity, "template": self.template, "scale": round(self._factor, 6)}

    def scores(self, images: Sequence[Path], labels: Sequence[str]) -> Scores:
        """See :class:`~ood_lab.lvlm.image_text.base.ImageTextModel`."""
        device = chosen_device(self.device)
        clip = self.clip.to(device)
        texts = self._factor * clip.encode_text(texts_of(labels, self.template))

        def score(batch: list[Image.Image]) -> Tensor:
            pixels = torch.stack([clip.preprocess(image) for image in batch])
            return clip.encode_image(pixels.to(device)) @ texts.T

        return in_batches(images, self.batch_size, len(labels), self.name, score)


def clips_of(first: ClipModel, models: Mapping[str, ImageTextModel]) -> dict[str, ClipModel]:
    """The CLIPs in whose spaces distances of images are measured, by name.

    Args:
        first: the one of ``clip=...``.
        models: of ``image_text=[...]``, by their key.

    Raises:
        UserError: one of these is no CLIP.
    """
    found = {first.name: first}
    for name, model in models.items():
        if not isinstance(model, ClipScores):
            raise UserError(
                f"image_text={name} is not a CLIP of open_clip, in whose space distances of "
                "images could be measured: remove it"
            )
        found[name] = model.clip
    return found
