"""What diffusion and language models need before they are loaded: packages, files, a device."""

from __future__ import annotations

import json
import re
from collections.abc import Mapping
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import torch

from ood_lab.common.errors import UserError, reported_as

_DTYPES = {"float32": torch.float32, "float16": torch.float16, "bfloat16": torch.bfloat16}


def check_package(*names: str) -> None:
    """Raises ``UserError`` naming all packages that are not installed."""
    missing = [name for name in names if find_spec(name) is None]
    if missing:
        raise UserError(f"{' and '.join(missing)} not installed: pip install 'ood_lab[synthesis]'")


def check_model(folders: Mapping[str, str | None]) -> None:
    """Checks that the folders of models are there; weights are the loading library's business.

    Args:
        folders: option -> folder; None = not given.

    Raises:
        UserError: names all that is missing.
    """
    problems = []
    for option, folder in folders.items():
        place = Path(folder or "").expanduser()
        if folder is None:
            problems.append(f"{option} is not set: give the folder of a model")
        elif not place.is_dir():
            problems.append(f"{option}={folder} is not a directory")
        elif lacking := [str(path) for path in _parts(place) if not path.exists()]:
            problems.append(f"{option} lacks {', '.join(lacking)}")
    if problems:
        raise UserError(f"models are not complete: {'; '.join(problems)}")


def _parts(folder: Path) -> list[Path]:
    """The folders of the parts of a pipeline; of a single model, its configuration."""
    index = folder / "model_index.json"
    if not index.exists():
        return [folder / "config.json"]
    with reported_as(f"'{index}' is damaged: fetch it again ({{reason}})", (OSError, ValueError)):
        entries = json.loads(index.read_text(encoding="utf-8")).items()
    return [folder / name for name, part in entries if isinstance(part, list) and part[0]]


def load_transformers(task: str, option: str, folder: str, device: torch.device) -> Any:
    """A pipeline of transformers from a local folder, quietly.

    Args:
        task: what it does, in the words of ``transformers.pipeline``.
        option: what messages call the folder.
        folder: of the model.
        device: where to run.

    Raises:
        UserError: it cannot be loaded.
    """
    import transformers
    from transformers.utils import logging

    logging.set_verbosity_error()
    logging.disable_progress_bar()
    # Its overloads want literal tasks, and are not there at all without the extra.
    pipeline: Any = transformers.pipeline
    with reported_as(f"{option}={folder} cannot be loaded for {task}: {{reason}}"):
        return pipeline(task, model=str(Path(folder).expanduser()), device=device)


def chosen_dtype(name: str | None, device: torch.device) -> torch.dtype:
    """The named type; None = float16 on a GPU, float32 elsewhere.

    Raises:
        UserError: unknown type.
    """
    if name is None:
        return torch.float16 if device.type == "cuda" else torch.float32
    if name not in _DTYPES:
        raise UserError(f"task.dtype={name} is unknown: give one of {', '.join(_DTYPES)}")
    return _DTYPES[name]


def licence(folder: str | Path) -> str:
    """The licence that the model card (``README.md``) of a folder names."""
    card = Path(folder).expanduser() / "README.md"
    text = card.read_text(encoding="utf-8", errors="replace") if card.is_file() else ""
    front = re.match(r"---\n(.*?)\n---", text, re.DOTALL)
    lines = re.findall(r"^licen[sc]e(?:_name)?:\s*(\S.*)$", front[1] if front else "", re.MULTILINE)
    return ", ".join(lines) or "not stated in its folder; look at the model's card before sharing"
