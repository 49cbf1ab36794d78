"""Classifiers in ONNX files, for inference: features from the file, and its last linear layer."""

from __future__ import annotations

import hashlib
import logging
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, Literal, Unpack

import numpy as np
import torch
from torch import Tensor, nn

from ood_lab.common.errors import UserError, reported_as
from ood_lab.common.hints import check_known, suggestion
from ood_lab.common.tensor_file import Tensors
from ood_lab.models.backbone import KeyedModule
from ood_lab.models.image_transforms import TransformSettings
from ood_lab.models.loading.exported_file import in_batches
from ood_lab.models.loading.timm_networks import module_backbone
from ood_lab.models.loading.wrapped_network import OUTPUT, WrappedBackbone
from ood_lab.models.trial_passes import random_batch

log = logging.getLogger(__name__)
#: The type of a tensor of float32 in ONNX.
_FLOAT = 1


def onnx_backbone(
    path: str | Path,
    logits: str | None = None,
    features: str | None = None,
    head: Literal["linear", "nearest_mean", "none"] | None = None,
    num_classes: int | None = None,
    image_size: Sequence[int] | None = None,
    classes: Sequence[str] = (),
    **transform: Unpack[TransformSettings],
) -> WrappedBackbone:
    """Makes a backbone of an ONNX file that gives logits, features, or both.

    Where the logits are those of one linear layer, the file computes the features and PyTorch the
    last layer, with the weights that are in the file. No gradient reaches the image, and no other
    layer can be read.

    Args:
        path: the file.
        logits: name of the output with the logits ``[B, C]``; not needed where there is one output.
        features: name of the tensor ``[B, D]`` from which the last layer makes them, or that is
            the features; None = as the graph says; ``output`` = the only output.
        head: ``linear`` or ``nearest_mean`` = such a head on the features, to be fitted; ``none`` =
            only these.
        num_classes: expected number of outputs, checked.
        image_size: width and height that all images of the data share.
        classes: of the data.
        transform: see :class:`~ood_lab.models.image_transforms.TransformSettings`; the size is the
            file's own where it fixes one.

    Raises:
        UserError: onnxruntime is missing, no such file, no such output, a named tensor that is not
            the features of the last layer, or images in another layout.
    """
    net = OnnxNet(Path(path), logits, features, head is not None)
    input_size = transform.get("input_size")
    if net.size is not None and input_size not in (None, net.size[1], list(net.size), net.size):
        raise UserError(f"input_size={input_size}: {path} takes only {list(net.size)}")
    data_config = {} if net.size is None else {"input_size": net.size}
    backbone = module_backbone(
        net,
        "head" if net.head is not None else head,
        num_classes,
        data_config=data_config,
        image_size=image_size,
        classes=classes,
        name=Path(path).name,
        features="features" if net.head is None and net.features else None,
        classifier=logits is not None,
        remedy="eval.py without ckpt scores the file unchanged",
        **transform,
    )
    backbone.differentiable = False
    if net.head is None:
        return backbone
    net.check_logits(random_batch(net, backbone.data_config["input_size"]))
    return backbone


