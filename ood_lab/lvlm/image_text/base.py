"""What an image-text model is: images and labels in, scores out."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any, Protocol

import numpy as np
import torch
from numpy.typing import NDArray
from PIL import Image
from torch import Tensor

from ood_lab.common.errors import UserError
from ood_lab.common.progress import Pace
from ood_lab.data.sources.image_files import load_rgb

Scores = NDArray[np.float32]
#: Probabilities are kept this far from 0 and 1, so that their log-odds are finite.
_EDGE = 1e-6


class ImageTextModel(Protocol):
    """A model that says how well a label fits an image.

    Attributes:
        name: for tables and columns.
    """

    name: str

    @property
    def made_with(self) -> Mapping[str, Any]:
        """Everything that can change a score: weights, template, scale."""

    def scores(self, images: Sequence[Path], labels: Sequence[str]) -> Scores:
        """``s(x, y)``, ``[N, n]``: logits, scale or temperature included.

        Raises:
            UserError: an image cannot be read.
        """


def texts_of(labels: Sequence[str], template: str) -> list[str]:
    """Every label in the template, which holds ``{}``.

    Raises:
        UserError: it does not.
    """
    if "{}" not in template:
        raise UserError(f"image_text template '{template}' has no {{}} where the label goes")
    return [template.format(label) for label in labels]


def log_odds(chance: NDArray[np.floating]) -> NDArray[np.floating]:
    """``ln(p / (1 - p))`` of probabilities, which are kept within 1e-6 of 0 and 1."""
    inner = np.clip(chance, _EDGE, 1 - _EDGE)
    return np.log(inner / (1 - inner))


def open_images(paths: Sequence[Path]) -> list[Image.Image]:
    """RGB images, upright.

    Raises:
        UserError: one of them cannot be read.
    """
    return [load_rgb(path) for path in paths]


def in_batches(
    images: Sequence[Path],
    size: int,
    columns: int,
    name: str,
    score: Callable[[list[Image.Image]], Tensor],
) -> Scores:
    """Scores of all images, ``[N, columns]``, with a line about the progress now and then.

    Args:
        images: N files.
        size: images of a batch.
        columns: number of labels.
        name: of the model, for the line.
        score: maps a list of images to ``[B, columns]``.
    """
    found = np.empty((len(images), columns), np.float32)
    pace = Pace(len(images), interval=10.0)
    for start in range(0, len(images), size):
        part = images[start : start + size]
        with torch.inference_mode():
            found[start : start + len(part)] = score(open_images(part)).float().cpu().numpy()
        done = start + len(part)
        if pace.due:
            pace.line(f"{name}: scored {done} of {len(images)} images, {pace.left(done)}")
    return found
