"""Features of image regions in the space of the text (LoCoOp, arXiv:2306.01293; GL-MCM).

In the last attention each region attends to itself only, so that it keeps what it is:

- Vision transformer: ``z_i = x_i + out(W_v ln_1(x_i))``, ``z_i += mlp(ln_2(z_i))``,
  ``local_i = proj(ln_post(z_i))``; all earlier blocks as usual, the class token left out.
- ResNet: ``local_i = c_proj(v_proj(F_i))`` of the attention pool, without mean token and
  positions.
"""

from __future__ import annotations

from typing import Any

import torch
from open_clip.modified_resnet import ModifiedResNet
from open_clip.timm_model import TimmModel
from open_clip.transformer import VisionTransformer
from timm.models.vision_transformer import VisionTransformer as TimmVisionTransformer
from torch import Tensor, nn

from ood_lab.common.errors import UserError


class LocalFeaturesUnsupported(UserError):
    """This image tower has no features of regions in the space of the text."""


def features(visual: Any, images: Tensor, name: str) -> tuple[Tensor, Tensor]:
    """Global ``[B, d]`` and local ``[B, P, d]`` features, not normalised.

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
    if isinstance(visual, TimmModel):
        trunk = visual.trunk
        token = getattr(trunk, "global_pool", None) == "token"
        if isinstance(trunk, TimmVisionTransformer) and token and trunk.attn_pool is None:
            return _timm_vit(visual, images)
        pooling = getattr(trunk, "global_pool", "")
        raise _unsupported(name, f"timm's {type(trunk).__name__} with '{pooling}' pooling")
    raise _unsupported(name, type(visual).__name__)


def _unsupported(name: str, tower: str) -> LocalFeaturesUnsupported:
    return LocalFeaturesUnsupported(
        f"{name} has no local features: its image tower is {tower}, and only vision transformers "
        "with a class token and open_clip's ResNets have them; choose one of those, or a method "
        "that does not need them"
    )


def _vit(visual: VisionTransformer, images: Tensor) -> tuple[Tensor, Tensor]:
    blocks = visual.transformer.resblocks
    out = visual.forward_intermediates(
        images, indices=[len(blocks) - 2], output_fmt="NLC", output_extra_tokens=True
    )
    tokens = [out["image_intermediates_prefix"][0], out["image_intermediates"][0]]
    x = torch.cat(tokens, 1)  # the input of the last block, class token first
    x = visual.ln_post(blocks[-1](x, attn_mask=_self_only(x)))[:, 1:]
    return out["image_features"], x if visual.proj is None else x @ visual.proj


def _resnet(visual: ModifiedResNet, images: Tensor) -> tuple[Tensor, Tensor]:
    # Index 4, the last stage, must be among them: open_clip drops the stages after the last one.
    out = visual.forward_intermediates(images, indices=[4])
    pool = visual.attnpool
    cells = out["image_intermediates"][0].permute(0, 2, 3, 1)
    return out["image_features"], pool.c_proj(pool.v_proj(cells)).flatten(1, 2)


def _timm_vit(visual: TimmModel, images: Tensor) -> tuple[Tensor, Tensor]:
    trunk = visual.trunk
    x = trunk._pos_embed(trunk.patch_embed(images))
    x = trunk.norm_pre(trunk.patch_drop(x))
    for block in trunk.blocks[:-1]:
        x = block(x)
    last: nn.Module = trunk.blocks[-1]
    pooled = visual.head(trunk.forward_head(trunk.norm(last(x))))
    regions = trunk.norm(last(x, attn_mask=_self_only(x)))[:, trunk.num_prefix_tokens :]
    return pooled, visual.head(trunk.fc_norm(regions))


def _self_only(x: Tensor) -> Tensor:
    """Additive mask ``[L, L]`` under which a token's attention returns its own value."""
    length = x.shape[1]
    mask = torch.full((length, length), float("-inf"), device=x.device, dtype=x.dtype)
    return mask.fill_diagonal_(0.0)
