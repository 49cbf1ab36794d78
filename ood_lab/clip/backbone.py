"""CLIP as a backbone: normalised image features; class texts are the linear head."""

from __future__ import annotations

import logging
from abc import abstractmethod
from collections.abc import Sequence
from typing import Any, Literal, Protocol

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from ood_lab.clip.frozen_clip import ClipModel
from ood_lab.common.english import first_of
from ood_lab.common.errors import UserError
from ood_lab.models.backbone import Backbone
from ood_lab.models.head_check import check_contract
from ood_lab.models.output import Output


class ClipImages(Backbone):
    """``features = f`` (normalised) of a CLIP, and the logits of its head, where it has one.

    Args:
        clip: the model.
    """

    def __init__(self, clip: ClipModel) -> None:
        super().__init__()
        self.name, self.clip = clip.name, clip
        self.data_config, self.transform = clip.data_config, clip.preprocess
        self.transform_overrides = {}

    def forward(self, image: Tensor) -> Output:
        """Maps ``image [B, 3, H, W]`` to ``Output(logits [B, C], features [B, d])``."""
        features = self.clip.encode_image(image)
        none = features.new_zeros(len(features), 0)
        return Output(none if self.head is None else self.head(features), features)


class TextHead(ClipImages):
    """``features = f`` (normalised), ``logits = s W f`` with text features ``W [C, d]``.

    The head has no bias and holds ``s W`` with the model's logit scale ``s``, so every detector
    on features, logits or the head runs on CLIP as on any classifier.

    Args:
        clip: the model; its towers are frozen.
        classnames: words for the classes, in the order of the labels.
    """

    text_head = True
    head: nn.Linear

    def __init__(self, clip: ClipModel, classnames: Sequence[str]) -> None:
        super().__init__(clip)
        self.classnames = list(classnames)
        self.head = nn.Linear(clip.embed_dim, len(self.classnames), bias=False, device=clip.device)

    @abstractmethod
    def class_texts(self) -> Tensor:
        """Normalised text features of the classes, ``[C, d]``."""

    @torch.no_grad()
    def reset_head(self) -> None:
        """Puts the current text features of the classes into the head."""
        self.head.weight.copy_(self.clip.logit_scale * self.class_texts())


class ClipBackbone(TextHead):
    """Zero-shot CLIP; its head is trainable (a linear probe that starts from the texts).

    Args:
        clip: the model.
        classnames: words for the classes, in the order of the labels.
        templates: see :func:`zero_shot_weights`.
    """

    def __init__(
        self, clip: ClipModel, classnames: Sequence[str], templates: Sequence[str] | None = None
    ) -> None:
        super().__init__(clip, classnames)
        self.templates = templates
        self.reset_head()

    def class_texts(self) -> Tensor:
        """Text features of the names in the templates, ``[C, d]``."""
        return zero_shot_weights(self.clip, self.classnames, self.templates)


class ClipFeatures(ClipImages):
    """The normalised image features of a CLIP, and no texts.

    Args:
        clip: the model.
    """

    head = None


def clip_backbone(
    clip: ClipModel,
    classes: Sequence[str],
    classnames: Sequence[str] | None = None,
    templates: Sequence[str] | None = None,
    num_classes: int | None = None,
    head: Literal["none"] | None = None,
) -> ClipBackbone | ClipFeatures:
    """A zero-shot classifier for the classes of the data, or its image features only.

    Args:
        clip: the model.
        classes: names of the ID classes in the data.
        classnames: words for them in the texts, in the same order; None = the names themselves.
        templates: see :func:`zero_shot_weights`.
        num_classes: expected number of classes, checked.
        head: ``none`` = image features only.

    Raises:
        UserError: as many words as classes are needed.
    """
    if head is not None:
        backbone: ClipBackbone | ClipFeatures = ClipFeatures(clip)
    else:
        names = checked_names(classes, classnames, num_classes, "model.classnames")
        backbone = ClipBackbone(clip, names, templates)
    check_contract(backbone)
    return backbone


def checked_names(
    classes: Sequence[str], classnames: Sequence[str] | None, num_classes: int | None, key: str
) -> list[str]:
    """Words for the classes, one each; ``key`` gave them.

    Raises:
        UserError: more or fewer of them.
    """
    names = list(classes if classnames is None else classnames)
    expected = len(classes) if num_classes is None else num_classes
    if len(names) != expected:
        raise UserError(
            f"{key} has {len(names)} names for {expected} classes: give one per class, in the "
            "order of the classes"
        )
    return names


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
    check_templates(templates)
    names = [name.replace("_", " ") for name in classnames]
    texts = [template.format(name) for name in names for template in templates]
    if tokenizer := getattr(clip, "tokenizer", None):
        _check_texts(tokenizer, texts, names)
    features = clip.encode_text(texts).view(len(names), len(templates), -1)
    return F.normalize(torch.mean(features, dim=1), dim=-1)


def check_templates(templates: Sequence[str]) -> None:
    """Raises ``UserError`` naming the first template that has no place for the label."""
    wrong = [template for template in templates if template.count("{}") != 1]
    if wrong or not templates:
        raise UserError(
            f"template '{wrong[0] if wrong else ''}' must hold one {{}} for the class name, "
            "as in 'a photo of a {}.'"
        )


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
