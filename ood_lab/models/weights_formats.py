"""Files of weights: read without running any code, or named for what they are instead."""

from __future__ import annotations

import logging
import pickle
import re
import zipfile
from functools import cache
from pathlib import Path
from typing import Any

import torch
from safetensors.torch import load_file
from torch import Tensor

from ood_lab.common.english import first_of
from ood_lab.common.errors import UserError, reported_as
from ood_lab.common.files import packaged_table, read_json
from ood_lab.common.hints import missing_path
from ood_lab.common.tensor_file import Tensors

#: Content of a file of weights, by entry.
Checkpoint = dict[str, Any]
#: What the pickles of tensors are made of. Everything else in a checkpoint is left out, unread.
_HARMLESS = {
    ("collections", "OrderedDict"),
    ("torch._utils", "_rebuild_tensor_v2"),
    ("torch._utils", "_rebuild_parameter"),
}
#: Entries of a checkpoint that hold other tensors.
_NO_WEIGHTS = r"(?i)(optim|lr_|scheduler|scaler|loops|param_groups|\d+$)"
_log = logging.getLogger(__name__)
_SUFFIXES = (".pt", ".pth", ".ckpt", ".bin", ".safetensors")
#: How the parts of weights in several files are called, and the file that lists them.
_PART = re.compile(r"(?P<stem>.+)-(?P<number>\d{5})-of-(?P<all>\d{5})(?P<suffix>\.\w+)")
_INDEX = ".index.json"
#: What other files are, and what to give instead.
_FOREIGN: dict[str, dict[str, tuple[str, str]]] = packaged_table(
    "ood_lab.models", "foreign_files.yaml"
)


def foreign_format(path: Path) -> str | None:
    """What a file is, and what to give instead; None where it may be weights of PyTorch."""
    with path.open("rb") as file:
        start = file.read(32).decode("latin-1")
    starts = (kind for magic, kind in _FOREIGN["first_bytes"].items() if start.startswith(magic))
    foreign = _first("endings", [path.suffix.lower()]) or next(starts, None)
    if start[:2] == "PK" and zipfile.is_zipfile(path):
        with zipfile.ZipFile(path) as archive:
            names = archive.namelist()
        scripted = any("/code/" in name for name in names)
        plain = any(name.endswith("data.pkl") for name in names) and not scripted
        foreign = foreign or (None if plain else _first("inside", names))
    return None if foreign is None else f"{path} is {foreign[0]}: {foreign[1]}"


def _first(where: str, names: list[str]) -> tuple[str, str] | None:
    """The first foreign kind that one of the names gives away."""
    kinds = _FOREIGN[where].items()
    return next((kind for p, kind in kinds if any(re.search(p, name) for name in names)), None)


def read_weights(path: Path) -> Checkpoint:
    """The content of a file, and of all parts of one that is in several files.

    Raises:
        UserError: no such file, unreadable, a part is missing, no weights, or pickled objects.
    """
    files = _parts(path)
    if files == [path]:
        return _read(path)
    if missing := [file.name for file in files if not file.is_file()]:
        raise UserError(
            f"{path} is one of {len(files)} parts of these weights, and {missing[0]} is not in its "
            "folder: put all of them there"
        )
    say(path, f"the weights are in {len(files)} parts, all of which are read")
    return {key: value for file in files for key, value in _read(file).items()}


def weight_sets(content: Any, name: str = "", depth: int = 3) -> dict[str, Tensors]:
    """All dicts of tensors in a checkpoint, by their place (``ema.shadow``), but an optimiser's."""
    if not isinstance(content, dict):
        return {}
    named = {k: v for k, v in content.items() if isinstance(k, str) and isinstance(v, Tensor)}
    sets = {name: named} if named else {}
    for key, value in content.items():
        if depth and not re.match(_NO_WEIGHTS, str(key)):
            sets |= weight_sets(value, f"{name}.{key}" if name else str(key), depth - 1)
    return sets


