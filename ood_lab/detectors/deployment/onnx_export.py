"""A network together with a fitted detector as one ONNX file."""

from __future__ import annotations

import copy
import io
import json
import logging
import warnings
from collections.abc import Callable, Sequence
from contextlib import redirect_stdout
from itertools import cycle
from pathlib import Path
from types import FunctionType
from typing import Any

import numpy as np
import torch
from PIL import Image
from torch import Tensor, nn
from torch.overrides import TorchFunctionMode
from torchvision.transforms import CenterCrop, Compose, Grayscale, Normalize, Resize, ToTensor

from ood_lab.common.errors import UserError, reported_as
from ood_lab.common.files import StrPath, replaced
from ood_lab.common.tensor_arithmetic import random_numbers
from ood_lab.common.tensor_file import Transform
from ood_lab.detectors.base import Detector
from ood_lab.detectors.deployment.calibration import CalibratedDetector
from ood_lab.detectors.support.compute_device import computing_on
from ood_lab.features.bank import FeatureBank, weight_and_bias
from ood_lab.features.image_groups import group_weights
from ood_lab.models import Backbone
from ood_lab.models.image_transforms import NormalisedTensor

log = logging.getLogger(__name__)

#: Operators that PyTorch 2.8 and onnxruntime 1.20 both know.
OPSET = 17
#: Images that the graph is traced with; it takes any number.
TRACED = 2
#: Largest difference of logits from PyTorch's, as a share of a logit and of their spread.
TOLERANCE = 1e-4
#: Largest difference of a score, as a share of the spread of the held-out ID scores.
SHARE = 0.01
#: Contrasts at which some images are compared once more, and how many are.
CONTRASTS, VARIED = (-1.0, 0.0, 0.3, 3.0), 4
#: Largest difference of a p-value between a graph with its preprocessing and PyTorch.
P_VALUE = 0.02
#: Width and height of pictures, as shares of their own, that such a graph is compared on.
SIZES = ((1.0, 1.0), (0.7, 0.9), (1.6, 1.4))


def require_onnx(what: str) -> None:
    """Raises :class:`UserError` where the packages that write and run ONNX files are missing."""
    with reported_as(
        f"{what} needs onnx and onnxruntime: pip install 'ood_lab[onnx]'", ImportError
    ):
        import onnx  # noqa: F401
        import onnxruntime  # noqa: F401 - needed in the end


def cannot_export(detector: Detector, backbone: Backbone) -> str | None:
    """Why a detector of this network cannot be an ONNX graph, as far as is known beforehand."""
    if not backbone.differentiable:
        return f"{backbone.name} is an exported file itself, and no graph of PyTorch"
    if "tiles" in detector.used:
        return f"{detector.name} scores tiles of images, and such a graph takes whole ones"
    if (hook := detector.extraction_hook) is not None and not hook.traceable:
        return f"{detector.name} reads gradients or inner layers, which such a graph does not give"
    return None


