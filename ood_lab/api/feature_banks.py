"""Feature banks from arrays, and from a network in one call."""

from __future__ import annotations

import json
import logging
from collections.abc import Mapping, Sequence
from itertools import chain
from typing import Any

import numpy as np
import torch
from numpy.typing import ArrayLike
from torch import Tensor, nn

from ood_lab.api.detector_settings import Chosen, chosen_detectors, explained, in_python
from ood_lab.api.image_batches import (
    Head,
    Images,
    batches_of,
    head_arrays,
    labels_of,
    matrix_of,
    split_item,
)
from ood_lab.api.loader_checks import EachImageOnce
from ood_lab.common.errors import UserError
from ood_lab.common.file_records import text_sha256
from ood_lab.common.tensor_arithmetic import largest_difference
from ood_lab.common.tensor_file import Batch, Tensors
from ood_lab.evaluation.shift.statistics_column import StatisticsColumn
from ood_lab.evaluation.split_features import columns_for, split_by_columns
from ood_lab.features.bank import TILES, Banks, FeatureBank, weight_and_bias
from ood_lab.features.bank_identity import NetworkIdentity
from ood_lab.features.extraction_hooks import TilesColumn
from ood_lab.features.image_groups import groups_of
from ood_lab.features.lightning_extractor import Extractor, frozen
from ood_lab.models import (
    FITTED,
    Backbone,
    WrappedBackbone,
    check_contract,
    check_determinism,
)
from ood_lab.models.image_transforms import of_unit_range
from ood_lab.models.loading.head_search import reading_of
from ood_lab.models.loading.wrapped_network import NO_HEAD
from ood_lab.models.output import as_logits, probabilities
from ood_lab.models.trial_passes import like_weights
from ood_lab.schema.image_columns import SEVERAL
from ood_lab.schema.run_record import BankRecord

log = logging.getLogger(__name__)

#: Column of the labels of a multi-label head, ``[N, C] bool``.
TARGETS = "targets"
Features = FeatureBank | ArrayLike | tuple[ArrayLike, ArrayLike | None]


def features_from_arrays(
    features: ArrayLike | None = None,
    labels: ArrayLike | None = None,
    *,
    head: Head | None = None,
    logits: ArrayLike | None = None,
    label_classes: int | None = None,
    network: str | None = None,
    groups: ArrayLike | None = None,
) -> FeatureBank:
    """A feature bank of what you have extracted yourself: features, logits, or both.

    The arrays are copied.

    Args:
        features: the input of the last linear layer, or any vector an image, ``[N, D]``.
        labels: ``[N]``, -1 = unknown or OOD; None = all unknown. Of a multi-label head ``[N, C]``,
            1 for each class of an image, else 0.
        head: the last linear layer, or its ``(weight [C, D], bias [C] or None)``; None = there is
            none.
        logits: ``[N, C]``; None = computed from features and head. With a head, given ones are
            checked. Of probabilities, the logarithm is taken; one column z stands for [0, z].
        label_classes: number of classes of the labels, where these are not classes of the head.
        network: any text that names the network and its weights; features of two networks are an
            error of :func:`evaluate` and of fitted detectors.
        groups: ``[N]``, a number or name that images of one thing share: frames of a scene, slices
            of a patient. Groups then count, not images. None = each image is its own.

    Raises:
        UserError: neither features nor logits, shapes that do not fit, values that are not finite,
            or logits that are not those of the head.
    """
    x = None if features is None else matrix_of(features, "features")
    z = None if logits is None else matrix_of(logits, "logits")
    weight, bias = weight_and_bias(None)
    if head is not None:
        weight, bias = head_arrays(head)
        z = _logits_of_head(x, z, weight, bias)
    elif z is not None:
        kind = probabilities(z)
        if kind == "softmax":
            log.warning("logits are probabilities: their logarithms serve as logits")
        z = as_logits(z, kind)
    arrays = [of for of in (x, z) if of is not None]
    if not arrays:
        raise UserError("give features [N, D], logits [N, C], or both")
    n = len(arrays[0])
    nothing = torch.empty(n, 0)
    x, z = nothing if x is None else x, nothing if z is None else z
    if len(z) != n:
        raise UserError(f"there are {n:,} features and {len(z):,} logits")
    y, columns = _labels(labels, n, label_classes or z.shape[1] or None)
    record, together = BankRecord(network=str(network or "")), groups_of(groups, n)
    return FeatureBank(
        x, z, y, torch.arange(n), weight, bias, columns, record, label_classes, together
    )


