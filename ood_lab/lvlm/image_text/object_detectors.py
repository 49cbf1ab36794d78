"""Object detectors that answer yes/no questions: is a box of it found?

They act as models that read no text: the object is ``meta["category"]`` of the question. All
objects of an image's questions go into one call, and all wordings of a question get the
answer of that call. The reply is "Yes" where some box of the object scores ``threshold`` or more;
``p_yes`` is the best score.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import torch
from PIL import Image
from torch import Tensor

from ood_lab.common.arguments import Settings, Share
from ood_lab.common.compute_device import chosen_device
from ood_lab.common.errors import UserError
from ood_lab.common.files import read_json
from ood_lab.common.grouping import distinct, grouped
from ood_lab.common.hints import missing_path
from ood_lab.data.sources.image_files import load_rgb
from ood_lab.lvlm.chat.base import ChatModel, Reply, Request, Requests
from ood_lab.lvlm.chat.request_images import images_of
from ood_lab.lvlm.image_text.base import (
    ImageBatch,
    Scores,
    in_batches,
    loaded_batches,
    log_odds,
    texts_of,
)
from ood_lab.lvlm.image_text.transformers import load_pretrained
from ood_lab.models.weights import weights_sha256


@torch.inference_mode()
def proposals_of(
    path: str, threshold: float, images: Mapping[int | str, Path], size: int
) -> pd.DataFrame:
    """``image, category, p`` of every box that an object detector of transformers finds.

    DETR and YOLOS give a softmax with a class for "no object", whose share is no part of the
    classes' scores; RT-DETR and others give a sigmoid a class. The model's own post-processing says
    which, and the score of a box is that of its best class.

    Args:
        path: folder of the model; nothing is downloaded.
        threshold: boxes with a lower score are skipped.
        images: files by the id of the image.
        size: images at a time.

    Raises:
        UserError: transformers is missing, or there is no such model.
    """
    kinds = ("AutoImageProcessor", "AutoModelForObjectDetection")
    processor, model = load_pretrained("path", path, *kinds)
    model, names = model.to(chosen_device(None)).eval(), model.config.id2label
    ids, rows = list(images), list[tuple[int | str, str, float]]()
    for start, batch in loaded_batches([*images.values()], size, "object detector"):
        outputs = model(**processor(images=batch, return_tensors="pt").to(model.device))
        boxes_of = processor.post_process_object_detection(outputs, threshold=threshold)
        for image, boxes in zip(ids[start:], boxes_of, strict=False):
            pairs = zip(boxes["labels"].tolist(), boxes["scores"].tolist(), strict=True)
            rows += [(image, str(names[label]), score) for label, score in pairs]
    return pd.DataFrame(rows, columns=["image", "category", "p"])


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


#: Best score of each object in an image.
BestScores = Mapping[str, float]


@dataclass(eq=False)
class ObjectDetector(ChatModel):
    """An open-vocabulary detector of transformers; its configuration says of which kind it is.

    It answers questions (``lvlm=``), and scores labels (``image_text=``).

    - OWL-ViT and OWLv2 (arXiv 2205.06230, 2306.09683): each object is a text of its own.
    - Grounding DINO (arXiv 2303.05499): one text of all objects, ``cat . dog .``. The score of an
      object in a box is the greatest of those of its tokens. The objects of a call are read
      together, so that a score depends a little on the other questions.

    Args:
        path: folder of the model; nothing is downloaded.
        threshold: least score of a box that counts.
        template: text with ``{}`` for the object.
        name: for tables and columns; empty = the folder's.

    Raises:
        UserError: transformers is missing, there is no such model, or it has fixed classes.
    """

    path: str
    threshold: Share = 0.25
    template: str = "{}"
    name: str = ""

    def __post_init__(self) -> None:
        self.name = self.name or Path(self.path).name

    @cached_property
    def _loaded(self) -> tuple[Any, Any]:
        kind = self._backend
        if kind not in ("owl", "grounding_dino"):
            raise UserError(
                f"path={self.path} is a {kind}, which has fixed classes: give an OWL-ViT, OWLv2 or "
                "Grounding DINO"
            )
        kinds = ("AutoProcessor", "AutoModelForZeroShotObjectDetection")
        inputs, model = load_pretrained("path", self.path, *kinds)
        return inputs, model.to(chosen_device(None)).eval()

    @cached_property
    def _backend(self) -> str:
        (config,) = load_pretrained("path", self.path, "AutoConfig")
        kind = str(config.model_type)
        if kind.startswith("owl"):
            return "owl"
        return "grounding_dino" if kind.endswith("grounding-dino") else kind

    @cached_property
    def made_with(self) -> Settings:
        """Weights, threshold, and how objects are put to the model."""
        return {
            "backend": self._backend,
            "model": Path(self.path).name,
            "weights_sha256": weights_sha256(self._loaded[1]),
            "threshold": self.threshold,
            **({} if self.template == "{}" else {"template": self.template}),
        }

    def check(self) -> None:
        """Raises a UserError where the model cannot be loaded."""
        _ = self._loaded

    def ask(self, requests: Requests) -> Iterator[Reply]:
        """One reply for each request, image by image.

        Raises:
            UserError: a question has no image or names no object; an image cannot be read.
        """
        placed = [(*_object_of(request), request) for request in requests]
        for path, pairs in grouped((path, (name, item)) for path, name, item in placed).items():
            objects = distinct(name for name, _ in pairs)
            results = self.best_scores(load_rgb(path), objects)
            for name, request in pairs:
                yield _reply(request, results[name], self.threshold)

    @torch.inference_mode()
    def best_scores(self, image: Image.Image, objects: Sequence[str]) -> BestScores:
        """The score of the best box of each object."""
        processor, model = self._loaded
        texts = texts_of(objects, self.template)
        if self._backend == "grounding_dino":
            return dict(zip(objects, self._grounded(image, texts), strict=True))
        inputs = processor(text=[texts], images=image, return_tensors="pt").to(model.device)
        scores = model(**inputs).logits[0].sigmoid().amax(dim=0)
        return dict(zip(objects, scores.tolist(), strict=True))

    def _grounded(self, image: Image.Image, texts: Sequence[str]) -> list[float]:
        processor, model = self._loaded
        text = " . ".join(texts).lower() + " ."
        inputs = processor(text=text, images=image, return_tensors="pt").to(model.device)
        scores = model(**inputs).logits[0].sigmoid()  # [boxes, tokens]
        offsets = processor.tokenizer(text, return_offsets_mapping=True, truncation=True)
        spans = offsets["offset_mapping"][: scores.shape[1]]
        results, start = [], 0
        for item in texts:
            end = start + len(item)
            tokens = [k for k, (a, b) in enumerate(spans) if start <= a < b <= end]
            if not tokens:
                raise UserError(
                    f"{self.path} reads no more than {len(spans)} tokens: ask about fewer objects "
                    "of an image"
                )
            results.append(float(scores[:, tokens].max()))
            start = end + len(" . ")
        return results

    def confidences(self, images: Sequence[Path], labels: Sequence[str]) -> Scores:
        """Score of the best box of every label, ``[N, n]``, 0 where there is none."""

        def score(batch: ImageBatch) -> Tensor:
            best = (self.best_scores(image, labels) for image in batch)
            return torch.tensor([[scores[label] for label in labels] for scores in best])

        return in_batches(images, 1, len(labels), self.name, score)

    def scores(self, images: Sequence[Path], labels: Sequence[str]) -> Scores:
        """See :class:`~ood_lab.lvlm.image_text.base.ImageTextModel`.

        ``s(x, y) = ln(c / (1 - c))`` of the confidence c of the best box; a label that is not in
        the image has the lowest.
        """
        return log_odds(self.confidences(images, labels)).astype(np.float32)


def _object_of(request: Request) -> tuple[str, str]:
    """Path of the image and name of the object."""
    images, name = images_of(request.messages), request.question.meta.get("category")
    if images and name:
        return images[0], str(name)
    raise UserError(
        "a detector answers questions about one object in an image only; the question "
        f"'{request.question.text}' names none; choose an "
        "lvlm that reads text, or skip such questions (OODBench: task.bap=false)"
    )


def _reply(request: Request, score: float, threshold: float) -> Reply:
    seen = score >= threshold
    # OODBench also asks whether an image does not contain something.
    says_yes = seen != (request.question.meta.get("form", "affirmative") == "negative")
    p_yes = score if says_yes == seen else 1 - score
    return Reply(request.key, "Yes" if says_yes else "No", p_yes=p_yes, finish_reason="stop")