def save_onnx(
    path: StrPath,
    backbone: Backbone,
    calibrated: CalibratedDetector,
    images: Tensor,
    pictures: Sequence[Image.Image] = (),
    transform: Transform | None = None,
) -> float | None:
    r"""Writes ``image -> logits [B, C] float32, score [B] float64, p_value [B], is_ood [B]``.

    ``image`` is ``[B, H, W, 3] uint8`` RGB of any size: the graph begins with the transform
    (:class:`~ood_lab.detectors.deployment.onnx_export.Preprocessing`). Without ``pictures``,
    or where a step of the transform cannot be in a graph, ``image`` is ``[B, 3, H, W] float32`` as
    the transform makes it, and there are only logits and score: an image is OOD where ``rule``
    says, ``score > threshold``, or ``score >= threshold`` where the threshold was given.
    A network that gives features only has no logits in it.

    The file's metadata say ``preprocessing``, ``threshold``, ``rule``, ``alpha`` (where it made the
    threshold), ``detector``, ``classes``, ``weights_sha256``, ``transform``, ``pixel_range`` and
    ``deviation``. The written graph is run by onnxruntime and compared with PyTorch: network and
    score also on variants of the images, so that their scores spread although the images may be
    alike; p-values on the pictures in three sizes.

    Args:
        path: of the file.
        backbone: that the detector was fitted on.
        calibrated: the fitted detector.
        images: ``[N, 3, H, W]``, N > 0, transformed, to compare the graph with.
        pictures: RGB, to compare the graph with its preprocessing.
        transform: of pictures; None = that of the backbone.

    Returns:
        The largest deviation of a p-value; None without preprocessing.

    Raises:
        UserError: onnx or onnxruntime is missing, the detector or the network has no such graph,
            or the graph gives other scores or decisions than PyTorch.
    """
    require_onnx("an exported detector")
    detector, place = calibrated.detector, Path(path)
    if reason := cannot_export(detector, backbone):
        raise UserError(f"{detector.name} cannot be exported: {reason}")
    scored = _Scored(copy.deepcopy(backbone).cpu().float(), detector).eval()
    images = _varied(images.detach().float().cpu())
    p_deviation = None
    with torch.no_grad(), computing_on("cpu"):
        logits, scores = scored(images)
        label = f"{detector.name} on {backbone.name}"
        graph = _traced(scored, images[:TRACED], scored.outputs, label)
        (outputs,) = _run(graph, [images], detector.name)
        if backbone.num_classes:
            spread = float(logits.std()) or 1.0
            _compare(detector.name, "logits", outputs[0], logits, 0.0, spread, TOLERANCE)
        centre, spread = _spread_of(calibrated.id_scores.double())
        deviation = _compare(detector.name, "score", outputs[-1], scores, centre, spread, SHARE)
        log.info(
            "%s: the scores of its ONNX graph differ from PyTorch's by at most %.1g of the spread "
            "of held-out ID scores",
            detector.name,
            deviation,
        )
        facts = {"preprocessing": "false"}
        if pictures and (before := _preprocessing(backbone, transform, detector.name)):
            deployed = _Deployed(
                before, scored, calibrated
            ).eval()  # the exporter restores its mode
            example = torch.zeros(TRACED, 61, 47, 3, dtype=torch.uint8)
            names = [*scored.outputs, "p_value", "is_ood"]
            graph = _traced(deployed, example, names, label)
            make = transform or backbone.transform
            p_deviation = _compare_decisions(graph, scored, calibrated, pictures, make)
            facts = {"preprocessing": "true", "deviation": repr(p_deviation)}
    content = _described(graph, calibrated, facts)
    with reported_as(f"'{place}' cannot be written: {{reason}}", OSError), replaced(place) as file:
        file.write_bytes(content)
    return p_deviation


def _preprocessing(
    backbone: Backbone, transform: Transform | None, name: str
) -> Preprocessing | None:
    """The transform as part of the graph; None, with a warning, where it cannot be."""
    try:
        return Preprocessing(transform or backbone.transform)
    except UserError as error:
        log.warning(
            "%s: %s, which is not in the ONNX graph: it takes images as the transform makes them",
            name,
            error,
        )
        return None


def _varied(images: Tensor) -> Tensor:
    """The images, and of some of them other contrasts and colours, and blends; and noise."""
    few = images[:VARIED]
    blends = (few + few.roll(1, 0).flip(-1)) / 2
    noise = torch.randn(few.shape, generator=random_numbers(0))
    variants = [*(factor * few for factor in CONTRASTS), few.roll(1, 1), blends, noise]
    return torch.cat([images, *variants])


class _Scored(nn.Module):
    """Logits and score of images, as one function of them."""

    def __init__(self, backbone: Backbone, detector: Detector) -> None:
        super().__init__()
        self.backbone = backbone
        self.detector = detector
        self.hook = detector.extraction_hook
        self.layers = self.hook.layers(backbone) if self.hook else []

    @property
    def outputs(self) -> list[str]:
        """Names of the outputs of its graph."""
        return ["logits", "score"] if self.backbone.num_classes else ["score"]

    def forward(self, image: Tensor) -> tuple[Tensor, ...]:
        with self.backbone.capture(self.layers) as maps:
            output, n = self.backbone(image), len(image)
            hook = self.hook
            columns = {hook.key: hook.compute(self.backbone, image, output, maps)} if hook else {}
        weight, bias = weight_and_bias(self.backbone.head)
        labels, index = torch.full((n,), -1), torch.arange(n)
        bank = FeatureBank(output.features, output.logits, labels, index, weight, bias, columns)
        outputs = output.logits, self.detector.score(bank).double()
        return outputs if self.backbone.num_classes or not torch.jit.is_tracing() else outputs[1:]


