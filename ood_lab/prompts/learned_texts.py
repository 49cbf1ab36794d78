"""Texts some of whose token embeddings are learned vectors (CoOp, arXiv:2109.01134)."""

from __future__ import annotations

from collections.abc import Sequence

import torch
from torch import Tensor, nn

from ood_lab.clip import ClipModel
from ood_lab.common.errors import UserError

#: Of the normal distribution that learned vectors start from.
_STD = 0.02
#: In place of a token: a learned vector.
LEARNED = -1


def encode(clip: ClipModel, text: str) -> list[int]:
    """The tokens of a text, without start and end; ``_`` is read as a space.

    Raises:
        UserError: the tokenizer is one that does not mark start and end.
    """
    tokenizer = clip.tokenizer
    if not all(hasattr(tokenizer, n) for n in ("encode", "sot_token_id", "eot_token_id")):
        raise UserError(
            f"prompts of {clip.name} cannot be learned: its tokenizer "
            f"({type(tokenizer).__name__}) does not mark start and end; choose a CLIP model"
        )
    return list(tokenizer.encode(text.replace("_", " ")))


class LearnedTexts(nn.Module):
    """The tokens of N texts, ``<start> row <end>``, and which of them are learned.

    Nothing here is a parameter: the vectors are handed in, so that several texts can share them.

    Args:
        clip: with a tokenizer that :func:`encode` takes.
        rows: the tokens of each text; :data:`LEARNED` = a learned vector.
        names: of the texts, for messages.

    Attributes:
        ids: ``[N, L]``; learned positions hold the token of "X", so that the end of a text is
            found where it would be in a text of words.
        embeddings: ``[N, L, w] float32``, of ``ids``.
        learned: ``[N, L] bool``.

    Raises:
        UserError: a text does not fit into the context.
    """

    ids: Tensor
    embeddings: Tensor
    learned: Tensor

    def __init__(
        self, clip: ClipModel, rows: Sequence[Sequence[int]], names: Sequence[str]
    ) -> None:
        super().__init__()
        tokenizer = clip.tokenizer
        length = int(tokenizer.context_length)
        ids = torch.zeros(len(rows), length, dtype=torch.long)
        for i, (row, name) in enumerate(zip(rows, names, strict=True)):
            text = [tokenizer.sot_token_id, *row, tokenizer.eot_token_id]
            # open_clip's own tokenizers cut a long text without a word.
            if len(text) > length:
                raise UserError(
                    f"the prompt of '{name}' has {len(text)} tokens, {clip.name} takes {length}: "
                    "lower model.backbone.n_ctx, or give a shorter name with "
                    "model.backbone.classnames"
                )
            ids[i, : len(text)] = torch.tensor(text)
        learned = ids == LEARNED
        ids[learned] = tokenizer.encode("X")[0]
        with torch.no_grad():
            embeddings = clip.embed_tokens(ids.to(clip.device)).float()
        self.register_buffer("ids", ids.to(clip.device), persistent=False)
        self.register_buffer("embeddings", embeddings, persistent=False)
        self.register_buffer("learned", learned.to(clip.device), persistent=False)

    def features(self, clip: ClipModel, vectors: Tensor) -> Tensor:
        """Text features ``[N, d]``, normalised, with gradients to ``vectors [N, M, w]``.

        The text tower runs up to the end of the longest text where later positions cannot matter.
        """
        embeddings = self.embeddings.masked_scatter(self.learned[..., None], vectors)
        return clip.text_from_embeddings(embeddings, self.ids)


class ContextPrompts(nn.Module):
    """One text per class: ``[M learned vectors] name .``, the same vectors in all of them.

    ``name.`` is encoded as a whole: of "kite (bird of prey)." the last token is ")." and there is
    no other stop.

    Args:
        clip: gives tokens and embeddings.
        classnames: C names; ``_`` is read as a space.
        n_ctx: M; not used with ``ctx_init``.
        ctx_init: words that the vectors start from, one vector a token; None = N(0, 0.02²).

    Attributes:
        ctx: ``[M, w]``.
        template: the layout in words.

    Raises:
        UserError: a prompt does not fit.
    """

    def __init__(
        self,
        clip: ClipModel,
        classnames: Sequence[str],
        n_ctx: int = 16,
        ctx_init: str | None = None,
    ) -> None:
        super().__init__()
        words = encode(clip, ctx_init) if ctx_init else []
        n_ctx = len(words) or n_ctx
        rows = [[*[LEARNED] * n_ctx, *encode(clip, f"{name}.")] for name in classnames]
        self.texts = LearnedTexts(clip, rows, classnames)
        if words:
            with torch.no_grad():
                vectors = clip.embed_tokens(torch.tensor([words], device=clip.device))[0].float()
        else:
            vectors = _STD * torch.randn(n_ctx, self.texts.embeddings.shape[-1], device=clip.device)
        self.ctx = nn.Parameter(vectors.clone())
        self.template = f"[{n_ctx}] {{}}."

    def features(self, clip: ClipModel) -> Tensor:
        """Text features of the classes, ``[C, d]``, normalised, with gradients to ``ctx``."""
        return self.texts.features(clip, self.ctx.expand(len(self.texts.ids), -1, -1))


class OutlierPrompts(nn.Module):
    """N texts of no class: shared learned vectors, then one learned vector each, then a stop.

    Args:
        clip: gives tokens and embeddings.
        n: number of texts.
        n_ctx: M shared vectors.

    Attributes:
        ctx: ``[M, w]``.
        tokens: ``[N, 1, w]``, in the place of a class name.

    Raises:
        UserError: a prompt does not fit.
    """

    def __init__(self, clip: ClipModel, n: int, n_ctx: int = 16) -> None:
        super().__init__()
        row = [*[LEARNED] * (n_ctx + 1), *encode(clip, ".")]
        self.texts = LearnedTexts(clip, [row] * n, ["outliers"] * n)
        width = self.texts.embeddings.shape[-1]
        self.ctx = nn.Parameter(_STD * torch.randn(n_ctx, width, device=clip.device))
        self.tokens = nn.Parameter(_STD * torch.randn(n, 1, width, device=clip.device))

    def features(self, clip: ClipModel) -> Tensor:
        """Text features ``[N, d]``, normalised, with gradients to ``ctx`` and ``tokens``."""
        shared = self.ctx.expand(len(self.tokens), -1, -1)
        return self.texts.features(clip, torch.cat([shared, self.tokens], dim=1))