def _logits_of_head(x: Tensor | None, z: Tensor | None, weight: Tensor, bias: Tensor) -> Tensor:
    """Those that are given, ``z``, once they are seen to be the ones of the head; else its own."""
    if x is None:
        raise UserError("a head is given without features: give features [N, D] too")
    if weight.shape[1] != x.shape[1]:
        raise UserError(
            f"features {list(x.shape)} do not fit the head {list(weight.shape)}: give the input of "
            "the last linear layer, [N, D], and a head [C, D]"
        )
    of_head = x @ weight.T + bias
    if z is None:
        return of_head
    if z.shape != of_head.shape:
        raise UserError(f"logits {list(z.shape)} should be {list(of_head.shape)}")
    error = largest_difference(z, of_head)
    if error > 1e-3 * max(1.0, float(of_head.abs().max())):
        raise UserError(
            f"the logits are not those of the head: off by {error:.2g}; are these the "
            "features that the last layer got, and its own weights?"
        )
    return z


def _labels(labels: ArrayLike | None, n: int, classes: int | None) -> tuple[Tensor, Tensors]:
    """``[n] int64``; of labels of a multi-label head, they are a column, :data:`TARGETS`.

    Rows that all have a single 1 are classes.
    """
    values = None if labels is None else np.asarray(labels)
    if values is None or values.ndim != 2 or values.shape != (n, classes):
        return labels_of(labels, n, classes), {}
    if not np.isin(values, (0, 1)).all():
        raise UserError("labels [N, C] of a multi-label head should be 0 or 1")
    if n and (values.sum(axis=1) == 1).all():
        log.warning("labels [N, C] have a single 1 in each row: its column is taken as the class")
        return torch.from_numpy(values.argmax(axis=1)), {}
    return torch.full((n,), SEVERAL), {TARGETS: torch.from_numpy(values.astype(bool))}


def banks_of(train: Features, sets: Mapping[str, Features]) -> tuple[FeatureBank, Banks]:
    """Feature banks of what was given as arrays, too: ``x [N, D]`` or ``(x, labels [N])``.

    Their head is that of the banks among them; where there is none, a linear head (ridge
    regression) that is fitted on ``train``, or none where ``train`` has no labels.

    Raises:
        UserError: ``train`` has labels of one class; see :func:`features_from_arrays`.
    """
    banks = [of for of in (train, *sets.values()) if isinstance(of, FeatureBank)]
    head = None
    if banks:
        if banks[0].head_weight.numel():
            head = banks[0].head_weight, banks[0].head_bias
        elif banks[0].num_classes and len(banks) < 1 + len(sets):
            raise UserError(
                "arrays have only features, and the others have logits without a linear head: "
                "give the features of all sets as features_from_arrays(features, logits=logits)"
            )
    elif (y := _with_labels(train)[1]) is not None:
        x = matrix_of(_with_labels(train)[0], "features of train")
        labels = labels_of(y, len(x))
        classes = int(labels.max()) + 1
        if classes < 2 or not bool(torch.bincount(labels.clamp(min=0), minlength=classes).all()):
            raise UserError(
                "a head is fitted on train=(features, labels), whose labels should be those of two "
                "classes at least, each with images: number them from 0"
            )
        head = FITTED["linear"](x, labels, classes)

    def bank(of: Features) -> FeatureBank:
        if isinstance(of, FeatureBank):
            return of
        features, labels = _with_labels(of)
        return features_from_arrays(features, labels, head=head)

    return bank(train), {name: bank(of) for name, of in sets.items()}


def _with_labels(of: Any) -> tuple[ArrayLike, ArrayLike | None]:
    if isinstance(of, tuple):
        if len(of) != 2:
            raise UserError(f"{len(of)} arrays are given as (features, labels): give two")
        return of[0], of[1]
    return of, None