class _Deployed(nn.Module):
    """From a picture to the decision."""

    def __init__(
        self, before: Preprocessing, scored: _Scored, calibrated: CalibratedDetector
    ) -> None:
        super().__init__()
        self.before, self.scored, self.calibrated = before, scored, calibrated
        groups, n = calibrated.id_groups, len(calibrated.id_scores)
        self.weights = torch.ones(n).double() if groups is None else group_weights(groups)

    def forward(self, image: Tensor) -> tuple[Tensor, ...]:
        *logits, score = self.scored(self.before(image))
        calibrated = self.calibrated
        above = (calibrated.id_scores[None] >= score[:, None]).double() * self.weights
        # Whole groups are whole numbers, whose p-value may be alpha itself.
        at_least = (above.sum(dim=1) * 1e9).round() / 1e9
        p_value = (1 + at_least) / (calibrated.groups + 1)
        by_p = calibrated.alpha is not None
        is_ood = p_value <= calibrated.alpha if by_p else score >= calibrated.threshold
        return *logits, score, p_value, is_ood


class _WithinRange(TorchFunctionMode):
    """log Σ exp without overflow: onnxruntime's own gives infinity where a logit exceeds 709."""

    def __torch_function__(
        self, func: Any, types: Any, args: tuple[Any, ...] = (), kwargs: Any = None
    ) -> Any:
        if func not in (torch.logsumexp, Tensor.logsumexp):
            return func(*args, **(kwargs or {}))
        x, dim, keepdim = _arguments(*args, **(kwargs or {}))
        largest = x.amax(dim, keepdim=True)
        outputs = largest + (x - largest).exp().sum(dim, keepdim=True).log()
        return outputs if keepdim else outputs.squeeze(dim)


def _arguments(input: Tensor, dim: int, keepdim: bool = False) -> tuple[Tensor, int, bool]:
    return input, dim, keepdim


def _traced(module: nn.Module, images: Tensor, names: list[str], label: str) -> bytes:
    file = io.BytesIO()
    failure = (
        f"{label} cannot be exported: PyTorch makes no ONNX graph of it ({{reason}}); {_REMEDY}"
    )
    axes: dict[str, dict[int, str]] = {key: {0: "n"} for key in ("image", *names)}
    if images.dtype == torch.uint8:
        axes["image"] |= {1: "height", 2: "width"}
    # It warns of all that is traced, and prints the graph that it fails at.
    with (
        reported_as(failure, (UserError, Exception)),
        warnings.catch_warnings(action="ignore"),
        redirect_stdout(None),
        _WithinRange(),
    ):
        torch.onnx.export(
            module,
            (images,),
            file,  # type: ignore[arg-type]  # this exporter takes a file, too
            input_names=["image"],
            output_names=names,
            dynamic_axes=axes,
            opset_version=OPSET,
            dynamo=False,  # the other one needs onnxscript
        )
    return file.getvalue()


def _described(graph: bytes, calibrated: CalibratedDetector, more: dict[str, str]) -> bytes:
    """The graph with what its scores mean."""
    import onnx

    model = onnx.load_from_string(graph)
    facts = {
        "detector": f"{calibrated.detector.name} {json.dumps(calibrated.detector.describe())}",
        "threshold": repr(calibrated.threshold),
        "rule": calibrated.rule,
        "calibration": f"{calibrated.calibration}, {calibrated.id_in_words}",
        "classes": json.dumps(calibrated.classes, ensure_ascii=False),
        "weights_sha256": calibrated.weights_sha256,
        "transform": calibrated.transform,
        "pixel_range": json.dumps(calibrated.pixel_range),
        **more,
    }
    if calibrated.alpha is not None:
        facts["alpha"] = repr(calibrated.alpha)
    onnx.helper.set_model_props(model, facts)
    content: bytes = model.SerializeToString()
    return content


def _run(graph: bytes, batches: Sequence[Tensor], name: str) -> list[list[Tensor]]:
    """The outputs of onnxruntime, with as many threads as PyTorch runs the network with."""
    import onnxruntime

    options = onnxruntime.SessionOptions()
    options.intra_op_num_threads = torch.get_num_threads()
    options.log_severity_level = 3
    with reported_as(
        f"{name} cannot be exported: onnxruntime does not run its graph ({{reason}}); {_REMEDY}"
    ):
        session = onnxruntime.InferenceSession(graph, options, providers=["CPUExecutionProvider"])
        outputs = [session.run(None, {"image": batch.numpy()}) for batch in batches]
    return [[*map(torch.from_numpy, values)] for values in outputs]


