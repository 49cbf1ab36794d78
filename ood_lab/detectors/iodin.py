"""iODIN: ODIN with a step of the one input element that matters most."""

from __future__ import annotations

import torch
from torch import Tensor

from ood_lab.detectors.odin import ODIN, ODINColumn
from ood_lab.detectors.support.network_scores import sign


class IODINColumn(ODINColumn):
    """As :class:`~ood_lab.detectors.odin.ODINColumn`, where only one element of x̃ has moved."""

    name = "iodin"

    def _sign(self, gradient: Tensor) -> Tensor:
        flat = gradient.flatten(1)
        place = flat.abs().argmax(dim=1, keepdim=True)
        moved = sign(flat.gather(1, place))
        return torch.zeros_like(flat).scatter(1, place, moved).view_as(gradient)


class IODIN(ODIN):
    r"""ODIN of an image moved at one element, a channel of a pixel (arXiv 2411.10794).

    .. math::
        \tilde x = x - \tfrac{\epsilon}{\sigma}\,\mathrm{sign}(g_d)\, e_d, \quad
        d = \arg\max_d |g_d|, \quad g = \nabla_x \mathrm{CE}(f(x)/T, \hat y), \qquad
        s = -\log\max_c \mathrm{softmax}(f(\tilde x)/T)_c

    Score, σ and arguments are those of :class:`ODIN`. At an equal temperature both share one
    backward pass; each adds one forward pass per image.

    Args:
        temperature: T > 0.
        epsilon: step in units of the un-normalised image in [0, 1].
        std: overrides σ, one value per channel.
    """

    formula = "as `odin`, the one element with the largest gradient moved"
    suspicious = "a step of the most sensitive pixel hardly raises the confidence"
    column_type = IODINColumn
