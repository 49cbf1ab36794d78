"""How much of an image its labelled object fills, by a zero-shot detector."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

import torch
from PIL import Image

from ood_lab.common.errors import UserError
from ood_lab.synthesis.model_loading import load_transformers


class Box(NamedTuple):
    """The main box of a label in an image.

    Attributes:
        score: of the detector, in [0, 1]; 0 where it finds nothing.
        share: area of the box / area of the image, in [0, 1].
    """

    score: float
    share: float


class MainObject:
    """The box with the highest score for an image's own label.

    Args:
        folder: of a zero-shot detector of transformers (OWL-ViT, OWLv2, Grounding DINO).
        query: text with ``{label}``.
        device: where to run.

    Raises:
        UserError: the query has no place for the label.
    """

    def __init__(self, folder: str, query: str, device: torch.device) -> None:
        if query.count("{label}") != 1:
            raise UserError(f"task.query='{query}': write {{label}} once, where the label goes")
        self.query = query
        self.model = load_transformers(
            "zero-shot-object-detection", "task.detector", folder, device
        )

    def __call__(self, images: Sequence[Image.Image], labels: Sequence[str]) -> list[Box]:
        """The main box of each image."""
        inputs = [
            {"image": image, "candidate_labels": [self.query.replace("{label}", label)]}
            for image, label in zip(images, labels, strict=True)
        ]
        detections = self.model(inputs, threshold=0.0, top_k=1)
        return [_box(boxes, image) for boxes, image in zip(detections, images, strict=True)]


def _box(boxes: list[dict], image: Image.Image) -> Box:
    if not boxes:
        return Box(0.0, 0.0)
    box, (width, height) = boxes[0]["box"], image.size
    # Boxes may reach beyond the image.
    left, right = (min(max(box[key], 0), width) for key in ("xmin", "xmax"))
    top, bottom = (min(max(box[key], 0), height) for key in ("ymin", "ymax"))
    area = max(right - left, 0) * max(bottom - top, 0)
    return Box(float(boxes[0]["score"]), area / (width * height))
