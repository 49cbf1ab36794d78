"""The foreground of an image, by a segmentation model."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import torch
from PIL import Image

from ood_lab.common.errors import UserError
from ood_lab.synthesis.model_loading import load_transformers


class ForegroundSegmenter:
    """All segments of an image but the background's.

    Args:
        folder: of a semantic, instance or panoptic segmentation model of transformers.
        background: labels that are not foreground.
        device: where to run.
    """

    def __init__(self, folder: str, background: Sequence[str], device: torch.device) -> None:
        self.model = load_transformers("image-segmentation", "task.segmenter", folder, device)
        labels = self.model.model.config.id2label.values()
        if lacking := sorted(set(background) - set(labels)):
            raise UserError(
                f"task.background: the segmenter has no label '{lacking[0]}'; it has "
                f"{', '.join(sorted(labels)[:20])}"
            )
        self.background = set(background)

    def __call__(self, image: Image.Image) -> Image.Image:
        """White = foreground; black everywhere if there is only background."""
        mask = np.zeros((image.height, image.width), dtype=bool)
        for segment in self.model(image):
            if segment["label"] not in self.background:
                mask |= np.asarray(segment["mask"].convert("L")) > 127
        return Image.fromarray(255 * mask.astype(np.uint8))
