"""Feature banks from arrays, and from a network in one call."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from itertools import chain
from typing import Any

import numpy as np
import torch
from numpy.typing import ArrayLike
from torch import Tensor, nn

from ood_lab.api.detector_settings import Chosen, chosen_detectors
from ood_lab.common.errors import UserError
from ood_lab.features.bank import FeatureBank
from ood_lab.features.lightning_extractor import Extractor, frozen
from ood_lab.models import FITTED, Backbone, WrappedBackbone, check_contract
from ood_lab.models.head_check import linear_layers_giving_logits

Head = nn.Linear | tuple[ArrayLike, ArrayLike | None]
Images = Iterable[Any] | Tensor
Features = FeatureBank | ArrayLike | tuple[ArrayLike, ArrayLike | None]


def features_from_arrays(
    features: ArrayLike,
    labels: ArrayLike | None = None,
    *,
    head: Head,
    logits: ArrayLike | None = None,
) -> FeatureBank:
    """A feature bank of what you have extracted yourself.

    Args:
        features: the input of the last linear layer, ``[N, D]``.
        labels: ``[N]``, -1 = unknown or OOD; None = all unknown.
        head: the last linear layer, or its ``(weight [C, D], bias [C] or None)``.
        logits: ``[N, C]``; None = computed from features and head. Given ones are checked.

    Raises:
        UserError: shapes that do not fit, values that are not finite, or logits that are not those
            of the head.
    """
    x = _matrix(features, "features")
    weight, bias = _head_arrays(head)
    if weight.shape[1] != x.shape[1]:
        raise UserError(
            f"features {list(x.shape)} do not fit the head {list(weight.shape)}: give the input of "
            "the last linear layer, [N, D], and a head [C, D]"
        )
    own = x @ weight.T + bias
    if logits is not None:
        given = _matrix(logits, "logits")
        if given.shape != own.shape:
            raise UserError(f"logits {list(given.shape)} should be {list(own.shape)}")
        error = float((given - own).abs().max())
        if error > 1e-3 * max(1.0, float(own.abs().max())):
            raise UserError(
                f"the logits are not those of the head: off by {error:.2g}; are these the "
                "features that the last layer got, and its own weights?"
            )
        own = given
    y = torch.full((len(x),), -1) if labels is None else _labels(labels, len(x))
    if len(y) and int(y.max()) >= len(weight):
        raise UserError(
            f"labels go up to {int(y.max())}, the head has the classes 0 to {len(weight) - 1}: "
            "number the classes as the head does, -1 for none"
        )
    return FeatureBank(x, own, y, torch.arange(len(x)), weight, bias)


def banks_of(
    train: Features, others: Mapping[str, Features]
) -> tuple[FeatureBank, dict[str, FeatureBank]]:
    """Feature banks of what was given as arrays, too: ``x [N, D]`` or ``(x, labels [N])``.

    Their head is that of the banks among them; where there is none, a linear head (ridge
    regression) that is fitted on ``train``.

    Raises:
        UserError: ``train`` has no labels, or one class; see :func:`features_from_arrays`.
    """
    banks = [of for of in (train, *others.values()) if isinstance(of, FeatureBank)]
    if banks:
        head: Head = (banks[0].head_weight, banks[0].head_bias)
    else:
        x, y = _pair(train)
        if y is None:
            raise UserError("train has no labels: give train=(features, labels)")
        labels = _labels(y, len(np.asarray(x)))
        classes = int(labels.max()) + 1
        if classes < 2 or not bool(torch.bincount(labels.clamp(min=0), minlength=classes).all()):
            raise UserError(
                "a head is fitted on train=(features, labels), whose labels should be those of two "
                "classes at least, each with images: number them from 0"
            )
        head = FITTED["linear"](_matrix(x, "features of train"), labels, classes)

    def bank(of: Features) -> FeatureBank:
        return of if isinstance(of, FeatureBank) else features_from_arrays(*_pair(of), head=head)

    return bank(train), {name: bank(of) for name, of in others.items()}


def _pair(of: Any) -> tuple[ArrayLike, ArrayLike | None]:
    if isinstance(of, tuple):
        x, y = of
        return x, y
    return of, None


def extract_features(
    module: nn.Module,
    images: Images,
    labels: ArrayLike | None = None,
    *,
    head: str | None = None,
    detectors: Chosen = (),
    std: float | Sequence[float] = 1.0,
) -> FeatureBank:
    """One pass of a network over images: features, logits and labels in a bank.

    Args:
        module: any torch module or LightningModule that maps ``[B, 3, H, W]`` to logits and ends in
            a linear layer; left as it was, on its own device.
        images: a DataLoader, or any iterable of batches: tensors, ``(images, labels)``, or dicts
            with ``image`` and ``label``; or one tensor ``[N, 3, H, W]``. Normalised as the network
            expects.
        labels: of a tensor; None = those of the batches, else unknown.
        head: name of the last linear layer; None = found.
        detectors: those that work inside this pass (``odin``, ``gram``, ...), as in
            :func:`evaluate`: what they need is computed too.
        std: the standard deviation by which images were normalised, so that the steps of ODIN and
            its like are in pixels.

    Raises:
        UserError: there is no image, or no linear layer gives the logits.
    """
    batches = _batches(images, labels)
    first = next(batches, None)
    if first is None:
        raise UserError("there is no image in images")
    backbone = as_backbone(module, first["image"], head, std)
    chosen = chosen_detectors(detectors, "openood") if detectors else {}
    columns = {
        d.extraction_hook.key: d.extraction_hook
        for d in chosen.values()
        if d.extraction_hook is not None
    }
    extractor = Extractor(backbone, list(columns.values()))
    device = next(module.parameters()).device
    parts = []
    with frozen(backbone), torch.no_grad():
        extractor.on_predict_start()
        try:
            for number, batch in enumerate(chain([first], batches)):
                moved = batch | {"image": batch["image"].to(device)}
                parts.append(extractor.predict_step(moved, number))
        finally:
            extractor.close()
    return _joined(parts, backbone)


def _joined(parts: Sequence[dict[str, Any]], backbone: Backbone) -> FeatureBank:
    def whole(*path: str) -> Tensor:
        tensors = []
        for part in parts:
            node: Any = part
            for key in path:
                node = node[key]
            tensors.append(node.cpu())
        return torch.cat(tensors)

    weight, bias = _head_arrays(backbone.head)
    return FeatureBank(
        whole("features"),
        whole("logits"),
        whole("labels"),
        torch.arange(sum(len(part["features"]) for part in parts)),
        weight,
        bias,
        {key: whole("columns", key) for key in parts[0]["columns"]},
    )


def as_backbone(
    module: nn.Module, image: Tensor, head: str | None, std: float | Sequence[float]
) -> Backbone:
    """The module as a backbone, its head found and checked."""
    if isinstance(module, Backbone):
        return module
    if head is None:
        like = next(module.parameters())
        found = linear_layers_giving_logits(module, image[:2].to(like.device, like.dtype))
        if not found:
            raise UserError(
                f"no linear layer of {type(module).__name__} gives its logits: name the last one "
                "with head=..., and give a module that returns the logits alone"
            )
        head = found[-1]
    backbone = WrappedBackbone(module, head)
    spread = [float(std)] * 3 if isinstance(std, int | float) else [float(s) for s in std]
    backbone.data_config = {"input_size": tuple(image.shape[1:]), "std": tuple(spread)}
    check_contract(backbone)
    return backbone


def _batches(images: Images, labels: ArrayLike | None) -> Iterator[dict[str, Tensor]]:
    """Batches as the extraction has them, ``{image, label, index}``."""
    if isinstance(images, np.ndarray):
        images = torch.as_tensor(images)
    if labels is not None and not isinstance(images, Tensor):
        raise UserError(
            "labels are for images in one tensor [N, 3, H, W]: batches hold their own, as "
            "(images, labels) or {'image': ..., 'label': ...}"
        )
    if isinstance(images, Tensor):
        _check_images(images)
        known = None if labels is None else _labels(labels, len(images))
        pieces = images.split(256)
        named = known.split(256) if known is not None else [None] * len(pieces)
        images = zip(pieces, named, strict=True)
    start = 0
    for batch in images:
        if isinstance(batch, Mapping):
            image, label = batch["image"], batch.get("label")
        else:
            image, label = (batch, None) if isinstance(batch, Tensor) else tuple(batch)[:2]
        _check_images(image)
        n = len(image)
        label = torch.full((n,), -1) if label is None else _labels(label, n)
        yield {"image": image, "label": label, "index": torch.arange(start, start + n)}
        start += n


def _check_images(images: Any) -> None:
    shape = list(getattr(images, "shape", ()))
    if not isinstance(images, Tensor) or images.ndim != 4:
        what = f"of shape {shape}" if shape else f"a {type(images).__name__}"
        raise UserError(
            f"images are {what}: give a tensor [N, 3, H, W], or batches of such "
            "(one image alone: image[None])"
        )
    if not images.is_floating_point():
        raise UserError(
            f"images are {images.dtype}: give numbers as the network expects them, as in "
            "(images.float() / 255 - mean) / std"
        )


def _labels(labels: ArrayLike, n: int) -> Tensor:
    """``[n] int64``, -1 = unknown or OOD."""
    given = labels.cpu() if isinstance(labels, Tensor) else torch.as_tensor(np.asarray(labels))
    if given.shape != (n,):
        raise UserError(f"labels {list(given.shape)} should be [{n}], one number per image")
    whole = given.long()
    if bool((whole != given).any()) or bool((whole < -1).any()):
        raise UserError("labels should be whole numbers from 0, and -1 where there is none")
    return whole


def _matrix(values: ArrayLike, name: str) -> Tensor:
    matrix = (
        values.detach().cpu() if isinstance(values, Tensor) else torch.as_tensor(np.asarray(values))
    )
    matrix = matrix.float()
    if matrix.ndim != 2:
        raise UserError(
            f"{name} {list(matrix.shape)} should have two dimensions, one row per image"
        )
    if not bool(matrix.isfinite().all()):
        raise UserError(f"{name} have NaN or infinite values")
    return matrix


def _head_arrays(head: Head) -> tuple[Tensor, Tensor]:
    weight, bias = (head.weight, head.bias) if isinstance(head, nn.Linear) else head
    w = _matrix(weight, "the weights of the head")
    if bias is None:
        return w, torch.zeros(len(w))
    return w, _matrix(torch.as_tensor(bias)[None], "the biases of the head")[0]
