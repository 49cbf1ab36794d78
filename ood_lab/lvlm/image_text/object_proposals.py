"""What object detectors of fixed classes find in images."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pandas as pd
import torch
from PIL import Image

from ood_lab.common.arguments import BatchSize, Share
from ood_lab.common.compute_device import chosen_device
from ood_lab.common.errors import UserError
from ood_lab.common.files import read_json
from ood_lab.common.hints import missing_path
from ood_lab.common.progress import Pace
from ood_lab.lvlm.image_text.base import open_images
from ood_lab.lvlm.image_text.transformers import load_pretrained


@torch.inference_mode()
def detected(
    processor: Any, model: Any, images: Sequence[Image.Image], threshold: float
) -> Iterator[list[tuple[str, float]]]:
    """Class and score of every box of each image, by the library's own post-processing.

    Args:
        processor: of the model.
        model: an object detector of transformers.
        images: one batch.
        threshold: boxes with a lower score are skipped.
    """
    outputs = model(**processor(images=images, return_tensors="pt").to(model.device))
    for found in processor.post_process_object_detection(outputs, threshold=threshold):
        pairs = zip(found["labels"].tolist(), found["scores"].tolist(), strict=True)
        yield [(str(model.config.id2label[label]), score) for label, score in pairs]


def recorded_proposals(file: Path, annotations: Path, threshold: float) -> pd.DataFrame:
    """``image, category, p`` of detections in COCO's format of results.

    That is a list of ``{image_id, category_id, bbox, score}``, as ``yolo val save_json=True``,
    detectron2 and mmdetection write it.

    Args:
        file: of the detections.
        annotations: the file that names the categories and images by the same numbers.
        threshold: detections with a lower score are skipped.

    Raises:
        UserError: no such file, not that format, or a number that the annotations do not have.
    """
    if not file.is_file():
        raise missing_path(file)
    named = read_json(annotations)
    try:
        table = pd.read_json(file)[["image_id", "category_id", "score"]]
    except (ValueError, KeyError) as error:
        raise UserError(
            f"'{file}' is no list of COCO results (image_id, category_id, score): {error}"
        ) from error
    for column, entries in (("image_id", named["images"]), ("category_id", named["categories"])):
        unknown = set(table[column]) - {entry["id"] for entry in entries}
        if unknown:
            raise UserError(f"'{file}': {column} {unknown.pop()} is not in '{annotations}'")
    names = {entry["id"]: entry["name"] for entry in named["categories"]}
    table = table.assign(category_id=table["category_id"].map(names))
    table.columns = pd.Index(["image", "category", "p"])
    return table[table["p"] >= threshold].reset_index(drop=True)


@dataclass(eq=False)
class ObjectDetector:
    """Any object detector of transformers.

    DETR and YOLOS give a softmax with a class for "no object", whose share is no part of the
    classes' ``p``; RT-DETR and others give a sigmoid a class. The library's own post-processing
    says which, and ``p`` is the score of the best class of each proposal.

    Args:
        path: folder of the model; nothing is downloaded.
        threshold: proposals below are skipped.
        batch_size: images at a time.
        device: None = the first GPU, else the CPU.

    Raises:
        UserError: transformers is missing, or there is no such model.
    """

    path: str
    threshold: Share = 0.05
    batch_size: BatchSize = 8
    device: str | None = None

    def __post_init__(self) -> None:
        kinds = ("AutoImageProcessor", "AutoModelForObjectDetection")
        self.processor, self.model = load_pretrained("task.path", self.path, *kinds)

    def proposals(self, images: Sequence[Path], ids: Sequence[int | str]) -> pd.DataFrame:
        """``image, category, p`` of every proposal above the threshold."""
        device = chosen_device(self.device)
        model = self.model.to(device).eval()
        rows: list[tuple[int | str, str, float]] = []
        pace = Pace(len(images), interval=10.0)
        for start in range(0, len(images), self.batch_size):
            batch = open_images(images[start : start + self.batch_size])
            found = detected(self.processor, model, batch, self.threshold)
            for image, boxes in zip(ids[start:], found, strict=False):
                rows += [(image, *box) for box in boxes]
            if pace.due:
                pace.line(f"object detector: {start + len(batch)} of {len(images)} images")
        return pd.DataFrame(rows, columns=["image", "category", "p"])
