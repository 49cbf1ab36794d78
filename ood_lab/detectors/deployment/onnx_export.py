"""A network together with a fitted detector as one ONNX file."""

from __future__ import annotations

import copy
import io
import json
import logging
import warnings
from contextlib import redirect_stdout
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn
from torch.overrides import TorchFunctionMode

from ood_lab.common.errors import UserError, reported_as
from ood_lab.common.files import StrPath, replaced, share
from ood_lab.detectors.base import Detector
from ood_lab.detectors.deployment.calibration import CalibratedDetector
from ood_lab.detectors.support.compute_device import computing_on
from ood_lab.features.bank import FeatureBank, weight_and_bias
from ood_lab.models import Backbone, onnx_session, require_onnx

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


def cannot_export(detector: Detector, backbone: Backbone) -> str | None:
    """Why a detector of this network cannot be an ONNX graph, as far as is known beforehand."""
    if not backbone.differentiable:
        return f"{backbone.name} is an exported file itself, and no graph of PyTorch"
    if detector.extraction_hook is not None:
        return f"{detector.name} reads gradients or inner layers, which such a graph does not give"
    return None


def save_onnx(
    path: StrPath,
    backbone: Backbone,
    calibrated: CalibratedDetector,
    images: Tensor,
) -> None:
    r"""Writes ``image [B, 3, H, W] float32 -> logits [B, C] float32, score [B] float64``.

    A network that gives features only has no logits in it.
    ``score`` is that of ``calibrated.score``, and an image is OOD where ``rule`` says:
    ``score > threshold``, or ``score >= threshold`` where the threshold was given.
    The file's metadata say ``threshold``, ``rule``, ``alpha`` (where it made the threshold),
    ``detector``, ``classes``, ``weights_sha256`` and ``transform``, which the file leaves to its
    reader: images go in as the transform makes them. The written graph is run by onnxruntime and
    compared with PyTorch, also on variants of the images, so that their scores spread although
    the images may be alike.

    Args:
        path: of the file.
        backbone: that the detector was fitted on.
        calibrated: the fitted detector.
        images: ``[N, 3, H, W]``, N > 0, transformed, to compare the graph with.

    Raises:
        UserError: onnx or onnxruntime is missing, the detector or the network has no such graph,
            or the graph gives other scores than PyTorch.
    """
    require_onnx("an exported detector")
    detector, place = calibrated.detector, Path(path)
    if reason := cannot_export(detector, backbone):
        raise UserError(f"{detector.name} cannot be exported: {reason}")
    scored = _Scored(copy.deepcopy(backbone).cpu().float(), detector).eval()
    images = _varied(images.detach().float().cpu())
    with torch.no_grad(), computing_on("cpu"):
        logits, scores = scored(images)
        graph = _traced(scored, images[:TRACED], detector.name)
    content = _described(graph, calibrated)
    outputs = _run(content, images, detector.name)
    if backbone.num_classes:
        _compare("logits", outputs[0], logits, float(logits.std()), detector.name)
    deviation = _compare_scores(outputs[-1], scores, calibrated)
    log.info(
        "%s: the scores of its ONNX graph differ from PyTorch's by at most %.1g of the spread of "
        "held-out ID scores",
        detector.name,
        deviation,
    )
    try:
        with replaced(place) as file:
            file.write_bytes(content)
            share(file)
    except OSError as error:
        raise UserError(f"'{place}' cannot be written: {error}") from error


def _varied(images: Tensor) -> Tensor:
    """The images, and of some of them other contrasts and colours, and blends; and noise."""
    few = images[:VARIED]
    blends = (few + few.roll(1, 0).flip(-1)) / 2
    noise = torch.randn(few.shape, generator=torch.Generator().manual_seed(0))
    variants = [*(factor * few for factor in CONTRASTS), few.roll(1, 1), blends, noise]
    return torch.cat([images, *variants])


