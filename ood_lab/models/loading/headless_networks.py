"""Features without a classifier, and the linear heads that are fitted on them."""

from __future__ import annotations

from collections.abc import Callable

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from ood_lab.common.tensor_arithmetic import squared_norms
from ood_lab.models.loading.wrapped_network import Reading, read
from ood_lab.models.output import WeightAndBias
from ood_lab.models.trial_passes import evaluating

#: Inverse strength of the penalty of :func:`linear_head`, the default of scikit-learn.
C = 1.0
#: Steps after which the solver stops, and the largest gradient with which it does so before.
STEPS, FLAT = 1_000, 1e-7


class WithHead(nn.Module):
    """A linear head on features of ``net``; it is zero until it is fitted.

    Args:
        net: maps ``[B, 3, H, W]`` to what holds features, or makes them on its way.
        reading: where the features are (``logits=False``).
        classes: outputs of the head.
        image: a small batch.
        name: what messages call ``net``.

    Raises:
        UserError: the features are no vector an image.
    """

    def __init__(
        self, net: nn.Module, reading: Reading, classes: int, image: Tensor, name: str
    ) -> None:
        super().__init__()
        self.reading, self._name = reading, name
        with evaluating(net):
            features = read(net, reading, image, name).features
        self.net = net
        self.head = nn.Linear(features.shape[1], classes)
        nn.init.zeros_(self.head.weight)
        nn.init.zeros_(self.head.bias)

    def forward(self, image: Tensor) -> Tensor:
        """Maps ``[B, 3, H, W]`` to logits ``[B, C]``."""
        logits: Tensor = self.head(read(self.net, self.reading, image, self._name).features)
        return logits

    def extra_repr(self) -> str:
        """Where the features are, if they are not all that ``net`` returns: it keys them."""
        return "" if self.reading == Reading(logits=False) else repr(self.reading)


def nearest_mean_head(features: Tensor, labels: Tensor, classes: int) -> WeightAndBias:
    """The class whose mean is nearest: z_c = μ_cᵀx − ½‖μ_c‖², which is ½‖x‖² − ½‖x − μ_c‖².

    Args:
        features: ``[N, D]``.
        labels: ``[N]``, every class among them.
        classes: their number C.

    Returns:
        Weight ``[C, D]`` and bias ``[C]``, float64.
    """
    x = features.double()
    sums = torch.zeros(classes, x.shape[1], dtype=x.dtype).index_add_(0, labels, x)
    means = sums / torch.bincount(labels, minlength=classes)[:, None]
    return means, -squared_norms(means) / 2


def linear_head(features: Tensor, labels: Tensor, classes: int) -> WeightAndBias:
    """Multinomial logistic regression: min mean CE(Wx + b, y) + ‖W‖² / (2 C N), with C = 1.

    The objective is that of scikit-learn's ``LogisticRegression``. L-BFGS in float64 on centred
    features, from zero, so that the same features give the same head.

    Args:
        features: ``[N, D]``.
        labels: ``[N]``.
        classes: their number.

    Returns:
        Weight ``[C, D]`` and bias ``[C]``, float64.
    """
    x = features.double()
    mean = x.mean(dim=0)
    x = x - mean
    weight = torch.zeros(classes, x.shape[1], dtype=x.dtype, requires_grad=True)
    bias = torch.zeros(classes, dtype=x.dtype, requires_grad=True)
    solver = torch.optim.LBFGS(
        [weight, bias],
        max_iter=STEPS,
        tolerance_grad=FLAT,
        tolerance_change=0,
        history_size=20,
        line_search_fn="strong_wolfe",
    )

    def loss() -> Tensor:
        solver.zero_grad()
        penalty = weight.square().sum() / (2 * C * len(x))
        value = F.cross_entropy(F.linear(x, weight, bias), labels) + penalty
        value.backward()
        return value

    with torch.enable_grad():
        solver.step(loss)
    weights = weight.detach()
    return weights, bias.detach() - weights @ mean


#: By what ``model.head`` names them.
FITTED: dict[str, Callable[[Tensor, Tensor, int], WeightAndBias]] = {
    "linear": linear_head,
    "nearest_mean": nearest_mean_head,
}
