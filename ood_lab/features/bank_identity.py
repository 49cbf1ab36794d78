"""What a feature bank was made from, in words and as a hash."""

from __future__ import annotations

import hashlib
import re
import sys
from collections import deque
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from functools import cache
from importlib.metadata import version
from pathlib import Path
from types import BuiltinFunctionType, CodeType, FunctionType, MethodType, ModuleType
from typing import Any

import numpy as np
import torch
from lightning.pytorch import LightningModule
from torch import Tensor, nn

from ood_lab.common.errors import UserError
from ood_lab.common.file_records import file_sha256, json_sha256
from ood_lab.common.grouping import without_keys
from ood_lab.common.installed_packages import is_library, local_sources
from ood_lab.models.backbone import Backbone, KeyedModule
from ood_lab.models.trial_passes import evaluating, random_batch
from ood_lab.models.weights import hash_tensor, weights_sha256
from ood_lab.version import __version__

#: Raised when the files of a bank change, so that an older bank is never misread.
FORMAT = 2  # 2: checksums in the manifest
#: Attributes of every module that its forward pass does not read, or that are read apart.
_HOUSEKEEPING = frozenset(vars(LightningModule())) | {
    *("_compiled_call_impl", "name_or_path", "_name_or_path", "_commit_hash", "warnings_issued")
}
_PLAIN = (
    *(type(None), bool, int, float, complex, str, bytes, range, slice, type(...), Path),
    *(np.generic, torch.dtype, torch.memory_format, torch.layout),
)


def transform_text(transform: Any, dataset_name: str) -> str:
    """The printed transform.

    Raises:
        UserError: it prints as a memory address, which does not tell two transforms apart.
    """
    text = repr(transform)
    if re.search(r" at 0x[0-9a-fA-F]+", text):
        raise UserError(
            f"the transform of '{dataset_name}' prints as '{text[:80]}', which does not say what "
            "it does: give it a __repr__ with its settings, so that cached features can be keyed"
        )
    return text


@cache
def versions() -> dict[str, str]:
    """Versions of what turns pixels into features."""
    return {"torch": version("torch"), "timm": version("timm"), "ood_lab": __version__}


@dataclass(frozen=True)
class NetworkIdentity:
    """What the features of a network depend on, in addition to its images.

    Attributes:
        weights_sha256: see :func:`~ood_lab.models.weights.weights_sha256`.
        parts_sha256: hash of all else that is reachable from the module: its classes, attributes,
            functions with what they enclose, tensors outside of the state dict. Of libraries the
            version stands for the code, of other classes the source (:func:`local_sources`).
        complete: nothing else can change the features. The code of a user may read anything, and
            some objects say nothing of their content.
    """

    weights_sha256: str
    parts_sha256: str
    complete: bool

    @classmethod
    def of(cls, backbone: Backbone) -> NetworkIdentity:
        """Reads the network; where a user's code is in it, two images pass.

        What that pass changes, as an activation that is kept, is no part of the identity.
        """
        weights, parts = weights_sha256(backbone), _Parts(backbone)
        digests = parts.digests
        if not parts.complete:
            images = 1 - 2 * random_batch(backbone, backbone.data_config["input_size"])
            with evaluating(backbone), torch.compiler.set_stance("force_eager"):
                backbone(images)
            later = _Parts(backbone).digests
            digests = {path: value for path, value in digests.items() if later.get(path) == value}
        return cls(weights, json_sha256(digests), parts.complete)


