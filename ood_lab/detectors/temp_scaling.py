"""TempScaling: maximum softmax probability at the calibrated temperature."""

from __future__ import annotations

import logging
import math
from typing import Self

import torch
from scipy.optimize import brentq
from torch import Tensor

from ood_lab.detectors.base import FitSplit, with_settings
from ood_lab.detectors.support.chunked_arithmetic import blocks
from ood_lab.detectors.support.compute_device import on_device
from ood_lab.detectors.support.logit_detector import LogitDetector
from ood_lab.detectors.support.neighbour_search import chosen_rows
from ood_lab.detectors.support.requirements import require_labels, require_two_classes
from ood_lab.features.bank import FeatureBank

log = logging.getLogger(__name__)

#: Temperatures searched. Images that are all predicted right have none: T goes to 0.
LOWEST, HIGHEST = 0.01, 100.0


@with_settings
class TempScaling(LogitDetector):
    r"""Maximum softmax probability at the calibrated temperature (arXiv 1706.04599).

    .. math::
        T = \arg\min_{T} \sum_i -\log \mathrm{softmax}(z_i / T)_{y_i}, \qquad
        s(x) = \log \frac{1 - p}{p}, \quad p = \max_c \mathrm{softmax}(z / T)_c

    with labels y of the fit split. The sum is convex in 1/T, so its only stationary point is the
    root of a rising function, found to 12 digits within [0.01, 100]. Where there is none inside
    (all labelled images predicted right, or worse than chance), T is the nearer end, and a
    warning says so.

    Own: OpenOOD and pytorch-ood stop LBFGS after 50 steps at a rate of 0.01, far from the
    optimum, at a T that depends on the start. Log-odds rank as −p does, without the ties of
    float32 probabilities (a quarter of the images of a CIFAR-10 network).

    Args:
        fit_split: images, with labels, that T is calibrated on.
    """

    reads = ("logits", "labels", "own_classes")
    formula = "log((1 − max p)/max p) at the T of the smallest negative log-likelihood"
    suspicious = "no class is probable after calibration of the network"

    fit_split: FitSplit = "val"

    def fit(self, bank: FeatureBank) -> Self:
        """Learns ``temperature``."""
        require_two_classes(self, bank)
        require_labels(self, bank)
        labelled = (bank.labels >= 0).nonzero().flatten()
        temperature = self._optimum(
            chosen_rows(bank.logits, labelled), chosen_rows(bank.labels, labelled)
        )
        self.fitted = {"temperature": torch.tensor(temperature, dtype=torch.float64)}
        self.used = {"temperature": temperature}
        return self

    def _optimum(self, logits: Tensor, labels: Tensor) -> float:
        def slope(log_t: float) -> float:
            return _slope(logits, labels, math.exp(log_t))

        low, high = math.log(LOWEST), math.log(HIGHEST)
        first = slope(low)
        if first > 0 > slope(high):
            return math.exp(float(brentq(slope, low, high, xtol=1e-12, rtol=1e-14)))
        edge = LOWEST if first <= 0 else HIGHEST
        log.warning(
            "TempScaling: the likelihood of the %s labels has no optimum between T = %g and %g: "
            "T = %g is taken",
            self.fit_split,
            LOWEST,
            HIGHEST,
            edge,
        )
        return edge

    def of_logits(self, z: Tensor) -> Tensor:
        """Log-odds against the predicted class at T."""
        below = (z - z.amax(dim=1, keepdim=True)) / self.fitted["temperature"].item()
        return below.scatter(1, z.argmax(dim=1, keepdim=True), -torch.inf).logsumexp(dim=1)


def _slope(logits: Tensor, labels: Tensor, t: float) -> float:
    """The mean of d NLL / d(1/T), which falls as T grows."""
    total = 0.0
    for rows, z in blocks(logits):
        away = z.double()
        away -= away.gather(1, on_device(labels[rows]).long()[:, None])
        total += (away / t).softmax(dim=1).mul_(away).sum(dim=1).sum().item()
    return total / len(labels)
