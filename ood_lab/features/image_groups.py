"""Who belongs to whom among the images of a bank: where groups count, not images.

A caller that learns the groups from the features sets them by ``replace(bank, groups=codes)``.
"""

from __future__ import annotations

import hashlib
import os
from collections.abc import Iterator

import numpy as np
import pandas as pd
import torch
from numpy.typing import ArrayLike
from torch import Tensor

from ood_lab.common.errors import UserError
from ood_lab.features.bank import FeatureBank


def group_codes(bank: FeatureBank) -> Tensor:
    """``[N] int64`` from 0 in the order of first images; 0 to N - 1 where each is its own."""
    if bank.groups is None:
        return torch.arange(len(bank))
    return torch.from_numpy(pd.factorize(bank.groups.cpu().numpy())[0])


def group_count(bank: FeatureBank) -> int:
    """Number of groups; of images where each is its own."""
    return len(bank) if bank.groups is None else len(bank.groups.unique())


def group_weights(bank: FeatureBank) -> Tensor:
    """1 / size of the group of each image, ``[N] float64``: each group has weight one."""
    codes = group_codes(bank)
    return 1 / codes.bincount().double()[codes]


def single_groups(bank: FeatureBank) -> Iterator[Tensor]:
    """The images of one group after the other, ``[N] bool``; its complement leaves it out."""
    codes = group_codes(bank)
    return (codes == code for code in range(group_count(bank)))


def groups_of(groups: ArrayLike | None, n: int) -> Tensor | None:
    """Numbers or names as the ``groups`` of a bank, ``[n] int64``; a name has one number anywhere.

    Raises:
        UserError: another shape, or neither whole numbers nor names.
    """
    if groups is None:
        return None
    values = groups.cpu().numpy() if isinstance(groups, Tensor) else np.asarray(groups)
    if values.shape != (n,):
        raise UserError(f"groups {list(values.shape)} should be [{n}], a number or name per image")
    if values.dtype.kind in "iu":
        return torch.from_numpy(values.astype(np.int64))
    if not all(isinstance(value, str | bytes) for value in values):
        raise UserError("groups should be whole numbers or names, one per image")
    digests = (hashlib.sha256(os.fsencode(value)).digest() for value in values)
    return torch.tensor([int.from_bytes(digest[:7]) for digest in digests], dtype=torch.int64)
