"""Weights from local files: every tensor must find its place, or the load is rejected."""

from __future__ import annotations

import hashlib
import logging
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn
from torch.utils._pytree import tree_leaves

from ood_lab.common.errors import UserError
from ood_lab.common.files import StrPath
from ood_lab.common.grouping import with_keys, without_keys
from ood_lab.common.tensor_arithmetic import all_finite
from ood_lab.common.tensor_file import Tensors
from ood_lab.models.weights_entries import WeightsFile, same_shapes, weights_of
from ood_lab.models.weights_formats import Checkpoint, read_weights

_log = logging.getLogger(__name__)


def load_weights(
    module: nn.Module,
    file: StrPath,
    name: str | None = None,
    new_head: str | Sequence[str] = (),
    headless: bool = False,
) -> Checkpoint:
    """Loads ``file`` into ``module``, all tensors or none.

    Reads ``.safetensors`` files and everything ``torch.load(weights_only=True)`` reads: plain
    state dicts, training checkpoints that hold one (timm, Lightning, ...). Other pickled
    objects are skipped without being read. The names may begin with any prefix
    (``module.model.``, ``encoder.``, what a LightningModule calls its network), and those of
    ``module`` with ``module. model. _orig_mod. net. backbone.``. Words of wrappers inside names, as
    torch.compile and FSDP write them, are skipped. Averaged (EMA) weights are preferred where a
    checkpoint has both; the choice is logged. Tensors outside the network's prefix, such as a loss
    function's, are ignored once the network itself is complete.

    Args:
        module: receives the weights, in its own dtype and on its own device.
        file: the file, or one of its sets of weights (:class:`WeightsFile`).
        name: what messages call the module; its class name by default.
        new_head: name, or names, of layers that keep their fresh weights (fine-tuning to other
            classes).
        headless: the head of ``module`` is not read: that of the file may be dropped.

    Returns:
        The ``data_config`` that the checkpoint was trained with, empty where it does not say.

    Raises:
        UserError: no such file, unreadable, pickled objects inside, NaN or infinite weights, or
            tensors missing, left over, of another shape, or there twice.
    """
    file, path, name = WeightsFile.of(file), Path(file), name or type(module).__name__
    target: Tensors = module.state_dict()
    layers = (new_head,) if isinstance(new_head, str) else new_head
    fresh = tuple(f"{layer}." for layer in layers)
    if fresh:
        target = {k: v for k, v in target.items() if not k.startswith(fresh)}
    checkpoint, source = weights_of(file, target, headless)
    if fresh:
        source = {k: v for k, v in source.items() if not k.startswith(fresh)}
    if headless:
        source = _without_head(source, target, path)
    _check_fit(source, target, f"{path} does not fit {name}")
    _check_finite(source, path)
    module.load_state_dict(source, strict=False)
    data_config = checkpoint.get("data_config")
    return data_config if isinstance(data_config, dict) else {}


def saved_entry(path: StrPath, key: str) -> dict[str, Any] | None:
    """A dict that a checkpoint holds next to or around its weights; None where it has none.

    Raises:
        UserError: no such file, unreadable, or pickled objects inside.
    """
    entry = read_weights(Path(path)).get(key)
    return entry if isinstance(entry, dict) else None


def check_one_source(
    name: str, pretrained: bool, weights: StrPath | None, setting: str = "model.weights"
) -> None:
    """Raises :class:`UserError` where both published weights and a file are chosen."""
    if pretrained and weights is not None:
        raise UserError(f"{name}: model.pretrained=true and {setting}={weights} exclude each other")


def saved_outputs(file: StrPath, module: nn.Module, layer: str) -> int | None:
    """Outputs of the linear layer ``layer`` of ``module`` in a file; None where it has no such.

    Raises:
        UserError: no such file, unreadable, pickled objects inside, or no state dict.
    """
    _, source = weights_of(WeightsFile.of(file), module.state_dict())
    weight = source.get(f"{layer}.weight")
    return None if weight is None else int(weight.shape[0])


