"""A frozen CLIP whose linear head are texts with learned vectors."""

from __future__ import annotations

import logging
from collections.abc import Sequence
from functools import cached_property
from typing import Annotated

import torch
from annotated_types import Interval
from lightning.pytorch.utilities import rank_zero_only
from torch import Tensor, nn

from ood_lab.clip import ClipModel, TextHead
from ood_lab.clip.backbone import checked_names
from ood_lab.common.arguments import Settings
from ood_lab.common.errors import UserError
from ood_lab.common.files import StrPath
from ood_lab.common.grouping import common_start
from ood_lab.models.head_check import check_contract
from ood_lab.models.weights import load_weights, saved_entry
from ood_lab.prompts.learned_texts import ContextPrompts, OutlierPrompts

log = logging.getLogger(__name__)
#: Learned vectors of a text, far more than any context holds, and texts.
Tokens = Annotated[int, Interval(ge=1, le=1_000)]
Texts = Annotated[int, Interval(ge=1, le=100_000)]


class PromptBackbone(TextHead):
    """A frozen CLIP whose class texts are learned.

    Only the prompts are parameters: the head is computed from them by :meth:`reset_head` and has
    no gradients.

    Args:
        clip: the model, frozen.
        classnames: words for the classes, in the order of the labels.
        prompts: of the same classes.
    """

    def __init__(self, clip: ClipModel, classnames: Sequence[str], prompts: ContextPrompts) -> None:
        super().__init__(clip, classnames)
        self.prompts = prompts
        self.head.requires_grad_(False)

    def class_texts(self) -> Tensor:
        """Text features of the prompts, ``[C, d]``."""
        return self.prompts.features(self.clip)

    @property
    def learned(self) -> nn.ModuleDict:
        """Everything that is trained and saved."""
        return nn.ModuleDict({"prompts": self.prompts})

    @cached_property
    def settings(self) -> Settings:
        """What the prompts were learned for, in plain types: they mean nothing elsewhere."""
        return {
            "classnames": self.classnames,
            "template": self.prompts.template,
            "temperature": 1 / self.clip.logit_scale,
            "clip": self.clip.identity,
        }

    def load(self, path: StrPath) -> None:
        """Takes the prompts of a checkpoint, once they are found to be for this very CLIP.

        Raises:
            UserError: no prompts in the file, other classes or another order of them, another
                layout, another CLIP, or a file that cannot be read.
        """
        self.check_settings(saved_entry(path, "prompts"), str(path))
        load_weights(self.learned, path, f"the prompts of {self.name}")
        self.reset_head()

    def check_settings(self, saved: Settings | None, source: str) -> None:
        """Raises :class:`UserError` unless ``saved`` are the settings of this backbone."""
        if not saved:
            raise UserError(
                f"{source} holds no prompts: name a run of train.py prompt=coop|locoop|idlike"
            )
        theirs, ours = saved["classnames"], self.classnames
        if theirs != ours:
            first = common_start(theirs, ours)
            named = [n[first] if first < len(n) else "none" for n in (theirs, ours)]
            raise UserError(
                f"the prompts in {source} are for {len(theirs)} classes, here are {len(ours)}: "
                f"class {first} is '{named[0]}' there and '{named[1]}' here; names and order "
                "must agree"
            )
        if saved["template"] != self.prompts.template:
            raise UserError(
                f"the prompts in {source} read '{saved['template']}', here "
                f"'{self.prompts.template}': set model.backbone.n_ctx as in that training"
            )
        there, here = saved["clip"], self.settings["clip"]
        if there["weights_sha256"] != here["weights_sha256"]:
            raise UserError(
                f"the prompts in {source} were learned on {there['name']} (weights "
                f"{there['weights_sha256'][:8]}), here is {here['name']} (weights "
                f"{here['weights_sha256'][:8]}): choose the same clip=... and clip.precision"
            )


class IDLikeBackbone(PromptBackbone):
    """A :class:`PromptBackbone` with prompts for what is not a class (ID-like, arXiv:2311.15243).

    Args:
        clip: the model, frozen.
        classnames: words for the classes.
        prompts: of the classes.
        outliers: of the outliers.

    Attributes:
        outlier_head: ``s T' f`` with the text features ``T' [N, d]`` of the outlier prompts.
    """

    def __init__(
        self,
        clip: ClipModel,
        classnames: Sequence[str],
        prompts: ContextPrompts,
        outliers: OutlierPrompts,
    ) -> None:
        super().__init__(clip, classnames, prompts)
        self.outliers = outliers
        self.outlier_head = nn.Linear(
            clip.embed_dim, len(outliers.tokens), bias=False, device=clip.device
        )
        self.outlier_head.requires_grad_(False)

    @property
    def learned(self) -> nn.ModuleDict:
        """The prompts of the classes and those of the outliers."""
        return nn.ModuleDict({"prompts": self.prompts, "outliers": self.outliers})

    @torch.no_grad()
    def reset_head(self) -> None:
        """Brings both heads up to date."""
        super().reset_head()
        weight = self.clip.logit_scale * self.outliers.features(self.clip)
        self.outlier_head.weight.copy_(weight)


def prompt_backbone(
    clip: ClipModel,
    classes: Sequence[str],
    classnames: Sequence[str] | None = None,
    num_classes: int | None = None,
    input_size: int | None = None,
    n_ctx: Tokens = 16,
    ctx_init: str | None = None,
    n_outliers: Texts | None = None,
) -> PromptBackbone:
    """Prompts for the classes of the data; those of ID-like also for outliers.

    Args:
        clip: the model.
        classes: names of the ID classes in the data.
        classnames: words for them in the prompts, in the same order; None = the names themselves.
        num_classes: expected number of classes, checked.
        input_size: side of the training images in pixels, checked.
        n_ctx: see :class:`ContextPrompts`, like all that follow.
        ctx_init: words to start from.
        n_outliers: number of outlier prompts, with as many learned vectors; None = CoOp and LoCoOp.

    Raises:
        UserError: another number of names, or of pixels; see :class:`ContextPrompts`.
    """
    names = checked_names(classes, classnames, num_classes, "model.backbone.classnames")
    wanted = clip.data_config["input_size"][-1]
    if input_size not in (None, wanted):
        raise UserError(
            f"model.input_size={input_size}, but {clip.name} takes {wanted} pixels: "
            f"set model.input_size={wanted}"
        )
    prompts = ContextPrompts(clip, names, n_ctx, ctx_init)
    if n_outliers is None:
        backbone = PromptBackbone(clip, names, prompts)
    else:
        backbone = IDLikeBackbone(clip, names, prompts, OutlierPrompts(clip, n_outliers, n_ctx))
    backbone.reset_head()
    check_contract(backbone)
    if not rank_zero_only.rank:  # type: ignore[attr-defined]
        learned = sum(p.numel() for p in backbone.learned.parameters())
        log.info(
            "prompts '%s' for %d classes (%s, ...), temperature %.4g: %s learned numbers",
            prompts.template,
            len(names),
            names[0],
            1 / clip.logit_scale,
            f"{learned:,}",
        )
    return backbone
