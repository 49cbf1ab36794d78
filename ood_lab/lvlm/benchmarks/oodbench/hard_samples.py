"""Hard samples: what a trained object detector is least sure of (algorithm 1 of OODBench).

``h = (1 - p)^gamma (-ln p)`` with ``p`` the probability of the predicted class of a proposal and
``gamma = 2``: it falls as p rises. Of each image and predicted class the k hardest proposals are
kept, of each class the hardest q percent of those; proposals of one class in one image are then one
pair.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated

import numpy as np
import pandas as pd
import torch
from annotated_types import Interval
from numpy.typing import ArrayLike

from ood_lab.common.arguments import BatchSize, Count, Share
from ood_lab.common.compute_device import chosen_device
from ood_lab.common.errors import UserError
from ood_lab.common.progress import Pace
from ood_lab.lvlm.benchmarks.oodbench.division import Labels
from ood_lab.lvlm.image_text.base import open_images
from ood_lab.lvlm.image_text.transformers import load_pretrained
from ood_lab.schema.arrays import Floats

#: ``split`` of the questions about them.
HARD = "hard"


def hardness(p: ArrayLike, gamma: float = 2.0) -> Floats:
    """``(1 - p)^gamma (-ln p)``: .1733 at .5 and .00105 at .9."""
    chance = np.clip(np.asarray(p, np.float64), np.finfo(float).tiny, 1.0)
    return (1.0 - chance) ** gamma * -np.log(chance)


@dataclass(frozen=True, kw_only=True)
class HardSamples:
    """Which proposals are hard samples; the paper gives neither k nor q.

    Attributes:
        gamma: exponent.
        per_image: k, kept of each image and predicted class.
        share: q, kept of each class, at least one.
    """

    gamma: Annotated[float, Interval(ge=0, le=10)] = 2.0
    per_image: Count = 1
    share: Share = 0.1

    def mine(self, proposals: pd.DataFrame, labels: Labels) -> pd.DataFrame:
        """The hard pairs.

        Args:
            proposals: ``image, category, p``, one row a proposal of the detector.
            labels: what is annotated; says whether the predicted class is there.

        Returns:
            ``image, category, split, present, p, hardness``, the hardest of each class first.

        Raises:
            UserError: the detector knows none of the categories.
        """
        known = proposals[proposals["category"].isin(labels.categories)]
        if known.empty:
            raise UserError(
                "the object detector names none of the annotated categories: "
                f"{', '.join(sorted(proposals['category'].unique())[:5]) or 'it finds nothing'}"
            )
        table = known.assign(hardness=hardness(known["p"], self.gamma))
        table = table.sort_values("hardness", ascending=False, kind="stable")
        table = table.groupby(["image", "category"], sort=False).head(self.per_image)
        rank = table.groupby("category").cumcount()
        size = table.groupby("category")["p"].transform("size")
        table = table[rank < np.maximum(np.ceil(self.share * size), 1)]
        # Several hard proposals of a class are one pair, of the hardest of them.
        table = table.drop_duplicates(["image", "category"])
        found = table.assign(split=HARD, present=labels.present[labels.places(table)])
        return found.sort_values(["category", "hardness"], ascending=[True, False]).reset_index(
            drop=True
        )[["image", "category", "split", "present", "p", "hardness"]]


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
        names = model.config.id2label
        rows: list[tuple[int | str, str, float]] = []
        pace = Pace(len(images), every=10.0)
        for start in range(0, len(images), self.batch_size):
            batch = open_images(images[start : start + self.batch_size])
            inputs = self.processor(images=batch, return_tensors="pt").to(device)
            with torch.inference_mode():
                outputs = model(**inputs)
            found = self.processor.post_process_object_detection(outputs, threshold=self.threshold)
            for image, each in zip(ids[start:], found, strict=False):
                pairs = zip(each["labels"].tolist(), each["scores"].tolist(), strict=True)
                rows += [(image, str(names[label]), score) for label, score in pairs]
            if pace.due:
                pace.line(f"object detector: {start + len(batch)} of {len(images)} images")
        return pd.DataFrame(rows, columns=["image", "category", "p"])
