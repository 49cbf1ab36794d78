"""Features without a classifier, and the linear heads that are fitted on them."""

from __future__ import annotations

from collections.abc import Callable

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from ood_lab.common.errors import UserError
from ood_lab.models.head_check import evaluating, processing, random_batch
from ood_lab.models.output import entry_of

#: Inverse strength of the penalty of :func:`linear_head`, the default of scikit-learn.
C = 1.0
#: Steps after which the solver stops, and the largest gradient with which it does so before.
STEPS, FLAT = 1_000, 1e-7


class WithHead(nn.Module):
    """``head(net(image))`` where ``net`` gives features; the head is zero until it is fitted.

    Args:
        net: maps ``[B, 3, H, W]`` to features ``[B, D]``, or to what holds them.
        classes: outputs of the head.
        input_size: ``(3, H, W)``.
        name: what messages call ``net``.
        entry: of its output, the features; None = the only one.

    Raises:
        UserError: ``net`` gives something else.
    """

    def __init__(
        self,
        net: nn.Module,
        classes: int,
        input_size: tuple[int, ...],
        name: str,
        entry: str | None = None,
    ) -> None:
        super().__init__()
        self._entry, self._name = entry, name
        with evaluating(net), processing(name, input_size):
            found = self._features(net(random_batch(net, input_size)))
        if found.ndim != 2:
            raise UserError(
                f"{name} gives {list(found.shape)} for two images: a head is fitted on one vector "
                "each, [2, D], so wrap it in a module that returns that"
            )
        self.net = net
        self.head = nn.Linear(found.shape[1], classes)
        nn.init.zeros_(self.head.weight)
        nn.init.zeros_(self.head.bias)

    def forward(self, image: Tensor) -> Tensor:
        """Maps ``[B, 3, H, W]`` to logits ``[B, C]``."""
        logits: Tensor = self.head(self._features(self.net(image)))
        return logits

    def _features(self, returned: object) -> Tensor:
        return entry_of(returned, self._entry, self._name, "features")


def nearest_mean_head(features: Tensor, labels: Tensor, classes: int) -> tuple[Tensor, Tensor]:
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
    return means, -means.square().sum(dim=1) / 2


def linear_head(features: Tensor, labels: Tensor, classes: int) -> tuple[Tensor, Tensor]:
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
    found = weight.detach()
    return found, bias.detach() - found @ mean


#: By what ``model.head`` names them.
FITTED: dict[str, Callable[[Tensor, Tensor, int], tuple[Tensor, Tensor]]] = {
    "linear": linear_head,
    "nearest_mean": nearest_mean_head,
}
