"""Weights from local files: every tensor must find its place, or the load is refused."""

from __future__ import annotations

import hashlib
import logging
import pickle
import re
from functools import cache
from pathlib import Path
from typing import Any

import torch
from safetensors.torch import load_file
from torch import Tensor, nn

from ood_lab.common.errors import UserError
from ood_lab.common.hints import nearest

#: Entries of a checkpoint that hold a state dict, first match wins. Averaged weights come first:
#: they are the ones to evaluate. (Lightning's weight averaging callbacks already put the average
#: under ``state_dict`` and the raw weights under ``current_model_state``.)
_WRAPPERS = (
    "state_dict_ema",
    "model_ema",
    "state_dict",
    "model_state_dict",
    "model",
    "net",
    "module",
)
#: What training code puts before the names of a network's tensors.
_PREFIXES = ("module.", "model.", "_orig_mod.", "net.", "backbone.")
#: What the pickles of tensors are made of. Everything else in a checkpoint is left out, unread.
_HARMLESS = {
    ("collections", "OrderedDict"),
    ("torch._utils", "_rebuild_tensor_v2"),
    ("torch._utils", "_rebuild_parameter"),
}
_log = logging.getLogger(__name__)
_SUFFIXES = (".pt", ".pth", ".ckpt", ".bin", ".safetensors")


def load_weights(
    module: nn.Module,
    path: str | Path,
    name: str | None = None,
    new_head: str | None = None,
) -> dict[str, Any]:
    """Loads ``path`` into ``module``, all tensors or none.

    Reads ``.safetensors`` files and everything ``torch.load(weights_only=True)`` reads: plain
    state dicts, training checkpoints that hold one (timm, Lightning, ...). Pickled objects beside
    the weights are left out without being read. The names may begin with any prefix
    (``module.model.``, ``encoder.``, what a LightningModule calls its network), and those of
    ``module`` with ``module. model. _orig_mod. net. backbone.``. Averaged (EMA) weights are
    preferred where a checkpoint has both. Tensors outside the network's prefix, such as a loss
    function's, are left alone once the network itself is complete.

    Args:
        module: receives the weights, in its own dtype and on its own device.
        path: the file.
        name: what messages call the module; its class name by default.
        new_head: name of a layer that keeps its fresh weights (fine-tuning to other classes).

    Returns:
        The ``data_config`` that the checkpoint was trained with, empty where it does not say.

    Raises:
        UserError: no such file, unreadable, pickled objects inside, NaN or infinite weights, or
            tensors missing, left over, of another shape, or there twice.
    """
    path, name = Path(path), name or type(module).__name__
    checkpoint = _read(path)
    target = module.state_dict()
    source = _align(_unwrap(checkpoint, path), list(target), path)
    if new_head is not None:
        fresh = f"{new_head}."
        target = {k: v for k, v in target.items() if not k.startswith(fresh)}
        source = {k: v for k, v in source.items() if not k.startswith(fresh)}
    _check_fit(source, target, f"{path} does not fit {name}")
    _check_finite(source, path)
    module.load_state_dict(source, strict=False)
    data_config = checkpoint.get("data_config")
    return data_config if isinstance(data_config, dict) else {}


def saved_labels(path: str | Path) -> dict[str, Any] | None:
    """The label space that a checkpoint of this project was trained for; None where it says none.

    Raises:
        UserError: no such file, unreadable, or pickled objects inside.
    """
    return saved_entry(path, "labels")


def saved_entry(path: str | Path, key: str) -> dict[str, Any] | None:
    """A dict that a checkpoint holds beside or around its weights; None where it has none.

    Raises:
        UserError: no such file, unreadable, or pickled objects inside.
    """
    entry = _read(Path(path)).get(key)
    return entry if isinstance(entry, dict) else None