def weight_lists(content: Any, name: str = "", depth: int = 3) -> dict[str, list[Tensor]]:
    """All averages of parameters without their names, in the order of the parameters.

    Those are lists of tensors: ``shadow_params`` of torch-ema and diffusers, ``ema`` of NeMo's
    optimiser.
    """
    if isinstance(content, list | tuple):
        if content and all(isinstance(value, Tensor) for value in content):
            return {name: list(content)}
        content = dict(enumerate(content))
    if not isinstance(content, dict) or not depth:
        return {}
    lists: dict[str, list[Tensor]] = {}
    for key, value in content.items():
        lists |= weight_lists(value, f"{name}.{key}" if name else str(key), depth - 1)
    return lists


def _parts(path: Path) -> list[Path]:
    if path.name.endswith(_INDEX) and path.is_file():
        names = (read_json(path) or {}).get("weight_map") or {}
        return [path.parent / name for name in sorted(set(names.values()))]
    match = _PART.fullmatch(path.name)
    if not match or not path.is_file():
        return [path]
    name = f"{match['stem']}-{{:05}}-of-{match['all']}{match['suffix']}"
    return [path.with_name(name.format(n + 1)) for n in range(int(match["all"]))]


def _read(path: Path) -> Checkpoint:
    if not path.exists():
        raise missing_path(path)
    if path.is_dir():
        files = sorted(str(file) for file in path.iterdir() if file.suffix in _SUFFIXES)
        named = f"name a file in it, such as {first_of(files)}" if files else "it holds no weights"
        raise UserError(f"{path} is a folder, not a file of weights: {named}")
    with reported_as(f"{path} cannot be read: {{reason}}", OSError):
        what = foreign_format(path)
    if what:
        raise UserError(what)
    try:
        if path.suffix == ".safetensors":
            return load_file(path)
        content = torch.load(path, map_location="cpu", weights_only=True)
    except Exception as error:  # a foreign file can break the readers in many ways
        refused = re.search(r"GLOBAL (\S+)", str(error))
        if refused and (content := _without_objects(path)):
            say(path, f"pickled objects such as {refused[1]} are skipped")
            return content
        if refused:
            raise UserError(
                f"{path} holds pickled objects ({refused[1]}), which could run any code: "
                "save torch.save(model.state_dict(), FILE) instead"
            ) from error
        raise UserError(
            f"{path} ({path.stat().st_size:,} bytes) is cut short, damaged or not a PyTorch "
            "checkpoint: copy or download it again"
        ) from error
    if not isinstance(content, dict):
        raise UserError(f"{path} holds a {type(content).__name__} instead of a state dict")
    return content


@cache
def say(path: Path, what: str) -> None:
    """Once, however often the file is read."""
    _log.info("%s: %s", path, what)


class _LeftOut:
    """Stands for a pickled object of any class: takes whatever it is made of, and drops it."""

    def __new__(cls, *_: Any, **__: Any) -> _LeftOut:
        return super().__new__(cls)

    def __init__(self, *_: Any, **__: Any) -> None:
        pass

    def __setstate__(self, state: Any) -> None:
        pass

    __setitem__ = append = extend = add = __init__


class _TensorsAlone:
    """In place of the module ``pickle``."""

    class Unpickler(pickle.Unpickler):
        """Finds nothing but :data:`_HARMLESS`, so that no code of a file is ever run."""

        def find_class(self, module: str, name: str) -> Any:
            """The class itself where it is harmless."""
            harmless = (module, name) in _HARMLESS
            return super().find_class(module, name) if harmless else _LeftOut


def _without_objects(path: Path) -> Checkpoint | None:
    """A checkpoint whose pickled objects are skipped; None where no weights are left."""
    try:
        content = torch.load(
            path, map_location="cpu", weights_only=False, pickle_module=_TensorsAlone
        )
        if not weight_sets(content):
            return None
    except Exception:  # refused by its caller, who says what is wrong with it
        return None
    return content if isinstance(content, dict) else None
