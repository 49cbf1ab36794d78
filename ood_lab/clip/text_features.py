"""Text features from token embeddings, for the text towers of ``CLIP`` and ``CustomTextCLIP``.

``x = transformer(e + positions)``, ``t = proj(pool(ln(x)))``: what ``encode_text`` does after its
look-up of the embeddings ``e``, so that learned vectors can replace words (CoOp,
arXiv:2109.01134).
"""

from __future__ import annotations

from typing import Any

import torch
from open_clip.transformer import text_global_pool
from torch import Tensor, nn

from ood_lab.common.errors import UserError

#: Poolings that read one position, named by the ids.
_POOLED_AT_THE_END = ("argmax", "eos")


def tower(model: nn.Module, name: str) -> Any:
    """The module that owns ``token_embedding``, ``positional_embedding`` and ``transformer``.

    Raises:
        UserError: the text tower is CoCa's or one of another library.
    """
    owner = getattr(model, "text", model)
    if getattr(owner, "cls_emb", None) is not None:
        raise UserError(
            f"prompts of {name} cannot be built from embeddings: its text tower is CoCa's, "
            "which appends a token of its own; choose a CLIP model"
        )
    if not hasattr(owner, "token_embedding"):
        raise UserError(
            f"prompts of {name} cannot be built from embeddings: its text tower is a "
            f"{type(owner).__name__}; choose a model with open_clip's own text tower"
        )
    return owner


def features(tower: Any, model: nn.Module, embeddings: Tensor, ids: Tensor, crop: bool) -> Tensor:
    """Features ``[N, d]``, not normalised, of ``embeddings [N, L, w]`` laid out as ``ids [N, L]``.

    With ``crop``, only positions up to the end of the longest text are computed, where no later
    position can matter (causal attention, pooled at the end of the text).
    """
    # Under the names that CLIP has on the model and CustomTextCLIP on its text tower.
    separate = tower is not model
    pool = tower.pool_type if separate else tower.text_pool_type
    end_id = tower.eos_id if separate else tower.text_eos_id
    mask = tower.attn_mask
    if crop and mask is not None and pool in _POOLED_AT_THE_END:
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
