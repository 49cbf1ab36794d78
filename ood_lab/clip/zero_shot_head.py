"""Classifiers made of text."""

from __future__ import annotations

import logging
from collections.abc import Sequence
from typing import Any, Protocol

import torch
import torch.nn.functional as F
from torch import Tensor

from ood_lab.common.english import first_of
from ood_lab.common.errors import UserError

log = logging.getLogger(__name__)


class TextEncoder(Protocol):
    """What a classifier of texts needs of a CLIP."""

    templates: tuple[str, ...]

    def encode_text(self, texts: Sequence[str]) -> Tensor:
        """Maps N texts to normalised features ``[N, d]``."""


def zero_shot_weights(
    clip: TextEncoder, classnames: Sequence[str], templates: Sequence[str] | None = None
) -> Tensor:
    """Text features of classes, averaged over templates, ``[C, d] float32``, normalised.

    ``w_c = m / ||m||``, ``m = mean_k t(template_k(c))`` with normalised ``t`` (CLIP,
    arXiv:2103.00020). In class names, ``_`` is read as a space.

    Args:
        clip: makes the text features.
        classnames: of C classes.
        templates: texts with ``{}`` for the name; None = those that suit ``clip``.

    Raises:
        UserError: no class, no template, a template without ``{}``, or two classes with one text.
    """
    templates = clip.templates if templates is None else tuple(templates)
    if not classnames:
        raise UserError("a zero-shot classifier needs class names: give model.classnames=[...]")
    wrong = [t for t in templates if t.count("{}") != 1]
    if wrong or not templates:
        raise UserError(
            f"template '{wrong[0] if wrong else ''}' must hold one {{}} for the class name, "
            "as in 'a photo of a {}.'"
        )
    names = [name.replace("_", " ") for name in classnames]
    texts = [template.format(name) for name in names for template in templates]
    if tokenizer := getattr(clip, "tokenizer", None):
        _check_texts(tokenizer, texts, names)
    features = clip.encode_text(texts).view(len(names), len(templates), -1)
    return F.normalize(torch.mean(features, dim=1), dim=-1)


def _check_texts(tokenizer: Any, texts: Sequence[str], names: Sequence[str]) -> None:
    """Warns of texts that are cut at the end of the context.

    Raises:
        UserError: two classes have the same texts for the model.
    """
    length = int(tokenizer.context_length)
    ids = tokenizer(["a", *texts], context_length=length + 1)
    padding, rows = ids[0, -1], ids[1:].view(len(names), -1, length + 1)
    cut = (rows[:, :, -1] != padding).any(dim=1).tolist()
    remedy = "give other names with model.classnames=[...], one a class"
    seen: dict[bytes, int] = {}
    read = tokenizer(list(texts), context_length=length).view(len(names), -1)
    for number, row in enumerate(read):
        other = seen.setdefault(row.numpy().tobytes(), number)
        if other != number:
            raise UserError(
                f"the CLIP, which takes {length} tokens, reads '{names[other]}' and "
                f"'{names[number]}' as the same text: {remedy}"
            )
    if long := [f"'{name}'" for name, too_long in zip(names, cut, strict=True) if too_long]:
        log.warning(
            "the CLIP takes %d tokens, so the texts of these classes are cut: %s; %s",
            length,
            first_of(long, 10),
            remedy,
        )
