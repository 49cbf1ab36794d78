"""Classifiers made of text."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Protocol

import torch
import torch.nn.functional as F
from torch import Tensor

from ood_lab.common.errors import UserError


class TextEncoder(Protocol):
    """What a classifier of texts needs of a CLIP."""

    templates: tuple[str, ...]

    def encode_text(self, texts: Sequence[str]) -> Tensor:
        """Maps N texts to normalised features ``[N, d]``."""
        ...


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
        UserError: no class, no template, or a template without ``{}``.
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
    features = clip.encode_text(texts).view(len(names), len(templates), -1)
    return F.normalize(torch.mean(features, dim=1), dim=-1)
