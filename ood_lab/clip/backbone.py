"""CLIP as a backbone: normalised image features, and class texts as the linear head."""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Sequence
from typing import Literal

import torch
from torch import Tensor, nn

from ood_lab.clip.frozen_clip import ClipModel
from ood_lab.clip.zero_shot_head import zero_shot_weights
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
        alone = ClipFeatures(clip)
        check_contract(alone)
        return alone
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
