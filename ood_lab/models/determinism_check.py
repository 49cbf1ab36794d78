"""The check that a network is a function of one image: no chance, and no other image of a batch."""

from __future__ import annotations

import logging
import pickle
import random
from collections.abc import Sequence
from functools import partial
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn

from ood_lab.common.errors import UserError, one_line
from ood_lab.common.tensor_arithmetic import largest_difference
from ood_lab.models.backbone import Backbone
from ood_lab.models.forward_hooks import watched
from ood_lab.models.loading.wrapped_network import WrappedBackbone
from ood_lab.models.output import Output
from ood_lab.models.trial_passes import evaluating, random_batch

log = logging.getLogger(__name__)
#: Largest difference, as a share of the largest value, between two passes over the same batch.
REPEATED = 1e-5
#: The same between batches of other sizes, for which other kernels run; on a GPU they may use TF32.
REBATCHED = {"cpu": 1e-3, "cuda": 1e-2}
#: The same with activations in 8 bits, whose step may be that of the whole batch.
QUANTISED = 0.1
#: Passes over the same batch of a network that draws random numbers.
PASSES = 8


def check_determinism(
    backbone: Backbone,
    images: Tensor | None = None,
    allow_random: bool = False,
    setting: str = "model.allow_random=true",
) -> str | None:
    """Checks that an image gets the same logits twice, by itself and in a batch.

    Two passes, over one and two images; modes, buffers and random states stay as they were. Only
    where these passes differ, or draw random numbers, more of them find out why and where.

    Args:
        backbone: the network.
        images: ``[N, 3, H, W]`` as it expects them; None = noise.
        allow_random: warn instead of raising.
        setting: how the user writes that.

    Returns:
        The warning, None where the network is such a function.

    Raises:
        UserError: it is not.
    """
    images = (
        random_batch(backbone, backbone.data_config["input_size"]) if images is None else images
    )
    # A compiled network would be compiled again for each size of a batch.
    with evaluating(backbone), torch.compiler.set_stance("force_eager"):
        problem = _problem(backbone, images[:1], images[1:2] if len(images) > 1 else -images[:1])
    if problem is None:
        return None
    if not allow_random:
        raise UserError(
            f"{backbone.name} {problem}. No score would be that of one image: correct the forward "
            f"pass, or accept it with {setting}"
        )
    warning = f"{backbone.name} {problem}; {setting} accepts that"
    log.warning(warning)
    return warning


def _problem(backbone: Backbone, one: Tensor, two: Tensor) -> str | None:
    """What else the output depends on, and the layer that brings it in."""
    pair, other = torch.cat([one, two]), 2 * two + 1
    states = _random_states(one)
    alone: Output | Exception
    try:
        alone = backbone(one)
    except Exception as error:  # the network is the user's
        alone = error
    both = backbone(torch.cat([other, one]))
    moved = Output(both.logits[1:2], both.features[1:2])
    random_used = _random_states(one) != states
    loose, tight = tolerances(backbone)
    if isinstance(alone, Output) and alone.logits.ndim != 2:
        alone = ValueError(f"it gives logits {list(alone.logits.shape)} instead of [1, C]")
    deviates = deviation(alone, moved, loose) if isinstance(alone, Output) else None
    if random_used or deviates:
        first = backbone(pair)
        for _ in range(PASSES if random_used else 1):
            if chance := deviation(first, backbone(pair), tight):
                place = _place(backbone, [pair] * PASSES, tight)
                return f"gives other logits when it runs twice on the same images: {chance}{place}"
    if isinstance(alone, Exception):
        reason = one_line(alone)[:200]
        return (
            "cannot process an image by itself, only in a batch with other images "
            f"({type(alone).__name__}: {reason})"
        )
    if deviates is None:
        return None
    place = _place(backbone, [pair, torch.cat([one, other])], loose)
    return f"gives logits that depend on the other images of the batch: {deviates}{place}"


def _random_states(image: Tensor) -> tuple[Any, ...]:
    """Shows whether a pass has drawn from a global generator."""
    states = [torch.get_rng_state()]
    if image.is_cuda:
        states.append(torch.cuda.get_rng_state(image.device))
    return (
        *(state.tolist() for state in states),
        random.getstate(),
        pickle.dumps(np.random.get_state()),
    )


def deviation(one: Output, other: Output, tolerance: float) -> str | None:
    """By how much the logits of the same images differ, or the features where the logits agree."""
    pairs = {"logit": (one.logits, other.logits), "feature": (one.features, other.features)}
    for name, (a, b) in pairs.items():
        if _differ(a, b, tolerance):
            return f"a {name} moves by {largest_difference(a.double(), b.double()):.2g}"
    return None


def _differ(a: Tensor, b: Tensor, tolerance: float) -> bool:
    """Whether the largest difference exceeds a share of the largest value."""
    if not a.numel() or torch.equal(a, b):
        return False
    if not torch.equal(a.isfinite(), b.isfinite()):
        return True
    a, b = (value.double().nan_to_num(0, 0, 0) for value in (a, b))
    return largest_difference(a, b) > tolerance * max(float(a.abs().max()), 1e-6)


def tolerances(net: nn.Module) -> tuple[float, float]:
    """Shares of the largest value by which rounding moves outputs.

    Between batches of other images, and between passes over the same batch.
    """
    tensors = [*net.parameters(), *net.buffers()]
    eps = max([torch.finfo(t.dtype).eps for t in tensors if t.is_floating_point()], default=0.0)
    device = tensors[0].device.type if tensors else "cpu"
    eight_bits = any("quant" in type(part).__module__ for part in net.modules()) or any(
        t.dtype in (torch.int8, torch.uint8) for t in tensors
    )
    loose = max(REBATCHED.get(device, 1e-2), 16 * eps, QUANTISED if eight_bits else 0)
    return loose, max(REPEATED, eps)


def _place(backbone: Backbone, batches: Sequence[Tensor], tolerance: float) -> str:
    """The first layer, in the order of the computation, that gives the first image other values."""
    net = backbone.net if isinstance(backbone, WrappedBackbone) else backbone
    first = _traced(net, backbone, batches[0])
    share = 1 if batches[0] is batches[1] else 2  # the first image where the second is another
    for batch in batches[1:]:
        for (name, kind, a), (again, _, b) in zip(
            first, _traced(net, backbone, batch), strict=False
        ):
            if name != again or a.shape != b.shape:
                break
            if len(a) % 2 == 0 and _differ(a[: len(a) // share], b[: len(b) // share], tolerance):
                layer = f"'{name}' ({type(net.get_submodule(name)).__name__})"
                return f"; the first layer whose {kind} differs is {layer}"
    return ""


def _traced(net: nn.Module, backbone: Backbone, batch: Tensor) -> list[tuple[str, str, Tensor]]:
    """Inputs and outputs of all sub-modules, in the order of computation."""
    events: list[tuple[str, str, Tensor]] = []

    def keep(kind: str, name: str, value: Any) -> None:
        value = value[0] if isinstance(value, tuple) and value else value
        if isinstance(value, Tensor) and value.ndim:
            events.append((name, kind, value.detach().clone()))

    with watched(net, before=partial(keep, "input"), after=partial(keep, "output")):
        backbone(batch)
    return events
