"""What is fine-tuned: a model from a folder, or the tiny one from nothing."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from pickle import UnpicklingError
from typing import Any, Literal

import torch
from torch import nn
from torch.optim import Optimizer

from ood_lab.builtin.vlm.grounding import Grounding
from ood_lab.builtin.vlm.scene_conversations import WORDS
from ood_lab.builtin.vlm.tiny_architecture import FEATURES, PATCH, SIZE, untrained_vlm
from ood_lab.builtin.vlm.tiny_training import TinyVlmTuning
from ood_lab.common.errors import UserError, reported_as
from ood_lab.lvlm.chat.model_folder import ModelFolder
from ood_lab.lvlm.training.tuning_module import VlmTuning


def vlm_tuning(
    path: str | None,
    optimizer: Callable[..., Optimizer],
    scheduler: Callable[..., Any] | None = None,
    train: Literal["all", "projector", "language"] = "all",
    lora: Mapping[str, Any] | None = None,
    tower_epochs: int = 4,
    join_epochs: int = 8,
    tower: str | None = None,
) -> VlmTuning:
    """The module that trains.

    Args:
        path: folder of a model with its processor (``shipped:NAME`` = of this package); None = the
            tiny one with fresh weights.
        optimizer: see :class:`VlmTuning`.
        scheduler: see :class:`VlmTuning`.
        train: of a model in ``path``, see :class:`VlmTuning`.
        lora: of a model in ``path``, see :class:`VlmTuning`.
        tower_epochs: of the tiny one, see :class:`TinyVlmTuning`.
        join_epochs: of the tiny one, see :class:`TinyVlmTuning`.
        tower: weights file of an earlier training of the tiny one, whose tower is taken; then
            ``tower_epochs`` may be 0.

    Raises:
        UserError: no model is in that folder, or it is not of this kind, or ``tower`` holds none.
    """
    if path is not None:
        folder = ModelFolder(path, "model.path")
        processor, model = folder.load_processor(), folder.load_model("float32")
        return VlmTuning(model, processor, optimizer, scheduler, train, lora)
    if lora is not None or train != "all":
        raise UserError("model.lora and model.train are for a model in model.path=DIR")
    vlm = untrained_vlm()
    side = SIZE // PATCH
    grounding = Grounding(WORDS, FEATURES, (side, side))
    if tower is not None:
        _take_tower(tower, vlm.model.model.vision_tower, grounding)
    return TinyVlmTuning(
        vlm.model,
        vlm.processor,
        optimizer,
        grounding,
        tower_epochs=tower_epochs,
        join_epochs=join_epochs,
        scheduler=scheduler,
    )


def _take_tower(path: str, tower: nn.Module, grounding: Grounding) -> None:
    with reported_as(
        f"model.tower={path} holds no tower of the tiny model: name the weights file of an "
        f"earlier python train.py model=vlm ({{reason}})",
        (OSError, KeyError, RuntimeError, UnpicklingError),
    ):
        state = torch.load(path, "cpu", weights_only=True)["state_dict"]
        for module, prefix in ((tower, "model.model.vision_tower."), (grounding, "grounding.")):
            kept = {k.removeprefix(prefix): v for k, v in state.items() if k.startswith(prefix)}
            module.load_state_dict(kept)