def _compare(
    name: str, what: str, outputs: Tensor, wanted: Tensor, centre: float, spread: float, most: float
) -> float:
    """The largest difference from PyTorch's as a share of their spread, which may be ``most``.

    What is far from the centre may differ by :data:`TOLERANCE` of its distance as well.

    Raises:
        UserError: the graph computes something else.
    """
    worst = torch.inf
    if outputs.shape == wanted.shape:
        far = TOLERANCE * (wanted - centre).abs()
        worst = float((((outputs - wanted).abs() - far) / spread).max())
    if worst <= most:
        return max(worst, 0.0)
    raise UserError(
        f"{name} cannot be exported: its {what} as an ONNX graph differs from PyTorch's by up to "
        f"{worst:.0%} of their spread; {_REMEDY}"
    )


def _spread_of(scores: Tensor) -> tuple[float, float]:
    """Centre and spread of held-out ID scores, which may all be equal."""
    centre, spread = float(scores.median()), float(scores.max() - scores.min())
    return centre, spread or TOLERANCE * abs(centre) or 1.0


def _compare_decisions(
    graph: bytes,
    scored: _Scored,
    calibrated: CalibratedDetector,
    pictures: Sequence[Image.Image],
    transform: Transform,
) -> float:
    """The largest deviation of a p-value from the run's, on pictures of three sizes.

    Raises:
        UserError: it exceeds :data:`P_VALUE` and one rank, or the run decides otherwise where the
            p-values agree.
    """
    name, worst = calibrated.detector.name, 0.0
    allowed = max(P_VALUE, 1 / (calibrated.groups + 1)) + 1e-9  # one rank, where there are few
    resized = []
    for picture, shares in zip(pictures, cycle(SIZES), strict=False):
        size = [max(1, round(s * n)) for s, n in zip(shares, picture.size, strict=True)]
        resized.append(picture.convert("RGB").resize((size[0], size[1])))
    outputs = _run(graph, [torch.from_numpy(np.array(one)[None]) for one in resized], name)
    for picture, (*_, p_value, is_ood) in zip(resized, outputs, strict=True):
        scores = scored(transform(picture)[None].float())[-1]
        wanted, decision = float(calibrated.p_values(scores)), bool(calibrated.is_ood(scores))
        gap = abs(wanted - float(p_value[0]))
        worst = max(worst, gap)
        if calibrated.alpha is None:
            spread = float(calibrated.id_scores[-1] - calibrated.id_scores[0])
            near = abs(float(scores) - calibrated.threshold) <= SHARE * spread
        else:
            near = abs(wanted - calibrated.alpha) <= allowed
        if gap > allowed or (decision != bool(is_ood[0]) and not near):
            raise UserError(
                f"{name} cannot be exported: p-value and decision of its ONNX graph are "
                f"{float(p_value[0]):.3g}, {bool(is_ood[0])} and PyTorch's {wanted:.3g}, "
                f"{decision} for one picture; {_REMEDY}"
            )
    log.info(
        "%s: with its preprocessing, p-values of the ONNX graph differ from the run's by at most "
        "%.2g on %d pictures of three sizes",
        name,
        worst,
        len(pictures),
    )
    return worst


_REMEDY = "take another detector, or load its .safetensors with ood_lab.load_detector"


def _bilinear(x: Tensor) -> Tensor:
    return (1 - x.abs()).clamp(min=0)


def _bicubic(x: Tensor) -> Tensor:
    """Keys' kernel with a = -0.5, as Pillow has it."""
    x = x.abs()
    near, far = (1.5 * x - 2.5) * x * x + 1, ((-0.5 * x + 2.5) * x - 4) * x + 2
    return torch.where(x < 1, near, torch.where(x < 2, far, torch.zeros_like(x)))


#: Binary digits of Pillow's weights.
BITS = 22
KERNELS: dict[str, Callable[[Tensor], Tensor]] = {"bilinear": _bilinear, "bicubic": _bicubic}