class OnnxNet(KeyedModule):
    """See :func:`onnx_backbone`.

    Attributes:
        head: the last layer, with the file's weights; None where no linear layer makes the logits.
        features: name of the tensor that is the features; None where none is known.
        size: ``(3, H, W)`` where the file fixes it, else None.
    """

    head: nn.Linear | None
    neutral = frozenset({"path", "_model", "_session"})

    def __init__(
        self, path: Path, logits: str | None, features: str | None, alone: bool = False
    ) -> None:
        super().__init__()
        model = _read(path)
        self.path, graph = str(path), model.graph
        chosen, key = (features, "features") if alone else (logits, "logits")
        tensors = [name for node in graph.node for name in node.output]
        last = _output(graph, None if chosen == OUTPUT not in tensors else chosen, path, key)
        self._logits = None if alone else last
        self._input, self._batch, self.size = _input(graph, path)
        linear = _Linears(graph)
        linear_parts = linear.of(last)
        self.features = features or (linear_parts[0] if linear_parts else None)
        if alone:
            if linear_parts and features is None:
                log.info(
                    f"{path}: its features are '{self.features}', the input of its last linear "
                    f"layer; model.features={OUTPUT} takes what it returns"
                )
            else:
                self.features = last
            linear_parts = None
        elif linear_parts is None:
            candidates = {name: of for name in tensors if (of := linear.of(name))}
            remedy = ""
            if candidates:
                remedy = f": model.logits=NAME reads one of {', '.join(candidates)} instead"
                self.features = features or list(candidates.values())[-1][0]
            kind = next((n.op_type for n in graph.node if last in n.output), "its input")
            log.warning(
                f"{path}: '{last}' is made by {kind}, not by one linear layer with weights of its "
                f"own{remedy}"
            )
        for name in filter(None, (self._logits, self.features)):
            check_known([name], tensors, f"{path} has no tensor '{{name}}'")
            if name not in [output.name for output in graph.output]:
                graph.output.add().name = name
        self._model = model.SerializeToString()
        self._sha256 = hashlib.sha256(self._model).hexdigest()
        self._session: Any = None
        self.head = None
        if linear_parts is None:
            return
        weight, bias = (torch.from_numpy(array.astype(np.float32)) for array in linear_parts[1:])
        self.head = nn.Linear(weight.shape[1], weight.shape[0])
        self.head.weight = nn.Parameter(weight)
        self.head.bias = nn.Parameter(bias)

    def forward(self, image: Tensor) -> Tensor | Tensors:
        """Maps ``[B, 3, H, W]`` to logits ``[B, C]``; without a head to what the file gives."""
        if self.head is not None:
            logits: Tensor = self.head(self._run(image, {"features": self.features})["features"])
            return logits
        return self._run(image, {"logits": self._logits, "features": self.features})

    def check_logits(self, image: Tensor) -> None:
        """Raises :class:`UserError` if the head does not make the logits of the file."""
        with torch.no_grad():
            computed = self(image)
            theirs = self._run(image, {"logits": self._logits})["logits"]
        assert isinstance(computed, Tensor)
        if computed.shape != theirs.shape or not torch.allclose(
            computed, theirs, rtol=1e-3, atol=1e-4
        ):
            raise UserError(
                f"{self.path}: the last layer does not make '{self._logits}' of "
                f"'{self.features}': leave model.features out, and the graph says of what it does"
            )

    def extra_repr(self) -> str:
        """What keys its features: the file's content and the tensors that are read."""
        return f"sha256={self._sha256}, {self.features} -> {self._logits}"

    def __getstate__(self) -> dict[str, Any]:
        """Without the session, which belongs to one process."""
        return self.__dict__ | {"_session": None}

    def _run(self, image: Tensor, names: Mapping[str, str | None]) -> Tensors:
        """The tensors of the file with these names, by key; none where the name is None."""
        if self._session is None:
            self._session = onnx_session(self._model)
        wanted = {key: name for key, name in names.items() if name}

        def run(part: Tensor) -> Tensors:
            outputs = self._session.run(list(wanted.values()), {self._input: part.numpy()})
            return dict(zip(wanted, map(torch.from_numpy, outputs), strict=True))

        pixels = image.detach().float().cpu().contiguous()
        outputs = in_batches(pixels, self._batch, run)
        return {key: values.to(image.device) for key, values in outputs.items()}


