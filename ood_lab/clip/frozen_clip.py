"""A frozen open_clip model behind a few methods that all return normalised float32 features."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, Self

import torch
import torch.nn.functional as F
from PIL import Image
from torch import Tensor, nn

from ood_lab.clip import local_features, text_features
from ood_lab.common.errors import UserError
from ood_lab.models.backbone import KeyedModule
from ood_lab.models.image_transforms import evaluation_transform
from ood_lab.models.weights import weights_sha256

#: open_clip's way to fit an image into the input, in timm's words. ("longest", which no published
#: weights use, pads with black, and timm's "border" with the mean.)
_CROP_MODES = {"shortest": "center", "squash": "squash"}
_TEXTS_A_BATCH = 512
#: Where nothing is known of the captions a model was trained on.
PLAIN_TEMPLATES = ("a photo of a {}.",)


class ClipModel(KeyedModule):
    """Image and text features of an open_clip model, ``f / ||f||`` in float32 whatever the towers.

    All parameters are frozen and the towers stay in eval mode, also when the module that holds
    this one is put into training mode (frozen batch norm must not drift). No method switches
    gradients off: they flow to images and to prompt embeddings.

    Args:
        model: an open_clip model with ``visual.preprocess_cfg``.
        tokenizer: texts to ids, like those of open_clip.
        name: what messages call it.
        templates: texts with ``{}`` for a class name, like the captions it was trained on.
        input_dtype: of the images; None = as they come.
        knows: what it was trained on, where that is not the world at large.

    Raises:
        UserError: its images are fitted in a way that has no counterpart here.

    Attributes:
        embed_dim: width ``d`` of the shared space.
        data_config: keyword arguments of ``timm.data.create_transform`` that describe its images.
        preprocess: evaluation transform, RGB image -> ``[3, H, W] float32``.
    """

    neutral = frozenset({"tokenizer", "name", "templates", "knows", "data_config", "preprocess"})

    def __init__(
        self,
        model: nn.Module,
        tokenizer: Any,
        name: str,
        templates: Sequence[str] = PLAIN_TEMPLATES,
        input_dtype: torch.dtype | None = None,
        knows: str | None = None,
    ) -> None:
        super().__init__()
        self.model = model
        self.tokenizer = tokenizer
        self.name = name
        self.templates = tuple(templates)
        self.input_dtype = input_dtype
        self.knows = knows
        self.data_config = _data_config(model, name)
        self.preprocess: Callable[[Image.Image], Tensor] = evaluation_transform(self.data_config)
        self.requires_grad_(False)
        self.eval()
        with torch.no_grad():
            self.embed_dim = int(self.encode_text(["a"]).shape[1])

    def train(self, mode: bool = True) -> Self:
        """Stays in evaluation mode."""
        return super().train(False)

    @property
    def logit_scale(self) -> float:
        """``exp(log scale)``: 100 for the CLIP models of OpenAI and LAION."""
        return float(self.model.logit_scale.exp())  # type: ignore[operator]

    @property
    def device(self) -> torch.device:
        """Where the parameters are."""
        return next(self.model.parameters()).device

    @property
    def identity(self) -> dict[str, str]:
        """``name`` and ``weights_sha256`` of this very model (hashes all weights: ask once)."""
        return {"name": self.name, "weights_sha256": weights_sha256(self.model)}

    def encode_image(self, images: Tensor) -> Tensor:
        """Maps ``images [B, 3, H, W]`` to features ``[B, d]``."""
        return _normalised(self.model.encode_image(self._cast(images)))  # type: ignore[operator]

    def encode_text(self, texts: Sequence[str]) -> Tensor:
        """Maps N texts to features ``[N, d]``, without gradients.

        Texts beyond the context length are cut, as in open_clip.
        """
        with torch.no_grad():
            parts = [
                self.model.encode_text(ids.to(self.device))  # type: ignore[operator]
                for ids in self.tokenizer(list(texts)).split(_TEXTS_A_BATCH)
            ]
        return _normalised(torch.cat(parts))

    def embed_tokens(self, ids: Tensor) -> Tensor:
        """Token embeddings ``[N, L, w]`` of ``ids [N, L]``, positions not yet added.

        Raises:
            UserError: this text tower has no token embeddings to replace by a prompt's.
        """
        return text_features.tower(self.model, self.name).token_embedding(ids)

    def text_from_embeddings(self, embeddings: Tensor, ids: Tensor, crop: bool = False) -> Tensor:
        """Text features of prompts given as token embeddings.

        Equals :meth:`encode_text` where ``embeddings`` are those of ``ids``.

        Args:
            embeddings: ``[N, L, w]``, positions not yet added.
            ids: token ids of the same layout, ``[N, L]``: they say where each text ends.
            crop: skip the padding after the longest text; ignored for text towers in which
                padding counts (bidirectional, or pooled at the last position).

        Returns:
            ``[N, d] float32``, normalised, with gradients to ``embeddings``.

        Raises:
            UserError: this text tower does not take embeddings.
        """
        tower = text_features.tower(self.model, self.name)
        return _normalised(text_features.features(tower, self.model, embeddings, ids, crop))

    def image_features_and_local(self, images: Tensor) -> tuple[Tensor, Tensor]:
        """Global features ``[B, d]`` and features of all regions ``[B, P, d]`` in the same space.

        See :mod:`ood_lab.clip.local_features`.

        Raises:
            LocalFeaturesUnsupported: this image tower has none.
        """
        pooled, regions = local_features.features(self.model.visual, self._cast(images), self.name)
        return _normalised(pooled), _normalised(regions)

    def _cast(self, images: Tensor) -> Tensor:
        return images if self.input_dtype is None else images.to(self.input_dtype)


def _normalised(features: Tensor) -> Tensor:
    # In half precision, thousands of different cosines would become a few dozen.
    return F.normalize(features.float(), dim=-1)


def _data_config(model: nn.Module, name: str) -> dict[str, Any]:
    config: dict[str, Any] = model.visual.preprocess_cfg  # type: ignore[assignment, union-attr]
    if config["resize_mode"] not in _CROP_MODES:
        raise UserError(
            f"{name} fits its images by resize_mode={config['resize_mode']}, which is not "
            f"supported; those that are: {', '.join(_CROP_MODES)}"
        )
    size = config["size"]
    height, width = (size, size) if isinstance(size, int) else size
    return {
        "input_size": (3, height, width),
        "mean": tuple(config["mean"]),
        "std": tuple(config["std"]),
        "interpolation": config["interpolation"],
        "crop_pct": 1.0,
        "crop_mode": _CROP_MODES[config["resize_mode"]],
    }
