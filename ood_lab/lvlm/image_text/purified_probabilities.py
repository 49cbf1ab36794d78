"""Probabilities of several labels of one image, each of which the others leave untouched."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray
from scipy.special import expit, logsumexp

from ood_lab.schema.arrays import Bools, Floats


def purified(scores: NDArray[np.floating], shown: Bools, absent: Bools) -> Floats:
    """``p_c = e^{s_c} / (e^{s_c} + sum_{y in A} e^{s_y})``: the softmax skips other shown labels.

    Args:
        scores: logits of N images and n labels, ``[N, n]``, temperature included.
        shown: labels c that have a probability, ``[N, n]``.
        absent: labels A, ``[N, n]``.

    Returns:
        ``[N, n]``; NaN where a label is not shown, 1 where none is absent.
    """
    values = np.asarray(scores, np.float64)
    rest = logsumexp(np.where(absent, values, -np.inf), axis=1, keepdims=True)
    return np.where(shown, expit(values - rest), np.nan)
