"""Who belongs to whom among the images of a bank: where groups count, not images.

A caller that learns the groups from the features sets them by ``replace(bank, groups=codes)``.
"""

from __future__ import annotations

import hashlib
import os
from dataclasses import replace
from typing import Protocol

import numpy as np
import pandas as pd
import torch
from numpy.typing import ArrayLike
from torch import Tensor

from ood_lab.common.errors import UserError
from ood_lab.features.bank import Banks, FeatureBank


class GroupedImages(Protocol):
    """A bank, or a dataset."""

    @property
    def groups(self) -> Tensor | None:
        """Equal where images belong together, ``[N] int64``."""

    def __len__(self) -> int: ...


def unit_of(images: GroupedImages) -> str:
    """What counts: ``image``, or ``group``."""
    return "image" if images.groups is None else "group"


def group_codes(images: GroupedImages) -> Tensor:
    """``[N] int64`` from 0 in the order of first images; 0 to N - 1 where each is its own."""
    if images.groups is None:
        return torch.arange(len(images))
    return torch.from_numpy(pd.factorize(images.groups.cpu().numpy())[0])


def group_count(images: GroupedImages, rows: Tensor | None = None) -> int:
    """Number of groups, of images where each is its own; ``rows``: of these images only."""
    if images.groups is None:
        return len(images) if rows is None else len(rows)
    return len((images.groups if rows is None else images.groups[rows]).unique())


def independent_share(images: GroupedImages) -> float:
    """Number of groups / number of images."""
    return group_count(images) / len(images)


def group_weights(groups: Tensor) -> Tensor:
    """1 / size of the group of each image, ``[N] float64``: each group has weight one."""
    _, codes, sizes = groups.unique(return_inverse=True, return_counts=True)
    return 1 / sizes.double()[codes]


def with_groups(banks: Banks) -> dict[str, FeatureBank]:
    """The banks, without their groups where no two images of all banks belong together."""
    groups = [bank.groups for bank in banks.values() if bank.groups is not None]
    if not groups or len(torch.cat(groups).unique()) < sum(map(len, groups)):
        return dict(banks)
    return {name: replace(bank, groups=None) for name, bank in banks.items()}


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
