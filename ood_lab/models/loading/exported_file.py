"""Networks in files of TorchScript and torch.export, for inference: what they return, no more."""

from __future__ import annotations

import warnings
from collections.abc import Callable
from pathlib import Path
from typing import Any, Unpack

import torch
from torch import Tensor

from ood_lab.common.errors import UserError, one_line, reported_as
from ood_lab.common.file_records import file_sha256
from ood_lab.common.tensor_file import Tensors
from ood_lab.models.backbone import KeyedModule
from ood_lab.models.loading.timm_networks import NetworkSettings, module_backbone
from ood_lab.models.loading.wrapped_network import WrappedBackbone
from ood_lab.models.output import entries_of


def exported_backbone(path: str | Path, **settings: Unpack[NetworkSettings]) -> WrappedBackbone:
    """Makes a backbone of a TorchScript file, or of a program of ``torch.export`` (``.pt2``).

    No gradient reaches the image, and no layer can be read.

    Args:
        path: the file.
        settings: see :func:`~ood_lab.models.loading.timm_networks.module_backbone`; ``input_size``
            is the program's own where it fixes one.

    Raises:
        UserError: no such file, another kind of file, or an output without these entries.
    """
    place = Path(path)
    if not place.is_file():
        raise UserError(f"model.path={path} does not exist: name a TorchScript or .pt2 file")
    net = ExportedNet(place)
    data_config = {} if net.size is None else {"input_size": net.size}
    backbone = module_backbone(
        net,
        data_config=data_config,
        name=place.name,
        **settings,
    )
    backbone.differentiable = False
    return backbone


class ExportedNet(KeyedModule):
    """See :func:`exported_backbone`.

    Attributes:
        size: ``(3, H, W)`` where the file fixes it, else None.
    """

    neutral = frozenset({"_path", "_device", "_loaded"})

    def __init__(self, path: Path) -> None:
        super().__init__()
        self._path, self._device = str(path), torch.device("cpu")
        self._sha256 = file_sha256(path)
        self._loaded: list[Callable[[Tensor], Any]] = []
        shape = _shape(self._run)
        self._batch = shape[0] if shape else None
        fixed = shape[2:] if shape and shape[2] and shape[3] else None
        self.size = (3, *fixed) if fixed else None

    @property
    def _run(self) -> Callable[[Tensor], Any]:
        # In a list, as it has no modes and is no part of this module. It belongs to one process.
        if not self._loaded:
            self._loaded.append(_load(self._path, self._device))
        return self._loaded[0]

    def forward(self, image: Tensor) -> Any:
        """Maps ``[B, 3, H, W]`` to what the file returns; several tensors by key.

        Where it takes only one number of images, the last batch is filled up with its last image.
        """
        if image.device != self._device:
            self._loaded, self._device = [], image.device
        step = self._batch or len(image)
        parts: list[Tensors] = []
        for part in image.split(step):
            padding = part[-1:].repeat(step - len(part), 1, 1, 1)
            returned = self._run(torch.cat([part, padding]))
            outputs = entries_of(returned) or {"": returned}
            parts.append({key: values[: len(part)] for key, values in outputs.items()})
        joined = {key: torch.cat([part[key] for part in parts]) for key in parts[0]}
        return joined.get("", joined)

    def extra_repr(self) -> str:
        """What keys its features: the file's content."""
        return f"sha256={self._sha256}"

    def __getstate__(self) -> dict[str, Any]:
        """Without the program."""
        return self.__dict__ | {"_loaded": []}


def _load(path: str, device: torch.device) -> Callable[[Tensor], Any]:
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", FutureWarning)  # of TorchScript, for who writes it
            return torch.jit.load(path, map_location=device).eval()
    except (RuntimeError, ValueError) as error:
        scripted = one_line(error)[:100]
    with reported_as(
        f"model.path={path} is neither a TorchScript file nor a program of torch.export: "
        f"{scripted}; {{reason}}"
    ):
        return torch.export.load(path).module().to(device)


def _shape(run: Any) -> list[int | None] | None:
    """``[B, 3, H, W]`` of the images a program takes, None where it is free, or not told."""
    for node in run.graph.nodes if isinstance(run, torch.fx.GraphModule) else ():
        value = node.meta.get("val")
        if node.op == "placeholder" and isinstance(value, Tensor) and value.ndim == 4:
            return [size if isinstance(size, int) else None for size in value.shape]
    return None
