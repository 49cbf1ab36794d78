"""Image-text models of transformers whose output has ``logits_per_image``.

CLIP, SigLIP, SigLIP 2, GroupViT, ALIGN and, for a LiT (a frozen image tower with a text tower
tuned to it), VisionTextDualEncoder: all are called alike.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from functools import cached_property
from pathlib import Path
from typing import Any

from PIL import Image
from torch import Tensor

from ood_lab.common.arguments import BatchSize
from ood_lab.common.compute_device import chosen_device
from ood_lab.common.errors import UserError, reported_as
from ood_lab.lvlm.image_text.base import Scores, in_batches, texts_of
from ood_lab.models.weights import weights_sha256

#: What makes the inputs of an image-text model.
TEXT_AND_IMAGE = ("AutoTokenizer", "AutoImageProcessor")


class TransformersScores:
    """``s(x, y)`` = ``logits_per_image`` of a model in a folder.

    The models multiply the cosine by their own scale (``exp(logit_scale)``: 100 in OpenAI's CLIP);
    SigLIP adds a bias, which a softmax over labels ignores. ``scale`` replaces that factor.

    Args:
        path: folder, or name of a model that is in the cache; nothing is downloaded.
        template: text with ``{}`` for the label.
        scale: factor of the cosine; None = the model's own.
        batch_size: images at a time.
        device: None = the first GPU, else the CPU.
        name: for tables and columns; None = the last part of ``path``.

    Raises:
        UserError: transformers is missing, or there is no such model.
    """

    def __init__(
        self,
        path: str,
        template: str = "{}",
        scale: float | None = None,
        batch_size: BatchSize = 16,
        device: str | None = None,
        name: str | None = None,
    ) -> None:
        self.name = name or Path(path).name
        self.path = path
        self.template = template
        self.batch_size = batch_size
        self.device = chosen_device(device)
        self.tokenizer, self.image_processor, self.model = load_pretrained(
            "image_text path", path, *TEXT_AND_IMAGE, "AutoModel"
        )
        own = getattr(self.model, "logit_scale", None)
        if own is None:
            raise UserError(
                f"{path} is a {type(self.model).__name__}, which has no scale of its cosines: "
                "image_text=blip2 is for BLIP-2"
            )
        self.own_scale = float(own.detach().exp())
        self.scale = self.own_scale if scale is None else scale

    @cached_property
    def made_with(self) -> Mapping[str, Any]:
        """Weights, template and scale."""
        return {
            "name": self.name,
            "weights_sha256": weights_sha256(self.model),
            "template": self.template,
            "scale": round(self.scale, 6),
        }

    def scores(self, images: Sequence[Path], labels: Sequence[str]) -> Scores:
        """See :class:`~ood_lab.lvlm.image_text.base.ImageTextModel`."""
        model = self.model.to(self.device).eval()
        # SigLIP was trained on texts of full length.
        padding = "max_length" if model.config.model_type.startswith("siglip") else True
        tokens = self.tokenizer(
            texts_of(labels, self.template), padding=padding, truncation=True, return_tensors="pt"
        ).to(self.device)
        factor = self.scale / self.own_scale

        def score(batch: list[Image.Image]) -> Tensor:
            pixels = self.image_processor(batch, return_tensors="pt")["pixel_values"]
            found = model(**tokens, pixel_values=pixels.to(self.device))
            return factor * found.logits_per_image

        return in_batches(images, self.batch_size, len(labels), self.name, score)


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
