"""CLIP models of open_clip, the shipped ones included."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path

import numpy as np
import torch
from torch import Tensor

from ood_lab.clip import ClipModel
from ood_lab.common.arguments import BatchSize, Settings
from ood_lab.common.compute_device import chosen_device
from ood_lab.common.errors import UserError
from ood_lab.lvlm.image_text.base import (
    ImageBatch,
    ImageFeatures,
    ImageTextModel,
    Scores,
    computed_once,
    encoded_images,
    image_features,
    in_batches,
    texts_of,
)
from ood_lab.neighbours import nearest_rows
from ood_lab.schema.arrays import Ints


@dataclass(eq=False)
class ClipScores:
    """``s(x, y) = e^t cos(f_x, g_y)`` with the logit scale ``e^t`` of a CLIP.

    Args:
        clip: the model.
        template: text with ``{}`` for the label.
        scale: factor of the cosine; None = the model's own (100 for OpenAI's weights).
        batch_size: images at a time.
        name: for tables and columns; empty = the CLIP's.
    """

    clip: ClipModel
    template: str = "{}"
    scale: float | None = None
    batch_size: BatchSize = 64
    name: str = ""

    def __post_init__(self) -> None:
        self.name = self.name or self.clip.name

    @property
    def _factor(self) -> float:
        return self.clip.logit_scale if self.scale is None else self.scale

    @cached_property
    def made_with(self) -> Settings:
        """Weights, template and scale."""
        return {**self.clip.identity, "template": self.template, "scale": round(self._factor, 6)}

    def scores(self, images: Sequence[Path], labels: Sequence[str]) -> Scores:
        """See :class:`~ood_lab.lvlm.image_text.base.ImageTextModel`."""
        clip = self.clip.to(chosen_device(None))
        texts = self._factor * clip.encode_text(texts_of(labels, self.template))

        def score(batch: ImageBatch) -> Tensor:
            return encoded_images(clip, batch) @ texts.T

        return in_batches(images, self.batch_size, len(labels), self.name, score)


def clips_of(first: ClipModel, models: Mapping[str, ImageTextModel]) -> dict[str, ClipModel]:
    """The CLIPs in whose spaces distances of images are measured, by name.

    Args:
        first: the one of ``clip=...``.
        models: of ``image_text=[...]``, by their key.

    Raises:
        UserError: one of these is no CLIP.
    """
    results = {first.name: first}
    for name, model in models.items():
        if not isinstance(model, ClipScores):
            raise UserError(
                f"image_text={name} is not a CLIP of open_clip, in whose space distances of "
                "images could be measured: remove it"
            )
        results[name] = model.clip
    return results


#: Of an object for the CLIP (arXiv 2509.15695).
TEMPLATE = "an image contains {}"
#: Cosine of texts that are the same.
_SAME = 1 - 1e-6


@dataclass(frozen=True)
class ClipSpace:
    """Unit features of N images and of n labels.

    Attributes:
        images: ``[N, d] float32``.
        labels: ``[n, d] float32``, of texts such as ``an image contains dog``.
        scale: logit scale of the CLIP, which only a softmax needs.
    """

    images: ImageFeatures
    labels: ImageFeatures
    scale: float = 100.0

    def cosines(self, rows: Sequence[int] | Ints) -> ImageFeatures:
        """``cos(f_x, g_o)`` of some images with every label, ``[B, n]``."""
        results: ImageFeatures = self.images[rows] @ self.labels.T
        return results

    def nearest(self, rows: Ints, pool: Ints) -> Ints:
        """The image of ``pool`` that is nearest to each, never the image itself.

        Args:
            rows: images.
            pool: images in ascending order.
        """
        is_all = len(pool) == len(self.images)
        bank = torch.from_numpy(self.images if is_all else self.images[pool])
        places = np.searchsorted(pool, rows)
        inside = (places < len(pool)) & (pool[np.minimum(places, len(pool) - 1)] == rows)
        queries = torch.from_numpy(self.images[rows])
        excluded = torch.from_numpy(np.where(inside, places, -1))
        return pool[nearest_rows(queries, bank, excluded).numpy()]


#: By the name of the CLIP.
Spaces = Mapping[str, ClipSpace]


def template_of(clip: ClipModel, template: str | None) -> str:
    """The text of an object: as given, else ORIC's, or the one that a small CLIP was trained on."""
    if template is not None:
        return template
    return TEMPLATE if clip.knows is None else clip.templates[-1]


def label_features(clip: ClipModel, names: Sequence[str], template: str | None) -> ImageFeatures:
    """Unit features of the texts of objects, ``[n, d] float32``.

    Raises:
        UserError: the texts of two objects are the same to the CLIP, as where a small one reads
            too few tokens to come to the object.
    """
    results: ImageFeatures = (
        clip.encode_text(texts_of(names, template_of(clip, template))).cpu().numpy()
    )
    cosines = results @ results.T - np.eye(len(results), dtype=np.float32)
    if len(results) > 1 and cosines.max() > _SAME:
        one, other = divmod(int(cosines.argmax()), len(names))
        raise UserError(
            f"'{template_of(clip, template)}' reads the same with {names[one]} and {names[other]} "
            f"to the CLIP {clip.name}, so that it cannot tell them apart: choose a shorter text "
            f"of the objects, such as '{clip.templates[-1]}'"
        )
    return results


def space_of(
    clip: ClipModel,
    paths: Sequence[Path],
    names: Sequence[str],
    template: str | None,
    folder: Path,
    rows: Sequence[int] | Ints | None,
) -> ClipSpace:
    """Features of images and labels; those of images are computed once.

    Args:
        clip: the model.
        paths: of N images.
        names: of the labels.
        template: text with ``{}`` for the label, see :func:`template_of`.
        folder: of the files in which features of images are kept.
        rows: the images that are looked at, each once; the others have NaN. None = all.

    Raises:
        UserError: an image cannot be read, or see :func:`label_features`.
    """
    numbers = list(range(len(paths)) if rows is None else rows)
    seen = [paths[number] for number in numbers]
    facts = json.dumps(clip.identity, sort_keys=True, default=str)
    features = computed_once(facts, seen, folder, lambda: image_features(clip, seen))
    images = np.full((len(paths), features.shape[1]), np.nan, np.float32)
    images[numbers] = features
    return ClipSpace(images, label_features(clip, names, template), clip.logit_scale)
