"""OmegaConf resolvers used in ``conf/``."""

from __future__ import annotations

import netrc
import os
from pathlib import PurePath
from typing import Any

from omegaconf import DictConfig, OmegaConf

from ood_lab.run.detector_sets import register_detector_sets
from ood_lab.run.help import register_help

PRESETS = ("openood", "paper")


def register_resolvers() -> None:
    """Registers the resolvers and the sets of detectors (idempotent)."""
    register_detector_sets()
    OmegaConf.register_new_resolver("preset", _preset, replace=True)
    OmegaConf.register_new_resolver("coop_epochs", _coop_epochs, replace=True)
    OmegaConf.register_new_resolver("last_part", _last_part, replace=True)
    OmegaConf.register_new_resolver("stem", _stem, replace=True)
    OmegaConf.register_new_resolver("wandb_offline", _wandb_offline, replace=True)
    register_help()


def _preset(openood: Any, paper: Any, *, _root_: DictConfig) -> Any:
    """``openood`` under ``detector_preset=openood``, ``paper`` under ``detector_preset=paper``."""
    preset = _root_.detector_preset
    if preset not in PRESETS:
        raise ValueError(f"detector_preset={preset} is unknown, valid: {', '.join(PRESETS)}")
    return openood if preset == PRESETS[0] else paper


def _coop_epochs(shots: int) -> int:
    """Epochs of CoOp's official code: 50 for 1 shot, 100 for 2 and 4, 200 for 8 and 16.

    All images (-1) take 50, as ImageNet does there.
    """
    return 50 if shots <= 1 else 100 if shots < 8 else 200


def _last_part(name: str) -> str:
    """The last folder of ``local-dir:DIR``, to name a run's folder by; other names as they are."""
    return name.rstrip("/").replace("\\", "/").rpartition("/")[2].removeprefix("local-dir:")


def _stem(file: str | None, otherwise: str) -> str:
    """The name of a file without folder and ending; ``otherwise`` where there is none."""
    return PurePath(file).stem if file else otherwise


def _wandb_offline() -> bool:
    """True where no W&B account is configured, so that a run never stops to ask for one."""
    if "WANDB_MODE" in os.environ:
        return os.environ["WANDB_MODE"] != "online"
    if os.environ.get("WANDB_API_KEY"):
        return False
    try:
        return netrc.netrc().authenticators("api.wandb.ai") is None
    except (OSError, netrc.NetrcParseError):
        return True
