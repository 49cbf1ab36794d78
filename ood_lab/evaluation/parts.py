"""A bank cut in two at random, so that what is fitted on one part is judged on the other."""

from __future__ import annotations

import torch

from ood_lab.features.bank import FeatureBank


def cut_at(bank: FeatureBank, first: int, seed: int) -> tuple[FeatureBank, FeatureBank]:
    """A random part of ``first`` rows and the rest, both in the order of the bank."""
    order = torch.randperm(len(bank), generator=torch.Generator().manual_seed(seed))
    return bank.rows(order[:first].sort().values), bank.rows(order[first:].sort().values)
