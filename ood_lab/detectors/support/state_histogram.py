"""Histograms of neuron states, as NAC counts them."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import NamedTuple, Self

import numpy as np
import torch
from torch import Tensor

from ood_lab.common.errors import UserError
from ood_lab.common.hints import check_known
from ood_lab.detectors.support.compute_device import on_device
from ood_lab.detectors.support.requirements import check_count, check_positive


def bin_edges(m: int) -> Tensor:
    """M ascending edges from 0 that leave M − 1 bins, narrow near 0 and 1: ``[m] float64``.

    The lower half is log_1000 of M/2 equal steps from 1 to √1000, the upper one its mirror image;
    the last bin also takes states of exactly 1.
    """
    low = np.log(np.linspace(1, math.sqrt(1000), m // 2)) / math.log(1000)
    edges = np.concatenate([low[:-1], (1 - low)[::-1], [1.2]])
    edges[-2] += 0.01
    return torch.from_numpy(edges)


class StateHistogram(NamedTuple):
    """The bins in which the states σ(α · influence) of one layer are counted.

    Attributes:
        bins: M, edges.
        full: O, images that fill a bin.
        steepness: α.
    """

    bins: int
    full: float
    steepness: float

    @classmethod
    def checked(cls, key: str, bins: int, full: float, steepness: float) -> Self:
        """The histogram of the settings under ``detector.<key>``.

        Raises:
            UserError: an impossible value.
        """
        if check_count(f"{key}.bins", bins) % 2 or bins < 4:
            raise UserError(f"detector.{key}.bins={bins}: must be an even number from 4")
        return cls(
            bins, check_positive(f"{key}.full", full), check_positive(f"{key}.steepness", steepness)
        )

    def places(self, influence: Tensor) -> Tensor:
        """Bin of the state of every neuron: ``[b, D] int64``."""
        state = torch.sigmoid(self.steepness * influence)
        return torch.bucketize(state, on_device(bin_edges(self.bins)), right=True) - 1


def histograms_of(
    common: StateHistogram, layers: str | Sequence[str] | Mapping[str, Mapping[str, float] | None]
) -> dict[str, StateHistogram]:
    """The histogram of every layer that ``layers`` names; empty where it is a single word.

    Raises:
        UserError: there is no layer, or a setting that histograms do not have.
    """
    if isinstance(layers, str):
        return {}
    by_layer = dict(layers) if isinstance(layers, Mapping) else dict.fromkeys(layers)
    if not by_layer:
        raise UserError("detector.nac.layers is empty: name a layer, or null for the last one")
    histograms = {}
    for name, changes in by_layer.items():
        check_known(changes or {}, StateHistogram._fields, f"detector.nac.layers.{name}.{{name}}")
        settings = common._asdict() | dict(changes or {})
        histograms[name] = StateHistogram.checked(f"nac.layers.{name}", **settings)
    return histograms
