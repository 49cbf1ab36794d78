"""Image-text models of transformers whose output has ``logits_per_image``.

CLIP, SigLIP, SigLIP 2, GroupViT, ALIGN and, for a LiT (a frozen image tower with a text tower
tuned to it), VisionTextDualEncoder: all are called alike.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any, ClassVar, Literal

import torch
from torch import Tensor

from ood_lab.common.arguments import BatchSize, Positive, Settings
from ood_lab.common.compute_device import chosen_device
from ood_lab.common.errors import UserError, reported_as
from ood_lab.lvlm.image_text.base import ImageBatch, Scores, in_batches, texts_of
from ood_lab.models.weights import weights_sha256

#: What makes the inputs of an image-text model.


@dataclass(eq=False)
class PretrainedScores:
    """An image-text model of transformers in a folder.

    Args:
        path: folder, or name of a model that is in the cache; nothing is downloaded.
        template: text with ``{}`` for the label.
        batch_size: images at a time.
        name: for tables and columns; empty = the last part of ``path``.

    Raises:
        UserError: transformers is missing, or there is no such model.
    """

    path: str
    template: str = "{}"
    batch_size: BatchSize = 16
    name: str = ""
    #: Its class in transformers.
    auto: ClassVar[str]

    def __post_init__(self) -> None:
        self.name = self.name or Path(self.path).name
        self.tokenizer, self.image_processor, self.model = load_pretrained(
            "image_text path", self.path, "AutoTokenizer", "AutoImageProcessor", self.auto
        )

    @cached_property
    def made_with(self) -> Settings:
        """Weights, template and scale."""
        return {
            "name": self.name,
            "weights_sha256": weights_sha256(self.model),
            **self._settings,
        }

    @property
    def _settings(self) -> Settings:
        raise NotImplementedError

    def scores(self, images: Sequence[Path], labels: Sequence[str]) -> Scores:
        """See :class:`~ood_lab.lvlm.image_text.base.ImageTextModel`."""
        device = chosen_device(None)
        self.model.to(device).eval()
        # SigLIP was trained on texts of full length.
        siglip = self.model.config.model_type.startswith("siglip")
        tokens = self.tokenizer(
            texts_of(labels, self.template),
            padding="max_length" if siglip else True,
            truncation=True,
            return_tensors="pt",
        ).to(device)

        def score(batch: ImageBatch) -> Tensor:
            pixels = self.image_processor(batch, return_tensors="pt")["pixel_values"]
            return self._scores(tokens, pixels.to(device))

        return in_batches(images, self._images_at_once(len(labels)), len(labels), self.name, score)

    def _images_at_once(self, labels: int) -> int:
        return self.batch_size

    def _scores(self, tokens: Any, pixels: Tensor) -> Tensor:
        """``[B, n]`` of n tokenised texts and B images."""
        raise NotImplementedError


@dataclass(eq=False)
class TransformersScores(PretrainedScores):
    """``s(x, y)`` = ``logits_per_image`` of a model in a folder.

    The models multiply the cosine by their own scale (``exp(logit_scale)``: 100 in OpenAI's CLIP);
    SigLIP adds a bias, which a softmax over labels ignores. ``scale`` replaces that factor.

    Args:
        path, template, batch_size, name: see :class:`PretrainedScores`.
        scale: factor of the cosine; None = the model's own.

    Raises:
        UserError: the model has no scale; see :class:`PretrainedScores`.
    """

    scale: float | None = None
    auto: ClassVar[str] = "AutoModel"

    def __post_init__(self) -> None:
        super().__post_init__()
        logit_scale = dict(self.model.named_parameters()).get("logit_scale")
        if logit_scale is None:
            raise UserError(
                f"{self.path} is a {type(self.model).__name__}, which has no scale of its "
                "cosines: image_text=blip2 is for BLIP-2"
            )
        self.own_scale = float(logit_scale.detach().exp())

    @property
    def _factor(self) -> float:
        return self.own_scale if self.scale is None else self.scale

    @property
    def _settings(self) -> Settings:
        return {"template": self.template, "scale": round(self._factor, 6)}

    def _scores(self, tokens: Any, pixels: Tensor) -> Tensor:
        results = self.model(**tokens, pixel_values=pixels).logits_per_image
        return self._factor / self.own_scale * results


def load_pretrained(setting: str, path: str, *kinds: str) -> list[Any]:
    """Objects of transformers from a folder or from the local cache, such as processor and model.

    Args:
        setting: that has the path, for messages.
        path: of the folder, or name of the model.
        kinds: their classes.

    Raises:
        UserError: transformers is missing, or there is no such model.
    """
    with reported_as("transformers is missing: pip install 'ood_lab[lvlm]'", ImportError):
        import transformers
    wrong = f"{setting}={path}: no model can be loaded ({{reason}})"
    with reported_as(wrong, (OSError, ValueError)):
        return [
            getattr(transformers, k).from_pretrained(path, local_files_only=True) for k in kinds
        ]


@dataclass(eq=False)
class Blip2Scores(PretrainedScores):
    """``s(x, y)`` of BLIP-2 (arXiv 2301.12597), by one of its two heads.

    ``itm``: logit of "matched" minus logit of "unmatched" of the image-text matching head.
    ``itc``: cosine, the largest over the query tokens, divided by ``temperature``. transformers
    returns the bare cosine: without a temperature, a softmax over 80 labels gives each about 1/80,
    less than OODBench's T, and every pair would be flagged.

    Args:
        path, template, name: see
            :class:`~ood_lab.lvlm.image_text.transformers.PretrainedScores`.
        batch_size: image-text pairs (``itm``) or images (``itc``) at a time.
        head: ``itm`` or ``itc``.
        temperature: of ``itc``.

    Raises:
        UserError: transformers is missing, or there is no such model.
    """

    batch_size: BatchSize = 64
    name: str = "blip2"
    head: Literal["itm", "itc"] = "itm"
    temperature: Positive = 0.01
    auto: ClassVar[str] = "Blip2ForImageTextRetrieval"

    @property
    def _settings(self) -> Settings:
        scale = 1.0 if self.head == "itm" else 1.0 / self.temperature
        return {"head": self.head, "template": self.template, "scale": scale}

    def _images_at_once(self, labels: int) -> int:
        return max(1, self.batch_size // labels) if self.head == "itm" else self.batch_size

    def _scores(self, tokens: Any, pixels: Tensor) -> Tensor:
        if self.head == "itc":
            results = self.model(pixel_values=pixels, **tokens, use_image_text_matching_head=False)
            return results.logits_per_image / self.temperature
        rows = []
        for image in pixels:  # the matching head sees one text and one image at a time
            many = image.expand(len(tokens["input_ids"]), -1, -1, -1)
            logits = self.model(
                pixel_values=many, **tokens, use_image_text_matching_head=True
            ).logits_per_image
            rows.append(logits[:, 1] - logits[:, 0])
        return torch.stack(rows)