class Preprocessing(nn.Module):
    r"""``image uint8 [B, H, W, 3]`` of any size → what the network takes, ``[B, C, h, w] float32``.

    Resize is that of Pillow, to the last bit: pixel i of n' made of n pixels is

    .. math::
        y_i = \Big\lfloor \tfrac12 + \sum_j w_{ij} x_j \Big\rfloor_0^{255}, \quad
        w_{ij} \propto k\Big(\frac{j + \frac12 - (i + \frac12) n / n'}{\max(1, n / n')}\Big)

    first along the width, then along the height (Pillow 13 begins with a height that shrinks far
    more than the width); w_ij are multiples of 2^-22. The operator Resize of ONNX rounds neither
    weights nor the first result.

    Args:
        transform: of torchvision: [Grayscale], Resize, CenterCrop, ToTensor, Normalize.

    Raises:
        UserError: it has another step; the message names it.
    """

    def __init__(self, transform: Any) -> None:
        super().__init__()
        step_of: dict[type, Any] = {type(step): step for step in _steps(transform)}
        self.grey = Grayscale in step_of
        resize, crop, normalise = map(step_of.get, (Resize, CenterCrop, Normalize))
        self.kernel = KERNELS["bilinear"] if resize is None else _kernel(resize)
        self.size: list[int] | int | None = None if resize is None else resize.size
        if isinstance(self.size, (list, tuple)) and len(self.size) == 1:
            self.size = self.size[0]
        self.crop = None if crop is None else [int(side) for side in crop.size]
        sides = self.size if isinstance(self.size, list | tuple) else [self.size or 0] * 2
        if self.crop and any(c > s for c, s in zip(self.crop, sides, strict=True)):
            raise UserError(f"the transform crops {self.crop} of an image that may be smaller")
        if self.crop is None and not isinstance(self.size, list | tuple):
            raise UserError("the transform gives images of different sizes")
        mean, std = (normalise.mean, normalise.std) if normalise else ([0.0], [1.0])
        self.mean, self.std = (
            torch.as_tensor(values).float()[:, None, None] for values in (mean, std)
        )

    def forward(self, image: Tensor) -> Tensor:
        """See the class."""
        x = image.permute(0, 3, 1, 2)
        if self.grey:  # Pillow's integers
            r, g, b = x.int().unbind(dim=1)
            x = ((19595 * r + 38470 * g + 7471 * b + 32768) // 65536)[:, None]
        x, shape = x.double(), torch._shape_as_tensor(image)
        height, width = shape[1], shape[2]
        h, w = self._resized(height, width)
        rows, columns = self.crop or self.size  # type: ignore[misc]
        x = _eight_bits(x @ self._weights(width, w, columns).T)
        x = _eight_bits(self._weights(height, h, rows) @ x)
        return (x.float() / 255 - self.mean) / self.std

    def _resized(self, height: Tensor, width: Tensor) -> tuple[Tensor, Tensor]:
        if self.size is None:
            return height, width
        if isinstance(self.size, list | tuple):
            h, w = (torch.tensor(int(side)) for side in self.size)
            return h, w
        short = torch.minimum(height, width)
        return self.size * height // short, self.size * width // short

    def _weights(self, before: Tensor, after: Tensor, kept: int) -> Tensor:
        """``[kept, before]``: of the middle of the pixels after the resize."""
        first = ((after - kept).double() / 2).round()
        scale = before.double() / after.double()
        centre = (first + torch.arange(kept) + 0.5) * scale
        places = torch.arange(before)  # type: ignore[call-overload]  # a tensor in the graph
        offset = places.double() + 0.5 - centre[:, None]
        weights = self.kernel(offset / scale.clamp(min=1))
        fixed = weights / weights.sum(dim=1, keepdim=True) * 2**BITS
        return fixed.sign() * (fixed.abs() + 0.5).floor()


def _eight_bits(x: Tensor) -> Tensor:
    """Of sums in units of 2^-22, which are exact."""
    return ((x + 2 ** (BITS - 1)) / 2**BITS).floor().clamp(0, 255)


def _kernel(resize: Resize) -> Callable[[Tensor], Tensor]:
    name = str(resize.interpolation.value)
    if name not in KERNELS or resize.max_size is not None:
        raise UserError(f"the transform has {resize}")
    return KERNELS[name]


def _steps(transform: Any) -> list[Any]:
    """The steps in their order, without those that change nothing of an RGB image (of open_clip).

    Raises:
        UserError: there is another, or the order is another.
    """
    steps: list[Any] = []
    for step in transform.transforms if isinstance(transform, Compose) else [transform]:
        if isinstance(step, Compose | NormalisedTensor):
            inner = step.steps if isinstance(step, NormalisedTensor) else step
            steps += _steps(inner)
        elif not isinstance(step, FunctionType) or step.__name__ != "_convert_to_rgb":
            steps.append(step)
    order: list[type] = [Grayscale, Resize, CenterCrop, ToTensor, Normalize]
    place = -1
    for step in steps:
        kind = ToTensor if type(step).__name__ == "MaybeToTensor" else type(step)
        if kind not in order[place + 1 :]:
            raise UserError(f"the transform has {step}")
        place = order.index(kind)
    return steps