def saved_outputs(path: str | Path, module: nn.Module, layer: str) -> int | None:
    """Outputs of the linear layer ``layer`` of ``module`` in a file; None where it has no such.

    Raises:
        UserError: no such file, unreadable, pickled objects inside, or no state dict.
    """
    path = Path(path)
    source = _align(_unwrap(_read(path), path), list(module.state_dict()), path)
    weight = source.get(f"{layer}.weight")
    return None if weight is None else int(weight.shape[0])


def weights_sha256(module: nn.Module) -> str:
    """Identity of a network's weights.

    sha256 (hex) over names, dtypes, shapes and bytes of all parameters and persistent buffers,
    sorted by name: independent of device, memory format and the order of definition.
    """
    digest = hashlib.sha256()
    for key, value in sorted(module.state_dict().items()):
        if not isinstance(value, Tensor):
            continue
        digest.update(f"{key} {value.dtype} {list(value.shape)};".encode())
        flat = value.detach().cpu().contiguous().reshape(-1)
        digest.update(flat.view(torch.uint8).numpy().data)
    return digest.hexdigest()


def _read(path: Path) -> dict[str, Any]:
    _check_exists(path)
    try:
        with path.open("rb") as file:
            file.read(1)
    except OSError as error:
        raise UserError(f"{path} cannot be read: {error.strerror}") from error
    try:
        if path.suffix == ".safetensors":
            return load_file(path)
        content = torch.load(path, map_location="cpu", weights_only=True)
    except Exception as error:  # a foreign file can break the readers in many ways
        refused = re.search(r"GLOBAL (\S+)", str(error))
        if refused and (content := _without_objects(path)):
            _say_left_out(path, refused[1])
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
def _say_left_out(path: Path, name: str) -> None:
    """Once, however often the file is read."""
    _log.info("%s: pickled objects such as %s are left out", path, name)


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
            known = (module, name) in _HARMLESS
            return super().find_class(module, name) if known else _LeftOut


def _without_objects(path: Path) -> dict[str, Any] | None:
    """A checkpoint whose pickled objects are left out; None where no weights are left."""
    try:
        content = torch.load(
            path, map_location="cpu", weights_only=False, pickle_module=_TensorsAlone
        )
        _unwrap(content, path)
    except Exception:  # refused by its caller, who says what is wrong with it
        return None
    return content if isinstance(content, dict) else None


def _check_exists(path: Path) -> None:
    if path.is_file():
        return
    folder = path if path.is_dir() else path.parent
    if not folder.is_dir():
        raise UserError(f"weights file {path} does not exist, and neither does its folder {folder}")
    files = sorted(f.name for f in folder.iterdir() if f.suffix in _SUFFIXES)
    near = nearest(path.name, files, 3, 0.4) or files[:3]
    problem = "is a folder, not a file" if path.is_dir() else "does not exist"
    hint = ", ".join(str(folder / f) for f in near) or f"no checkpoint in {folder}"
    raise UserError(f"weights file {path} {problem}; nearest: {hint}")


def _unwrap(checkpoint: dict[str, Any], path: Path) -> dict[str, Tensor]:
    for key in _WRAPPERS:
        if isinstance(checkpoint.get(key), dict):
            return _unwrap(checkpoint[key], path)
    tensors = {k: v for k, v in checkpoint.items() if isinstance(v, Tensor)}
    if not tensors:
        keys = ", ".join(str(k) for k in list(checkpoint)[:5])
        raise UserError(f"{path} contains no state dict (its entries: {keys or 'none'})")
    return tensors


def _align(source: dict[str, Tensor], target: list[str], path: Path) -> dict[str, Tensor]:
    """Renames ``source`` by the pair of prefixes that makes most names meet ``target``.

    Raises:
        UserError: two networks in it meet all of them.
    """
    wanted = set(target)
    best, best_rank, used = source, (-1, 0), ""
    whole: dict[str, dict[str, Tensor]] = {}
    for new in [p for p in _prefix_chains(target) if all(t.startswith(p) for t in target)]:
        for old in _own_prefixes(source, [name[len(new) :] for name in target]):
            renamed = {new + k[len(old) :]: v for k, v in source.items() if k.startswith(old)}
            rank = (len(wanted & set(renamed)), -len(old))
            if rank[0] == len(wanted):
                whole[old] = renamed
            if rank > best_rank:
                best, best_rank, used = renamed, rank, old
    others = [old for old, found in whole.items() if any(found[k] is not best[k] for k in wanted)]
    if others and used not in _prefix_chains(source):
        raise UserError(
            f"{path} holds several such networks, '{used}' and '{others[0]}': save the one that "
            "you mean in a file of its own"
        )
    return best


