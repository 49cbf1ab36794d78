"""Checks of a backbone: what it gives, whether its head makes its logits, the time of a step."""

from __future__ import annotations

import copy
import time
from dataclasses import replace

import torch
import torch.nn.functional as F
from lightning.pytorch.utilities.seed import isolate_rng
from torch import Tensor

from ood_lab.common.errors import UserError
from ood_lab.common.tensor_arithmetic import all_finite, largest_difference
from ood_lab.models.backbone import Backbone
from ood_lab.models.loading.head_search import reading_of
from ood_lab.models.loading.wrapped_network import WrappedBackbone
from ood_lab.models.output import Output, probabilities
from ood_lab.models.trial_passes import evaluating, processing, random_batch


def check_contract(backbone: Backbone) -> None:
    """Checks ``features @ head.weight.T + head.bias == logits`` on a small random batch.

    Without a head, only that there is one vector an image; ``widths`` and ``normalised`` say which.
    Runs one pass over ``[2, 3, H, W]`` in eval mode without gradients, and leaves the mode of
    every sub-module and the global random state as they were. The tolerance is 1e-4 times the
    largest logit (or 1), more where the parameters are in half precision.

    Raises:
        UserError: the shapes or values do not fit; the message names the layers that would.
    """
    head = backbone.head
    image = random_batch(backbone, backbone.data_config["input_size"])
    with evaluating(backbone):
        with processing(backbone.name, image.shape):
            output = backbone(image)
        _check_shapes(backbone, output)
        backbone.widths = output.features.shape[1], output.logits.shape[1]
        logits, features = output.logits.double(), output.features.double()
        for what, values in (("logits", logits), ("features", features)):
            if not all_finite(values):
                raise UserError(
                    f"{backbone.name} returns NaN or infinite {what} for a random image: "
                    "check its weights"
                )
        backbone.normalised = head is None and probabilities(output.logits) is not None
        if head is None:
            return
        weight = head.weight
        bias = None if head.bias is None else head.bias.double()
        expected = F.linear(features, weight.double(), bias)
        scale = max(1.0, float(logits.abs().max()))
        error = largest_difference(expected, logits)
        if error > max(1e-4, 16 * torch.finfo(weight.dtype).eps) * scale:
            net = backbone.net if isinstance(backbone, WrappedBackbone) else backbone
            makers = ", ".join(reading_of(net, image, backbone.name).names)
            raise UserError(
                f"the head of {backbone.name} does not make its logits: weight times features "
                f"plus bias is off by {error:.2g}; the layers that do: {makers or 'none'}; "
                "model.head=null finds out what the network gives"
            )


def _check_shapes(backbone: Backbone, output: Output) -> None:
    name, head = backbone.name, backbone.head
    for key, tensor, last in (
        ("features", output.features, None if head is None else head.in_features),
        ("logits", output.logits, None if head is None else head.out_features),
    ):
        if tensor.ndim != 2 or last not in (None, tensor.shape[1]):
            raise UserError(
                f"{name} gives {key} {list(tensor.shape)}, expected [2, {last or 'D'}]: the head "
                "must be the last layer, applied to one vector per image (after pooling the tokens "
                "or map)"
            )


#: Images of which the time of a step is estimated.
_FEW = 8


def seconds_of_a_step(backbone: Backbone, batch: int) -> float:
    """About the seconds of a forward and backward pass on the CPU over so many images.

    Measured on a copy, with at most 8 random images, of which the time of more follows; weights,
    statistics and random numbers stay as they were.
    """
    n, size = max(2, min(batch, _FEW)), backbone.data_config["input_size"]
    with isolate_rng(include_cuda=False):
        images = torch.randn((n, *size)).contiguous(memory_format=torch.channels_last)
        return _seconds(copy.deepcopy(backbone).train(), images) * batch / n


def _seconds(network: Backbone, images: Tensor) -> float:
    """Of the second pass; the first one warms up."""
    seconds = 0.0
    for _ in range(2):
        start = time.perf_counter()
        network.zero_grad()
        with torch.enable_grad():
            network(images).logits.sum().backward()
        seconds = time.perf_counter() - start
    return seconds


def as_multilabel(backbone: Backbone) -> None:
    """Declares that the head of a backbone is multi-label.

    Without a linear head, outputs from 0 to 1 are probabilities p: log p − log(1 − p) is the logit.

    Raises:
        UserError: there are no logits, they are of a softmax, or the head is fitted on ID train.
    """
    name = backbone.name
    if backbone.fitted_head:
        raise UserError(
            f"model.head={backbone.fitted_head} fits a softmax, which model.multilabel=true "
            "excludes: give a network with its head, or model.head=none"
        )
    if backbone.normalised:
        raise UserError(
            f"model.multilabel=true: {name} returns a softmax, one class per image. Choose its "
            "logits with model.output=KEY"
        )
    backbone.multilabel = True
    if backbone.head is not None or not isinstance(backbone, WrappedBackbone):
        return
    with evaluating(backbone):
        values = backbone(random_batch(backbone, backbone.data_config["input_size"])).logits
    if values.numel() and bool(((values >= 0) & (values <= 1)).all()):
        backbone.reading = replace(backbone.reading, probabilities="sigmoid")
