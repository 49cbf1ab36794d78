"""Fresh weights with which a language model reads what its tower recognises."""

from __future__ import annotations

from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from ood_lab.builtin.vlm.dialogues import plural
from ood_lab.builtin.vlm.grounding import Grounding

#: A hidden unit of the projector is ``gelu(_GAIN (z + _SHIFT))`` of a word's logit ``z``: nothing
#: below ``-_SHIFT``, where sigmoid(z) is 0.18, and clearly positive where the word is likely.
_GAIN, _SHIFT = 1.5, 1.5
#: Sharpness of the first block's comparison, and of the look from the answer to the name.
_COMPARE, _POINT = 1.5, 1.3
#: Pairs of rotary dimensions that turn by less than this per token keep their meaning over a
#: prompt: comparisons are made in them.
_SLOW = 2e-3


def read_the_tower(vlm: Any, tokenizer: Any, grounding: Grounding) -> None:
    """Joins a language model with fresh weights to a tower that has learned to name words.

    From random weights a small model finds the answers' prior at once and then stays there: its
    attention has nothing in common with the tower's features yet. Here it begins with

    - the projector ``W2 gelu(W1 f + b1) + b2``: rows of ``W1`` are the words' classifiers, columns
      of ``W2`` are ``[s, u_w]`` with ``u_w`` a direction of the word and ``s`` one of "there is
      something"; ``b2`` is the direction of "there is nothing",
    - embeddings ``[u_w, ...]`` of the words' tokens,
    - in the first block, queries that read the first half of the width and keys that read the
      second by the same projection: ``q . k`` of a word and a visual token is their likeness,
    - in the second block, queries of the answer that point at the keys of names.

    So a name finds out whether it is seen, and the answer finds the name. All of it can be
    unlearned. Queries and keys that begin alike are the idea of arXiv 2305.09828.

    Args:
        vlm: a FastVLM with a Llama of two blocks or more.
        tokenizer: of the model.
        grounding: the head that the tower has learned with, no more words than the projector has
            hidden units.
    """
    inner = vlm.model
    embedding = vlm.get_input_embeddings().weight
    width = embedding.shape[1]
    words = list(grounding.words)
    with torch.no_grad():
        unit = _directions(len(words), width // 2)
        name, asks = F.normalize(torch.randn(2, width - width // 2), dim=1)
        _embed(embedding, words, tokenizer, unit, name)
        reply = tokenizer.convert_tokens_to_ids("<|assistant|>")
        embedding[reply, width // 2 :] = asks
        _project(inner.multi_modal_projector, grounding, unit)
        blocks = inner.language_model.layers
        slow = _slow_dimensions(inner.language_model)
        _compare_halves(blocks[0].self_attn, slow)
        _point(blocks[1].self_attn, slow, asks, name)


def _directions(number: int, width: int) -> Tensor:
    """Unit vectors ``[number, width]``, the first ``width`` of them orthogonal to each other."""
    basis = torch.linalg.qr(torch.randn(width, width))[0]
    more = F.normalize(torch.randn(max(0, number - width), width), dim=1)
    return torch.cat([basis, more])[:number]


def _embed(embedding: Tensor, words: list[str], tokenizer: Any, unit: Tensor, name: Tensor) -> None:
    half = unit.shape[1]
    embedding.normal_(std=embedding.shape[1] ** -0.5)
    # Words that come first are the last to be written: a kind keeps a token that it shares.
    for word, direction in reversed(list(zip(words, unit, strict=True))):
        whole = tokenizer(f" {word}", add_special_tokens=False)["input_ids"]
        many = tokenizer(f" {plural(word)}", add_special_tokens=False)["input_ids"]
        rows = list(dict.fromkeys([*whole, *many[: len(whole)]]))
        embedding[rows, :half] = direction
        embedding[rows, half:] = 0.5 * embedding[rows, half:] + 0.7 * name


def _project(projector: Any, grounding: Grounding, unit: Tensor) -> None:
    first, second = projector.linear_1, projector.linear_2
    number, half = unit.shape
    first.weight.normal_(std=0.02)
    first.bias.zero_()
    first.weight[:number] = _GAIN * grounding.head.weight
    first.bias[:number] = _GAIN * (grounding.head.bias + _SHIFT)
    something, nothing = F.normalize(torch.randn(2, half), dim=1)
    second.weight.normal_(std=0.02)
    second.weight[:half, :number] = something[:, None]
    second.weight[half:, :number] = unit.T
    second.bias.zero_()
    second.bias[:half] = nothing


def _slow_dimensions(language: nn.Module) -> Tensor:
    """Dimensions of a head that hardly turn; rotary pairs are ``(i, i + half)``."""
    slow: Tensor = language.rotary_emb.inv_freq < _SLOW  # type: ignore[union-attr,operator,assignment]
    return torch.cat([slow, slow]).nonzero()[:, 0].cpu()


def _compare_halves(attention: Any, slow: Tensor) -> None:
    size, width = attention.head_dim, attention.q_proj.weight.shape[1]
    for start in range(0, attention.q_proj.weight.shape[0], size):
        common = torch.linalg.qr(torch.randn(width // 2, len(slow)))[0].T
        attention.q_proj.weight[start + slow, : width // 2] += _COMPARE * common
        attention.k_proj.weight[start + slow, width // 2 :] += _COMPARE * common


def _point(attention: Any, slow: Tensor, asks: Tensor, name: Tensor) -> None:
    size, width = attention.head_dim, attention.q_proj.weight.shape[1]
    for start in range(0, attention.q_proj.weight.shape[0], size):
        common = F.normalize(torch.randn(len(slow)), dim=0)
        attention.q_proj.weight[start + slow, width // 2 :] += _POINT * common[:, None] * asks
        attention.k_proj.weight[start + slow, width // 2 :] += _POINT * common[:, None] * name
