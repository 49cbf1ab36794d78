"""What diffusion and language models need before they are loaded: packages, files, a device."""

from __future__ import annotations

import json
import re
from collections.abc import Mapping, Sequence
from importlib.util import find_spec
from itertools import chain
from pathlib import Path
from typing import Any

import torch

from ood_lab.common.errors import UserError, reported_as

_DTYPES = {"float32": torch.float32, "float16": torch.float16, "bfloat16": torch.bfloat16}
_WEIGHTS = re.compile(r"(model|pytorch_model|diffusion_pytorch_model)[.-].*(safetensors|bin)$")
#: Parts of a pipeline that have no weights.
_NO_WEIGHTS = re.compile("Scheduler|Tokenizer|Processor|Extractor")


def check_package(*names: str) -> None:
    """Raises ``UserError`` naming all packages that are not installed."""
    missing = [name for name in names if find_spec(name) is None]
    if missing:
        raise UserError(f"{' and '.join(missing)} not installed: pip install 'ood_lab[synthesis]'")


def check_model(folders: Mapping[str, str | None], variant: str | None = None) -> None:
    """Raises one ``UserError`` naming every file that is missing in these model folders.

    Args:
        folders: option -> folder; None = not given.
        variant: of the weights, such as ``fp16``.
    """
    raise_problems(model_problems(folders, variant))


def model_problems(folders: Mapping[str, str | None], variant: str | None = None) -> list[str]:
    """What is missing in these model folders, as texts; see :func:`check_model`."""
    problems = []
    for option, folder in folders.items():
        if folder is None:
            problems.append(f"{option} is not set: give the folder of a model")
        elif not Path(folder).expanduser().is_dir():
            problems.append(f"{option}={folder} is not a directory")
        elif missing := missing_files(Path(folder).expanduser(), variant):
            also = f" (task.variant={variant}; null = the plain weights)" if variant else ""
            problems.append(f"{option} lacks {', '.join(missing)}{also}")
    return problems


def raise_problems(problems: Sequence[str]) -> None:
    """Raises one ``UserError`` of all problems, if there are any."""
    if problems:
        raise UserError(f"models are not complete: {'; '.join(problems)}")


def missing_files(folder: Path, variant: str | None = None) -> list[str]:
    """Files that loading a diffusers pipeline or a transformers model from ``folder`` would miss.

    Args:
        folder: with ``model_index.json`` (a pipeline) or ``config.json`` (a model).
        variant: of the weights; a part without such weights falls back to plain ones.
    """
    index = folder / "model_index.json"
    if not index.exists():
        return _missing_of_model(folder, variant)
    parts = {k: v for k, v in _json(index).items() if isinstance(v, list) and v and v[0]}
    missing = []
    for name, (_, kind) in parts.items():
        if _NO_WEIGHTS.search(str(kind)):
            place = folder / name
            if not place.is_dir() or not any(place.iterdir()):
                missing.append(str(place))
        else:
            gaps = _missing_of_model(folder / name, variant)
            plain = variant and not _missing_of_model(folder / name, None)
            missing += [] if plain else gaps
    return missing


def _missing_of_model(folder: Path, variant: str | None) -> list[str]:
    if not folder.is_dir():
        return [str(folder)]
    missing = [] if (folder / "config.json").exists() else [str(folder / "config.json")]
    sharded = [i for i in folder.glob("*.index*.json") if _is_variant(i, variant)]
    # A folder may list shards of two formats and hold those of one.
    lists = [set(_json(index).get("weight_map", {}).values()) for index in sharded]
    shards = set(chain.from_iterable(lists))
    weights = {p.name for p in folder.iterdir() if _WEIGHTS.match(p.name)}
    single = [n for n in weights - shards if _is_variant(Path(n), variant) and "-of-" not in n]
    if single:
        return missing
    if not lists:
        return [*missing, str(folder / f"*{f'.{variant}' if variant else ''}.safetensors")]
    gaps = min((sorted(wanted - weights) for wanted in lists), key=len)
    return missing + [str(folder / name) for name in gaps]


def _is_variant(path: Path, variant: str | None) -> bool:
    parts = path.name.replace(".index", "").replace(".json", "").split(".")[1:]
    extra = [part for part in parts if part not in ("safetensors", "bin")]
    return extra == ([variant] if variant else [])


def _json(path: Path) -> dict[str, Any]:
    with reported_as(f"'{path}' is damaged: fetch it again ({{reason}})", (OSError, ValueError)):
        content = json.loads(path.read_text(encoding="utf-8"))
    return content if isinstance(content, dict) else {}


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