def extract_features(
    module: nn.Module,
    images: Images,
    labels: ArrayLike | None = None,
    *,
    head: str | None = None,
    detectors: Chosen = (),
    std: float | Sequence[float] = 1.0,
    mean: float | Sequence[float] = 0.0,
    allow_random: bool = False,
    features: str | None = None,
    output: str | None = None,
    label_classes: int | None = None,
) -> FeatureBank:
    """One pass of a network over images: features, logits and labels in a bank.

    Args:
        module: any torch module or LightningModule that maps ``[B, 3, H, W]`` to logits, features,
            or both; left as it was, on its own device.
        images: a DataLoader, a dataset, or any iterable of batches or single images: tensors or
            arrays, ``(images, labels)``, or dicts with ``image``, ``label`` and, where images
            belong together, ``group``; or one tensor ``[N, 3, H, W]``. Each image comes once, and
            is the same at every read.
            Normalised as the network expects, in any floating-point type. A loader may give tiles
            ``[B, T, 3, H, W]`` of :class:`~ood_lab.models.image_tiles.Tiles`.
        labels: of a tensor; None = those of the batches, else unknown.
        head: name of the last linear layer; None = found, if any; ``none`` = it gives features, as
            does a network of timm after ``reset_classifier(0)``.
        detectors: those that work inside this pass (``odin``, ``gram``, ...), as in
            :func:`evaluate`: what they need is computed too.
        std: the standard deviation by which images were normalised, so that the steps of ODIN and
            its like are in pixels.
        mean: what was subtracted before that. Where ``image * std + mean`` is in [0, 1], the bank
            has the statistics of the images, and :func:`evaluate` says what differs.
        allow_random: accept a network whose logits depend on chance or on other images.
        features: entry of its output, or layer, with the features; None = the head's input.
        output: entry of its output with the logits; None = the only one.
        label_classes: number of classes of the labels, where these are not classes of the head.

    Raises:
        UserError: there is no image, several outputs and no choice, logits that depend
            on more than the image, or a loader that gives images several times.
    """
    module = _network(module)
    once = EachImageOnce(images, lambda item: split_item(item)[0])
    batches = batches_of(images, labels)
    first = next(batches, None)
    if first is None:
        raise UserError("there is no image in images")
    example = first["image"].flatten(0, -4)
    backbone = as_backbone(module, example, head, std, allow_random, features, output, mean)
    backbone.label_classes = label_classes
    classes = label_classes or backbone.num_classes or None
    chosen = chosen_detectors(detectors, "openood") if detectors else {}
    with explained(chosen):
        usable, refused = split_by_columns(chosen, backbone)
    if refused:
        log.warning("left out: %s", in_python("; ".join(refused.values()), chosen))
    columns = {column.key: column for column in columns_for(usable)}
    if StatisticsColumn.reads(backbone, example):
        columns[StatisticsColumn.key] = StatisticsColumn()
    if first["image"].ndim == 5:
        columns[TILES] = TilesColumn()
    extractor = Extractor(backbone, list(columns.values()))
    parts = []
    groups: list[Any] = []
    with frozen(backbone), torch.no_grad():
        extractor.on_predict_start()
        try:
            for number, batch in enumerate(chain([first], batches)):
                labels_of(batch["label"], len(batch["label"]), classes)
                once.take(batch["image"])
                groups += batch["group"]
                moved = batch | {"image": like_weights(backbone, batch["image"])}
                # A network may return its input, or memory that it fills again.
                rows = extractor.predict_step(moved, number)
                parts.append(_copied(rows))
        finally:
            extractor.close()
    once.close()
    network = NetworkIdentity.of(backbone)
    read = network.weights_sha256, network.parts_sha256
    weight, bias = weight_and_bias(backbone.head)
    whole = {k: torch.cat([part[k] for part in parts]) for k in ("features", "logits", "labels")}
    n = len(whole["features"])
    return FeatureBank(
        whole["features"],
        whole["logits"],
        whole["labels"],
        torch.arange(n),
        weight,
        bias,
        {key: torch.cat([part["columns"][key] for part in parts]) for key in parts[0]["columns"]},
        BankRecord(network=text_sha256(json.dumps(read))),
        backbone.label_classes,
        groups_of(None if all(group is None for group in groups) else groups, n),
    )


def _copied(rows: Batch) -> dict[str, Any]:
    return {
        key: _copied(values) if isinstance(values, dict) else values.to("cpu", copy=True)
        for key, values in rows.items()
    }


def as_backbone(
    module: nn.Module,
    image: Tensor,
    head: str | None,
    std: float | Sequence[float],
    allow_random: bool = False,
    features: str | None = None,
    output: str | None = None,
    mean: float | Sequence[float] = 0.0,
) -> Backbone:
    """The module as a backbone, its head found and checked, and that it reads one image at a time.

    Raises:
        UserError: see :func:`extract_features`.
    """
    module = _network(module)
    some = like_weights(module, image[:2])
    if isinstance(module, Backbone):
        backbone = module
    else:
        name = type(module).__name__
        last = some.shape[-1] in (1, 3) and some.shape[1] not in (1, 3)
        advice = (
            "channels come first, as images.permute(0, 3, 1, 2) has them"
            if last
            else "give them as the network was trained with"
        )
        # timm's word for no classifier
        if head is None and getattr(module, "num_classes", None) == 0:
            head = NO_HEAD
        reading = reading_of(module, some, name, head, features, output, advice=advice)
        backbone = WrappedBackbone(module, reading)
        means, deviations = of_unit_range(_each_channel(mean), _each_channel(std))
        size = tuple(some.shape[1:])
        backbone.data_config = {"input_size": size, "mean": means, "std": deviations}
        check_contract(backbone)
        if remark := reading.told:
            log.warning("%s: %s", name, remark)
    check_determinism(backbone, some, allow_random, "allow_random=True")
    return backbone


def _each_channel(of: float | Sequence[float]) -> tuple[float, ...]:
    return (float(of),) * 3 if isinstance(of, int | float) else tuple(map(float, of))


def _network(module: Any) -> nn.Module:
    """The network itself where it is spread over devices.

    Raises:
        UserError: it is none.
    """
    if not isinstance(module, nn.Module):
        raise UserError(
            f"the network is a {type(module).__name__}: give a torch.nn.Module, whose last linear "
            "layer makes the logits"
        )
    spread = isinstance(module, nn.DataParallel | nn.parallel.DistributedDataParallel)
    inner: nn.Module = module.module if spread else module  # type: ignore[assignment]
    return inner
