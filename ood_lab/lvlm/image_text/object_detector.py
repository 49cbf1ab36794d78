"""Zero-shot detectors of transformers as image-text models."""

from __future__ import annotations

import hashlib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any

import numpy as np

from ood_lab.common.compute_device import chosen_device
from ood_lab.common.progress import Pace
from ood_lab.lvlm.image_text.base import Scores, log_odds, open_images, texts_of


@dataclass(eq=False)
class DetectorScores:
    """The score of the best box of a label: OWL-ViT, OWLv2, Grounding DINO and their like.

    ``s(x, y) = ln(c / (1 - c))`` of the confidence c of the best box; a label that is found
    nowhere has the lowest.

    Args:
        path: folder of the detector.
        template: text with ``{}`` for the label.
        device: None = the first GPU, else the CPU.
        name: for tables and columns; empty = the folder's.

    Raises:
        UserError: it cannot be loaded.
    """

    path: str
    template: str = "{}"
    device: str | None = None
    name: str = ""

    def __post_init__(self) -> None:
        self.name = self.name or Path(self.path).name

    @cached_property
    def made_with(self) -> Mapping[str, Any]:
        """Folder, hash of its configuration, template."""
        config = Path(self.path).expanduser() / "config.json"
        digest = hashlib.sha256(config.read_bytes()).hexdigest() if config.is_file() else None
        return {"detector": self.path, "config": digest, "template": self.template}

    @cached_property
    def _model(self) -> Any:
        from ood_lab.synthesis.model_loading import load_transformers

        given = ("zero-shot-object-detection", "image_text.detector.path", self.path)
        return load_transformers(*given, chosen_device(self.device))

    def confidences(self, images: Sequence[Path], labels: Sequence[str]) -> Scores:
        """Score of the best box of every label, ``[N, n]``, 0 where there is none."""
        texts = texts_of(labels, self.template)
        place = {text: number for number, text in enumerate(texts)}
        found = np.zeros((len(images), len(labels)), np.float32)
        pace = Pace(len(images), interval=10.0)
        for row, path in enumerate(images):
            for box in self._model(open_images([path])[0], candidate_labels=texts, threshold=0.0):
                column = place.get(box["label"])
                if column is not None:
                    found[row, column] = max(found[row, column], box["score"])
            if pace.due:
                pace.line(f"{self.name}: {row + 1} of {len(images)} images, {pace.left(row + 1)}")
        return found

    def scores(self, images: Sequence[Path], labels: Sequence[str]) -> Scores:
        """See :class:`~ood_lab.lvlm.image_text.base.ImageTextModel`."""
        return log_odds(self.confidences(images, labels)).astype(np.float32)