def _own_prefixes(source: dict[str, Tensor], target: list[str]) -> list[str]:
    """What may stand before the names of the network: known chains, and what is before a name.

    A name of one word, such as ``weight``, is at the end of too many others to tell.
    """
    anchors = [name for name in (target[0], target[-1]) if "." in name] if target else []
    found = {k[: -len(a)] for k in source for a in anchors if k.endswith(f".{a}")}
    chains = _prefix_chains(source)
    return chains + sorted(found - set(chains), key=lambda prefix: (len(prefix), prefix))


def _prefix_chains(names: dict[str, Tensor] | list[str]) -> list[str]:
    """Every chain of known prefixes that starts some name, the empty one first."""
    chains = {""}
    for name in names:
        chain = ""
        while prefix := next((p for p in _PREFIXES if name[len(chain) :].startswith(p)), None):
            chain += prefix
            chains.add(chain)
    return sorted(chains, key=len)


def _check_fit(source: dict[str, Tensor], target: dict[str, Tensor], problem: str) -> None:
    # Files older than PyTorch 0.4.1 lack the batch counters, and no prediction depends on them.
    needed = [k for k in target if not k.endswith("num_batches_tracked")]
    missing = [k for k in needed if k not in source]
    extra = [k for k in source if k not in target]
    other = [k for k in source if k in target and source[k].shape != target[k].shape]
    remedy = "is it a checkpoint of another architecture?"
    if missing:
        instead = f" (the file has {extra[0]})" if extra else ""
        layers = {key.rpartition(".")[0] for key in missing}
        if len(layers) == 1 and len(missing) < len(needed):
            (layer,) = layers
            remedy = (
                f"is '{layer}' its head? model.backbone.new_head=true gives train.py a fresh one, "
                "and model.head=linear fits one on the features of ID train"
            )
        raise UserError(
            f"{problem}: {len(missing)} of {len(needed)} tensors are not in the file, "
            f"first {missing[0]}{instead}; {remedy}"
        )
    if other:
        old, new = list(source[other[0]].shape), list(target[other[0]].shape)
        rows = {(source[k].shape[:1], target[k].shape[:1]) for k in other}
        if len(rows) == 1 and len(other) <= 2 and old[1:] == new[1:]:
            remedy = (
                f"is it a checkpoint for {old[0]} classes instead of {new[0]}? eval.py with "
                "model.weights=FILE scores its own head, and model.backbone.new_head=true beside "
                "it fine-tunes it in train.py"
            )
        raise UserError(
            f"{problem}: {len(other)} of {len(target)} tensors have another shape, "
            f"first {other[0]} {old} in the file against {new}; {remedy}"
        )
    if extra:
        layers = {key.rpartition(".")[0] for key in extra}
        if len(layers) == 1 and "" not in layers:
            remedy = f"is '{layers.pop()}' a head? Without model.head=... the network keeps its own"
        raise UserError(
            f"{problem}: {len(extra)} tensors of the file have no place in it, first {extra[0]}; "
            f"{remedy}"
        )


def _check_finite(source: dict[str, Tensor], path: Path) -> None:
    for key, value in source.items():
        if value.is_floating_point() and not bool(value.isfinite().all()):
            bad = int((~value.isfinite()).sum())
            raise UserError(
                f"{path}: {bad} of {value.numel()} values of {key} are NaN or infinite: "
                "its training has diverged; take an earlier checkpoint"
            )
