"""Python behind ``conf/``: its resolvers, and lines of ``--help``."""

from __future__ import annotations

import netrc
import os
import re
from collections.abc import Callable
from pathlib import Path
from textwrap import shorten
from typing import Any

from omegaconf import DictConfig, OmegaConf

from ood_lab.scripts import command, conf_files

PRESETS = ("auto", "openood", "paper")
#: Columns of the page of ``--help``.
WIDTH = 80
_NAMES = 20  # columns of the names of groups and tasks


def register_resolvers() -> None:
    """Registers the resolvers (idempotent)."""
    resolvers: dict[str, Callable[..., Any]] = {
        "preset": _preset,
        "clip_pixels": _clip_pixels,
        "coop_epochs": _coop_epochs,
        "class_name": lambda target: str(target).rpartition(".")[2],
        "last_part": _last_part,
        "wandb_offline": _wandb_offline,
        "help_command": command,
        **dict.fromkeys(("best", "runs", "run"), _earlier),
        "help_group": _help_group,
        "help_tasks": _help_tasks,
    }
    for name, resolver in resolvers.items():
        OmegaConf.register_new_resolver(name, resolver, replace=True)


def _earlier(*names: str) -> str:
    """The runs of earlier stages of an experiment, before any has run."""
    return names[0]


def _preset(openood: Any, paper: Any, auto: Any = None, *, _root_: DictConfig) -> Any:
    """The value for ``detector_preset``; ``auto`` is OpenOOD's where it has no value of its own."""
    preset = _root_.detector_preset
    if preset not in PRESETS:
        raise ValueError(f"detector_preset={preset} is unknown, valid: {', '.join(PRESETS)}")
    values = dict(zip(PRESETS, (openood if auto is None else auto, openood, paper), strict=True))
    return values[preset]


def _clip_pixels(name: str) -> int:
    """Side of the images of a CLIP: 64 of ``tiny``, the number at the end of others, else 224."""
    last = re.search(r"[-_@](\d{2,3})(?=$|[-_]quickgelu)", name)
    side = int(last[1]) if last else 224
    return 64 if name == "tiny" else side if side >= 64 else 224


def _coop_epochs(shots: int) -> int:
    """Epochs of CoOp's official code: 50 for 1 shot, 100 for 2 and 4, 200 for 8 and 16.

    All images (-1) take 50, as for ImageNet there.
    """
    return 50 if shots <= 1 else 100 if shots < 8 else 200


def _last_part(name: str) -> str:
    """The last folder of ``local-dir:DIR``, for a run folder's name; other names unchanged."""
    return name.rstrip("/").replace("\\", "/").rpartition("/")[2].removeprefix("local-dir:")


def _wandb_offline() -> bool:
    """True if no W&B account is configured, so that a run never stops to ask for one."""
    if "WANDB_MODE" in os.environ:
        return os.environ["WANDB_MODE"] != "online"
    if os.environ.get("WANDB_API_KEY"):
        return False
    try:
        return netrc.netrc().authenticators("api.wandb.ai") is None
    except (OSError, netrc.NetrcParseError):
        return True


def _help_group(name: str, words: str, *ahead: str, _root_: DictConfig) -> str:
    """``name  words: choices``, the chosen ones and ``ahead`` first; cut at :data:`WIDTH`."""
    chosen = _root_.hydra.runtime.choices.get(name) or []
    first = [chosen] if isinstance(chosen, str) else list(chosen)
    options = [path.stem for path in conf_files(name)]
    line, choices = f"  {name:<{_NAMES}}{words}: ", dict.fromkeys([*first, *ahead, *options])
    return line + shorten(", ".join(choices), WIDTH - len(line), placeholder=" ...")


def _help_tasks() -> str:
    """One line for each file of ``conf/task``: its name, and its first comment."""
    lines = (f"  {f.stem:<{_NAMES}}{first_comment(f)}" for f in conf_files("task"))
    return "\n".join(lines)


def first_comment(file: Path) -> str:
    """What a file of ``conf`` says of itself first, apart from headers of Hydra."""
    lines = (line for line in file.read_text(encoding="utf-8").splitlines() if line[:2] == "# ")
    return next((line[2:] for line in lines if not line.startswith("# @package")), "")
