"""Maximum-likelihood fit of two-parameter Weibull distributions."""

from __future__ import annotations

import torch
from torch import Tensor


def fit_weibull(values: Tensor) -> tuple[Tensor, Tensor]:
    r"""Shape k and log scale of many samples at once.

    The likelihood equation

    .. math::
        \frac{\sum_i y_i^k \log y_i}{\sum_i y_i^k} - \frac1k - \mathrm{mean} \log y = 0

    increases in k; it is solved by bisection of log k, on logarithms relative to the largest
    value, so that any k is finite: y^k never appears.

    Args:
        values: ``[S, n] float64`` above 0, one sample per row, padded with NaN; at least two
            different values per row.

    Returns:
        ``k [S]`` and ``log(scale) [S]``.
    """
    present = ~values.isnan()
    largest = values.nan_to_num(nan=0).amax(dim=1, keepdim=True)
    relative = torch.log1p((values - largest) / largest)
    mean = relative.nanmean(dim=1)
    hidden = relative.masked_fill(~present, -torch.inf)
    filled = relative.masked_fill(~present, 0)

    low, high = mean.new_full(mean.shape, -20), mean.new_full(mean.shape, 40)
    for _ in range(100):
        middle = (low + high) / 2
        k = middle.exp()
        weighted = (hidden * k[:, None]).softmax(dim=1).mul(filled).sum(dim=1)
        above = weighted - 1 / k - mean > 0
        low, high = torch.where(above, low, middle), torch.where(above, middle, high)
    k = ((low + high) / 2).exp()
    log_mean = (hidden * k[:, None]).logsumexp(dim=1) - present.sum(dim=1).log()
    return k, largest[:, 0].log() + log_mean / k