class _Linears:
    """The linear layers of a graph, as exporters write them: ``Gemm``, ``MatMul``, and ``Add``."""

    def __init__(self, graph: Any) -> None:
        from onnx import numpy_helper

        self._makers = {name: node for node in graph.node for name in node.output}
        self._constants = {i.name: numpy_helper.to_array(i) for i in graph.initializer}
        for node in graph.node:
            for attribute in node.attribute if node.op_type == "Constant" else ():
                if attribute.name == "value":
                    self._constants[node.output[0]] = numpy_helper.to_array(attribute.t)

    def of(self, name: str) -> tuple[str, np.ndarray, np.ndarray] | None:
        """Input, weight ``[C, D]`` and bias ``[C]`` of the layer that makes a tensor."""
        node = self._makers.get(name)
        if node is None:
            return None
        if node.op_type == "Add":
            for layer, constant in (node.input, reversed(node.input)):
                shift = self._constants.get(constant)
                if shift is None or (parts := self.of(layer)) is None:
                    continue
                if shift.size in (1, len(parts[2])):
                    return parts[0], parts[1], parts[2] + shift.reshape(-1)
            return None
        if node.op_type not in ("MatMul", "Gemm"):
            return None
        weight = self._constants.get(node.input[1])
        if weight is None or weight.ndim != 2:
            return None
        options = {a.name: a.f if a.name in ("alpha", "beta") else a.i for a in node.attribute}
        weight = weight if options.get("transB") else weight.T
        shift = self._constants.get(node.input[2]) if len(node.input) > 2 else np.zeros(1)
        if shift is None or options.get("transA"):
            return None
        bias = np.broadcast_to(shift.reshape(-1), len(weight)) * options.get("beta", 1.0)
        return node.input[0], weight * options.get("alpha", 1.0), bias


def require_onnx(what: str) -> None:
    """Raises :class:`UserError` where the packages that read and run ONNX files are missing."""
    with reported_as(
        f"{what} needs onnx and onnxruntime: pip install 'ood_lab[onnx]'", ImportError
    ):
        import onnx  # noqa: F401
        import onnxruntime  # noqa: F401 - needed in the end


def _read(path: Path) -> Any:
    require_onnx("model=onnx")
    import onnx

    if not path.is_file():
        raise UserError(f"model.path={path} does not exist: name an ONNX file")
    with reported_as(f"model.path={path} is not a whole ONNX file: {{reason}}"):
        model = onnx.load(path)
        onnx.checker.check_model(model)
    return model


def onnx_session(model: bytes) -> Any:
    """What runs the graph: on a GPU where onnxruntime has one."""
    import onnxruntime

    options = onnxruntime.SessionOptions()
    options.intra_op_num_threads = torch.get_num_threads()
    options.log_severity_level = 3
    here = onnxruntime.get_available_providers()
    wanted = [p for p in ("CUDAExecutionProvider", "CPUExecutionProvider") if p in here]
    return onnxruntime.InferenceSession(model, options, providers=wanted)


def _output(graph: Any, chosen: str | None, path: Path, key: str) -> str:
    names = [output.name for output in graph.output]
    if chosen is None and len(names) == 1:
        return str(names[0])
    if chosen is None:
        raise UserError(f"{path} has the outputs {', '.join(names)}: give model.{key}=NAME")
    tensors = [name for node in graph.node for name in node.output]
    if chosen not in tensors:
        raise UserError(f"{path} has no output '{chosen}': {suggestion(chosen, names)}")
    return chosen


def _input(graph: Any, path: Path) -> tuple[str, int | None, tuple[int, ...] | None]:
    """Name of the images, their number where it is fixed, and their size where it is."""
    constants = {i.name for i in graph.initializer}
    inputs = [i for i in graph.input if i.name not in constants]
    if len(inputs) != 1:
        names = ", ".join(i.name for i in inputs)
        raise UserError(f"{path} takes {len(inputs)} inputs ({names}): one, images, is supported")
    kind = inputs[0].type.tensor_type
    shape: list[int | None] = [d.dim_value or None for d in kind.shape.dim]
    if len(shape) != 4 or shape[1] not in (None, 3) or kind.elem_type != _FLOAT:
        words = [str(n or "?") for n in shape]
        raise UserError(
            f"{path} takes [{', '.join(words)}]: images must be float32 [B, 3, height, width]"
        )
    fixed = shape[2] is not None and shape[3] is not None
    return inputs[0].name, shape[0], (3, shape[2] or 0, shape[3] or 0) if fixed else None