class _Parts:
    """Hashes of what is reachable from a module.

    Attributes:
        digests: by the path of an attribute, ``net.layer.scale``, and ``source:<module>``.
        complete: see :class:`NetworkIdentity`.
    """

    def __init__(self, module: nn.Module) -> None:
        self.digests: dict[str, str] = {}
        self.complete = True
        stored = module.state_dict().values()
        self._stored = {_place(value) for value in stored if isinstance(value, Tensor)}
        self._paths: dict[int, str] = {}
        self._alive: list[Any] = []  # a number of an object is used again after its end
        self._sha = hashlib.sha256()
        self._module("", module)

    def _module(self, path: str, module: nn.Module) -> None:
        module = module._modules.get("_orig_mod") or module  # of a compiled one
        neutral = module.neutral if isinstance(module, KeyedModule) else frozenset()
        state = without_keys(vars(module), _HOUSEKEEPING | neutral)
        hooks = {**module._forward_pre_hooks, **module._forward_hooks}
        state |= {"": type(module), "hooks": list(hooks.values())}
        state |= module._parameters | module._buffers
        for name, value in state.items():
            self._attribute(f"{path}.{name}", value)
        if isinstance(module, torch.jit.ScriptModule):
            self.complete = False
            self._attribute(f"{path}.code", str(module.inlined_graph))
        for name, child in module._modules.items():
            if child is not None:
                self._attribute(f"{path}.{name}", child)

    def _attribute(self, path: str, value: Any) -> None:
        outer, self._sha = self._sha, hashlib.sha256()
        self._add(path, value)
        self.digests[path], self._sha = self._sha.hexdigest(), outer

    def _text(self, text: str) -> None:
        self._sha.update(f"{text};".encode(errors="surrogatepass"))

    def _all(self, path: str, values: Iterable[Any]) -> None:
        for number, value in enumerate(values):
            self._add(f"{path}[{number}]", value)

    def _add(self, path: str, value: Any) -> None:
        self._text(type(value).__qualname__)
        if isinstance(value, _PLAIN):
            self._text(repr(value))
        elif isinstance(value, tuple):
            self._all(path, value)
        elif id(value) in self._paths:
            self._text(self._paths[id(value)])
        else:
            self._paths[id(value)] = path
            self._alive.append(value)
            self._content(path, value)

    def _content(self, path: str, value: Any) -> None:
        match value:
            case Tensor():
                if _place(value) not in self._stored:
                    hash_tensor(self._sha, value)
            case np.ndarray() if value.dtype != object:
                self._text(f"{value.dtype} {value.shape}")
                self._sha.update(np.ascontiguousarray(value).tobytes())
            case np.ndarray() | list() | deque():
                self._all(path, value)
            case nn.Module():
                self._module(path, value)
            case Mapping():
                self._all(path, (part for item in value.items() for part in item))
            case set() | frozenset():
                self._all(path, sorted(value, key=repr))
            case type():
                self._class(value)
            case FunctionType():
                self._function(path, value)
            case BuiltinFunctionType():
                self._all(path, (value.__qualname__, value.__self__))
            case MethodType():
                self._all(path, (value.__func__, value.__self__))
            case staticmethod() | classmethod():
                self._add(path, value.__func__)
            case property():
                self._add(path, value.fget)
            case ModuleType():
                self._text(value.__name__)
            case torch.fx.Graph():
                self._text(str(value))
            case torch.device():
                pass
            case torch.ScriptObject():
                self._add(path, value.__getstate__())
            case _:
                self._object(path, value)

    def _object(self, path: str, value: Any) -> None:
        """Its class and attributes, or what pickle would write of it."""
        self._add(f"{path}.class", type(value))
        lines = type(value).__mro__[:-1]
        slots = [name for cls in lines for name in vars(cls).get("__slots__", ())]
        state = {name: getattr(value, name) for name in slots if hasattr(value, name)}
        state |= getattr(value, "__dict__", {})
        if not state or any({"__reduce__", "__reduce_ex__"} & vars(cls).keys() for cls in lines):
            try:
                reduced = value.__reduce_ex__(4)
            except Exception:  # a lock, a session, a file: they say nothing of their content
                self.complete = False
                return
            parts = (reduced,) if isinstance(reduced, str) else reduced
            state = {"": [list(part) if isinstance(part, Iterator) else part for part in parts]}
        for name, part in state.items():
            if name not in _HOUSEKEEPING:
                self._text(name)
                self._add(f"{path}.{name}", part)

    def _class(self, cls: type) -> None:
        name = f"{cls.__module__}.{cls.__qualname__}"
        self._text(name)
        if is_library(cls.__module__):
            top = sys.modules.get(cls.__module__.partition(".")[0])
            self._text(str(vars(top).get("__version__")) if top else "")
            return
        self._source(cls.__module__)
        self._all(f"{name}.bases", cls.__bases__)
        for key, value in vars(cls).items():
            if callable(value) or not key.startswith(("__", "_abc_")):
                self._text(key)
                self._add(f"{name}.{key}", value)

    def _function(self, path: str, function: FunctionType) -> None:
        module = str(function.__globals__.get("__name__"))
        self._text(f"{module}.{function.__qualname__}")
        for cell in function.__closure__ or ():
            try:
                self._add(f"{path}.closure", cell.cell_contents)
            except ValueError:  # not filled yet
                continue
        self._all(f"{path}.defaults", (function.__defaults__, function.__kwdefaults__))
        self._add(f"{path}.attributes", vars(function))
        if is_library(module):
            return
        self._source(module)
        names = self._code(path, function.__code__)
        for name in sorted(names & function.__globals__.keys()):
            value = function.__globals__[name]
            self._text(name)
            if isinstance(value, ModuleType) and not is_library(value.__name__):
                self._source(value.__name__)
                within = sorted(names & vars(value).keys())
                self._all(f"{value.__name__}", (vars(value)[name] for name in within))
            else:
                self._add(f"{module}.{name}", value)

    def _code(self, path: str, code: CodeType) -> set[str]:
        """Reads the code of a function; returns the names it uses, with those of inner ones."""
        self._sha.update(code.co_code)
        self._text(f"{code.co_names} {code.co_varnames} {code.co_freevars}")
        names = set(code.co_names)
        for constant in code.co_consts:
            if isinstance(constant, CodeType):
                names |= self._code(path, constant)
            else:
                self._add(f"{path}.constant", constant)
        return names

    def _source(self, module: str) -> None:
        self.complete = False
        file = getattr(sys.modules.get(module), "__file__", None)
        if f"source:{module}" in self.digests or not file or not Path(file).is_file():
            return
        for name, path in local_sources(module, Path(file)).items():
            self.digests[f"source:{name}"] = file_sha256(path)


def _place(value: Tensor) -> tuple[Any, ...]:
    """The same for two tensors that are one, or share all of their memory."""
    try:
        return value.data_ptr(), value.dtype, value.shape
    except RuntimeError:  # of a sparse one
        return (id(value),)
