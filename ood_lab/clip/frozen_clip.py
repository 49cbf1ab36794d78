"""A frozen open_clip model; its methods return normalised float32 features."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Self

import torch
import torch.nn.functional as F
from open_clip.coca_model import CoCa
from open_clip.model import CLIP, CustomTextCLIP
from open_clip.modified_resnet import ModifiedResNet
from open_clip.transformer import TextTransformer, VisionTransformer, text_global_pool
from torch import Tensor, nn

from ood_lab.common.errors import UserError
from ood_lab.common.tensor_file import Transform
from ood_lab.models.backbone import DataConfig, KeyedModule
from ood_lab.models.image_transforms import evaluation_transform
from ood_lab.models.trial_passes import random_batch
from ood_lab.models.weights import weights_sha256

#: open_clip's way to fit an image into the input, in timm's words. ("longest", which no published
#: weights use, pads with black, and timm's "border" with the mean.)
_CROP_MODES = {"shortest": "center", "squash": "squash"}
_TEXTS_A_BATCH = 512
#: Features of images ``[B, d]``, and of their regions ``[B, P, d]``.
GlobalAndLocal = tuple[Tensor, Tensor]
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
        self.preprocess: Transform = evaluation_transform(self.data_config)
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
        return _text_tower(self.model, self.name).token_embedding(ids)

    def text_from_embeddings(self, embeddings: Tensor, ids: Tensor) -> Tensor:
        """Text features of prompts given as token embeddings.

        Equals :meth:`encode_text` where ``embeddings`` are those of ``ids``. The padding after the
        longest text is skipped, but not in text towers in which padding counts (bidirectional, or
        pooled at the last position).

        Args:
            embeddings: ``[N, L, w]``, positions not yet added.
            ids: token ids of the same layout, ``[N, L]``: they say where each text ends.

        Returns:
            ``[N, d] float32``, normalised, with gradients to ``embeddings``.

        Raises:
            UserError: this text tower does not take embeddings.
        """
        tower = _text_tower(self.model, self.name)
        return _normalised(_text_features(tower, self.model, embeddings, ids))

    def image_features_and_local(self, images: Tensor) -> GlobalAndLocal:
        """Global features ``[B, d]`` and features of all regions ``[B, P, d]`` in the same space.

        Raises:
            LocalFeaturesUnsupported: this image tower has none.
        """
        pooled, regions = _local_features(self.model.visual, self._cast(images), self.name)
        return _normalised(pooled), _normalised(regions)

    @torch.no_grad()
    def check_local_features(self) -> None:
        """Raises :class:`LocalFeaturesUnsupported` where the image tower has none."""
        self.image_features_and_local(random_batch(self, self.data_config["input_size"]))

    def _cast(self, images: Tensor) -> Tensor:
        return images if self.input_dtype is None else images.to(self.input_dtype)


def _normalised(features: Tensor) -> Tensor:
    # In half precision, thousands of different cosines would become a few dozen.
    return F.normalize(features.float(), dim=-1)


def _data_config(model: nn.Module, name: str) -> DataConfig:
    config: DataConfig = model.visual.preprocess_cfg  # type: ignore[assignment, union-attr]
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


#: Poolings that read one position, named by the ids.
_POOLED_AT_THE_END = ("argmax", "eos")


def _text_tower(model: nn.Module, name: str) -> Any:
    """The module that owns ``token_embedding``, ``positional_embedding`` and ``transformer``.

    Raises:
        UserError: the text tower is CoCa's or one of another library.
    """
    owner = model.text if isinstance(model, CustomTextCLIP | CoCa) else model
    if isinstance(model, CoCa):
        raise UserError(
            f"prompts of {name} cannot be built from embeddings: its text tower is CoCa's, "
            "which appends a token of its own; choose a CLIP model"
        )
    if not isinstance(owner, CLIP | TextTransformer):
        raise UserError(
            f"prompts of {name} cannot be built from embeddings: its text tower is a "
            f"{type(owner).__name__}; choose a model with open_clip's own text tower"
        )
    return owner


def _text_features(tower: Any, model: nn.Module, embeddings: Tensor, ids: Tensor) -> Tensor:
    """Features ``[N, d]``, not normalised, of ``embeddings [N, L, w]`` laid out as ``ids [N, L]``.

    ``x = transformer(e + positions)``, ``t = proj(pool(ln(x)))``: what ``encode_text`` does after
    its look-up of the embeddings ``e``, so that learned vectors can replace words (CoOp,
    arXiv:2109.01134).
    Only positions up to the end of the longest text are computed where no later one can matter
    (causal attention, pooled at the end of the text).
    """
    # Under the names that CLIP has on the model and CustomTextCLIP on its text tower.
    separate = tower is not model
    pool = tower.pool_type if separate else tower.text_pool_type
    end_id = tower.eos_id if separate else tower.text_eos_id
    mask = tower.attn_mask
    if mask is not None and pool in _POOLED_AT_THE_END:
        ends = ids.argmax(-1) if pool == "argmax" else (ids == end_id).int().argmax(-1)
        length = int(ends.max()) + 1
        embeddings, ids = embeddings[:, :length], ids[:, :length]
    length = embeddings.shape[1]
    dtype = tower.transformer.get_cast_dtype()
    x = embeddings.to(dtype) + tower.positional_embedding[:length].to(dtype)
    x = tower.transformer(x, attn_mask=None if mask is None else mask[:length, :length])
    x = text_global_pool(tower.ln_final(x), ids, pool, eos_token_id=end_id)
    projection = tower.text_projection
    if projection is None:
        return x
    return projection(x) if isinstance(projection, nn.Linear) else torch.matmul(x, projection)


class LocalFeaturesUnsupported(UserError):
    """This image tower has no features of regions in the space of the text."""


def _local_features(visual: Any, images: Tensor, name: str) -> GlobalAndLocal:
    """Global ``[B, d]`` and local ``[B, P, d]`` features, not normalised.

    The local ones are of image regions in the space of the text (LoCoOp, arXiv:2306.01293;
    GL-MCM). In the last attention each region attends to itself only, so that it keeps what it is:

    - Vision transformer: ``z_i = x_i + out(W_v ln_1(x_i))``, ``z_i += mlp(ln_2(z_i))``,
      ``local_i = proj(ln_post(z_i))``; all earlier blocks as usual, the class token left out.
    - ResNet: ``local_i = c_proj(v_proj(F_i))`` of the attention pool, without mean token and
      positions.

    ``P`` is the number of patches (196 for ViT-B/16 at 224 pixels) or of cells of the last map
    (49 for RN50).

    Raises:
        LocalFeaturesUnsupported: pooling that is not by one token or one attention.
    """
    if isinstance(visual, ModifiedResNet):
        return _resnet(visual, images)
    if isinstance(visual, VisionTransformer):
        plain = visual.attn_pool is None and not visual.final_ln_after_pool
        if visual.pool_type == "tok" and plain:
            return _vit(visual, images)
        pooling = visual.pool_type if plain else "attention"
        raise _unsupported(name, f"a vision transformer with '{pooling}' pooling")
    raise _unsupported(name, type(visual).__name__)


def _unsupported(name: str, tower: str) -> LocalFeaturesUnsupported:
    return LocalFeaturesUnsupported(
        f"{name} has no local features: its image tower is {tower}, and only open_clip's own "
        "vision transformers with a class token and ResNets have them; choose one of those, or a "
        "method that does not need them"
    )


def _vit(visual: VisionTransformer, images: Tensor) -> GlobalAndLocal:
    blocks = visual.transformer.resblocks
    out = visual.forward_intermediates(
        images, indices=[len(blocks) - 2], output_fmt="NLC", output_extra_tokens=True
    )
    tokens = [out["image_intermediates_prefix"][0], out["image_intermediates"][0]]
    x = torch.cat(tokens, 1)  # the input of the last block, class token first
    x = visual.ln_post(blocks[-1](x, attn_mask=_self_only(x)))[:, 1:]
    return out["image_features"], x if visual.proj is None else x @ visual.proj


def _resnet(visual: ModifiedResNet, images: Tensor) -> GlobalAndLocal:
    # Index 4, the last stage, must be among them: open_clip drops the stages after the last one.
    out = visual.forward_intermediates(images, indices=[4])
    pool = visual.attnpool
    cells = out["image_intermediates"][0].permute(0, 2, 3, 1)
    return out["image_features"], pool.c_proj(pool.v_proj(cells)).flatten(1, 2)


def _self_only(x: Tensor) -> Tensor:
    """Additive mask ``[L, L]`` under which a token's attention returns its own value."""
    length = x.shape[1]
    mask = torch.full((length, length), float("-inf"), device=x.device, dtype=x.dtype)
    return mask.fill_diagonal_(0.0)