class _Scored(nn.Module):
    """Logits and score of images, as one function of them."""

    def __init__(self, backbone: Backbone, detector: Detector) -> None:
        super().__init__()
        self.backbone = backbone
        self.detector = detector

    def forward(self, image: Tensor) -> tuple[Tensor, ...]:
        output, n = self.backbone(image), len(image)
        weight, bias = weight_and_bias(self.backbone.head)
        labels, index = torch.full((n,), -1), torch.arange(n)
        bank = FeatureBank(output.features, output.logits, labels, index, weight, bias)
        outputs = output.logits, self.detector.score(bank).double()
        return outputs if self.backbone.num_classes or not torch.jit.is_tracing() else outputs[1:]


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


def _traced(scored: _Scored, images: Tensor, name: str) -> bytes:
    names = ["logits", "score"] if scored.backbone.num_classes else ["score"]
    file = io.BytesIO()
    failure = (
        f"{name} on {scored.backbone.name} cannot be exported: PyTorch makes no ONNX graph of "
        f"it ({{reason}}); {_REMEDY}"
    )
    # It warns of all that is traced, and prints the graph that it fails at.
    with (
        reported_as(failure, (UserError, Exception)),
        warnings.catch_warnings(action="ignore"),
        redirect_stdout(None),
        _WithinRange(),
    ):
        torch.onnx.export(
            scored,
            (images,),
            file,  # type: ignore[arg-type]  # this exporter takes a file, too
            input_names=["image"],
            output_names=names,
            dynamic_axes={key: {0: "n"} for key in ("image", *names)},
            opset_version=OPSET,
            dynamo=False,  # the other one needs onnxscript
        )
    return file.getvalue()


def _described(graph: bytes, calibrated: CalibratedDetector) -> bytes:
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
    }
    if calibrated.alpha is not None:
        facts["alpha"] = repr(calibrated.alpha)
    onnx.helper.set_model_props(model, facts)
    content: bytes = model.SerializeToString()
    return content


def _run(content: bytes, images: Tensor, name: str) -> list[Tensor]:
    """Logits and scores of onnxruntime."""
    with reported_as(
        f"{name} cannot be exported: onnxruntime does not run its graph ({{reason}}); {_REMEDY}"
    ):
        session = onnx_session(content)
        names = [output.name for output in session.get_outputs()]
        outputs = session.run(names, {"image": images.numpy()})
    return [torch.from_numpy(values) for values in outputs]


def _compare(what: str, outputs: Tensor, wanted: Tensor, spread: float, name: str) -> None:
    """Raises :class:`UserError` where the graph computes something else than PyTorch."""
    if outputs.shape == wanted.shape and torch.allclose(
        outputs.double(), wanted.double(), rtol=TOLERANCE, atol=TOLERANCE * spread
    ):
        return
    gap = (outputs - wanted).abs().max() if outputs.shape == wanted.shape else torch.inf
    raise UserError(
        f"{name} cannot be exported: its {what} as an ONNX graph differs from PyTorch's by up to "
        f"{float(gap):.2g}; {_REMEDY}"
    )


def _compare_scores(outputs: Tensor, wanted: Tensor, calibrated: CalibratedDetector) -> float:
    """The largest difference as a share of the spread of held-out ID scores.

    Scores far away from these may differ by :data:`TOLERANCE` of their distance as well.
    """
    scores = calibrated.id_scores.double()
    centre, spread = float(scores.median()), float(scores.max() - scores.min())
    spread = spread or TOLERANCE * abs(centre) or 1.0
    far = TOLERANCE / spread * (wanted - centre).abs()
    shares = (outputs.double() - wanted).abs() / spread - far
    worst = float(shares.max()) if outputs.shape == wanted.shape else torch.inf
    if worst <= SHARE:
        return max(worst, 0.0)
    raise UserError(
        f"{calibrated.detector.name} cannot be exported: its score as an ONNX graph differs from "
        f"PyTorch's by up to {worst:.0%} of the spread of held-out ID scores; {_REMEDY}"
    )


_REMEDY = "take another detector, or load its .safetensors with ood_lab.load_detector"
