"""Outliers made of ID features, to choose settings where no OOD image may be looked at."""

from __future__ import annotations

from dataclasses import replace

import torch
from torch import Tensor

from ood_lab.common.errors import UserError
from ood_lab.features.bank import FeatureBank


def synthetic_outliers(bank: FeatureBank, seed: int) -> dict[str, FeatureBank]:
    r"""Two sets of outliers in feature space, with the logits that the head gives them.

    - ``shuffled``: every feature is permuted over the images on its own. Each keeps its
      distribution while what ties them together is lost, the synthetic class of "unsupervised as
      supervised learning" (Hastie, Tibshirani, Friedman, Elements of Statistical Learning,
      section 14.2.4): far from ID.
    - ``mixed``: (x_i + x_j) / 2 of two images of different predicted classes, the arithmetic
      mean that Outlier Exposure validates on (arXiv 1812.04606), taken of features instead of
      pixels: between the classes, near ID. Absent where only one class is predicted.

    Both keep features at or above 0 where they were.

    Args:
        bank: ID images ``[N]``.
        seed: of the permutations.

    Returns:
        Banks of N and of up to N rows, label -1, without columns.
    """
    generator = torch.Generator().manual_seed(seed)
    n, d = bank.features.shape
    order = torch.rand(n, d, generator=generator).argsort(dim=0)
    outliers = {"shuffled": _bank(bank, bank.features.gather(0, order))}
    partner = torch.randperm(n, generator=generator)
    differ = bank.predictions != bank.predictions[partner]
    if bool(differ.any()):
        mixed = (bank.features[differ] + bank.features[partner][differ]) / 2
        outliers["mixed"] = _bank(bank, mixed)
    return outliers


def _bank(like: FeatureBank, features: Tensor) -> FeatureBank:
    n, logits = len(features), features.new_zeros(len(features), 0)
    if like.num_classes and not like.head_weight.numel():
        raise UserError(
            "the logits of mixed features follow from a linear head, and this network has none: "
            "tuning=val_ood with data.ood_val.NAME=DIR chooses settings without mixing"
        )
    if like.num_classes:
        logits = features @ like.head_weight.T + like.head_bias
    return replace(
        like,
        features=features,
        logits=logits,
        labels=torch.full((n,), -1),
        index=torch.arange(n),
        columns={},
    )