def new_layers(
    file: StrPath, module: nn.Module, layers: Sequence[str], new_head: bool | None
) -> Sequence[str]:
    """Those of the ``layers`` of the head that keep their fresh weights (:func:`load_weights`).

    Args:
        file: the weights.
        module: receives them.
        layers: of its head.
        new_head: True = all of them, False = none; None = all where the file has the head of
            another number of classes, and a line of the log says so.
    """
    if new_head is not None or not layers:
        return layers if new_head else ()
    saved = saved_outputs(file, module, layers[0])
    outputs = int(module.state_dict()[f"{layers[0]}.weight"].shape[0])
    if saved in (None, outputs):
        return ()
    _log.info(
        "%s: its head '%s' is for %d classes, the data has %d: a new head is trained",
        WeightsFile.of(file).path,
        layers[0],
        saved,
        outputs,
    )
    return layers


def weights_sha256(module: nn.Module) -> str:
    """Identity of a network's weights.

    sha256 (hex) over names, dtypes, shapes and bytes of all parameters and persistent buffers,
    sorted by name: independent of device, memory format and the order of definition.
    """
    digest = hashlib.sha256()
    for key, entry in sorted(module.state_dict().items()):
        for value in tree_leaves(entry):  # quantised layers pack theirs in a tuple
            if isinstance(value, Tensor):
                hash_tensor(digest, value, key.replace("_orig_mod.", ""))  # of a compiled one
    return digest.hexdigest()


def hash_tensor(digest: Any, value: Tensor, name: str = "") -> None:
    """Adds name, type, shape and content of a tensor to a ``hashlib`` digest."""
    digest.update(f"{name} {value.dtype} {list(value.shape)};".encode())
    if value.is_meta:
        return
    if value.is_quantized:
        value = value.dequantize()
    if value.layout != torch.strided:
        value = value.to_dense()
    flat = value.detach().cpu().resolve_conj().resolve_neg().contiguous().reshape(-1)
    digest.update(flat.view(torch.uint8).numpy().data)


def _without_head(source: Tensors, target: Tensors, path: Path) -> Tensors:
    """The weights without the layers that give class scores, where nothing else is left over."""
    extra = without_keys(source, target)
    heads = {key.rpartition(".")[0] for key in extra} - {""}
    outputs = {len(value) for value in extra.values() if value.ndim}
    # Two of them in networks that were distilled.
    if not 0 < len(heads) <= 2 or len(outputs) != 1 or any(k not in source for k in target):
        return source
    names = "', '".join(sorted(heads))
    _log.info("%s: its head '%s' (%d classes) is dropped", path, names, outputs.pop())
    return with_keys(source, target)


def _check_fit(source: Tensors, target: Tensors, problem: str) -> None:
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
        if names := same_shapes(source, target):
            pairs = ", ".join(f"{old} → {new}" for new, old in list(names.items())[:3])
            raise UserError(
                f"{problem} by name, but its {len(names)} tensors have the same shapes in the same "
                f"order ({pairs}, ...): model.match=shape takes them by their order"
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
                f"is it a checkpoint for {old[0]} classes instead of {new[0]}? train.py fits a "
                "head for yours; eval.py with model.weights=FILE scores its own, with "
                f"model.net.KEY={old[0]} for a network that does not come with as many"
            )
        raise UserError(
            f"{problem}: {len(other)} of {len(target)} tensors have another shape, "
            f"first {other[0]} {old} in the file against {new}; {remedy}"
        )
    if extra:
        layers = {key.rpartition(".")[0] for key in extra}
        if len(layers) == 1 and "" not in layers:
            remedy = f"is '{layers.pop()}' a head? Without model.head=... the network keeps its own"
        if extra[0].startswith("objective."):
            remedy = "a training loss has added them: give its loss=NAME, or the run as ckpt=RUN"
        raise UserError(
            f"{problem}: {len(extra)} tensors of the file have no place in it, first {extra[0]}; "
            f"{remedy}"
        )


def _check_finite(source: Tensors, path: Path) -> None:
    for key, value in source.items():
        if value.is_floating_point() and not all_finite(value):
            bad = int((~value.isfinite()).sum())
            raise UserError(
                f"{path}: {bad} of {value.numel()} values of {key} are NaN or infinite: "
                "its training has diverged; take an earlier checkpoint"
            )
