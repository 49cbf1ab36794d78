"""Arrays as users have them, as tensors: labels, features, heads."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import torch
from numpy.typing import ArrayLike
from torch import Tensor, nn

from ood_lab.common.errors import UserError

Head = nn.Module | tuple[ArrayLike, ArrayLike | None]


def tensor_of(values: Any, name: str) -> Tensor:
    """A tensor on the CPU without a graph, of a tensor, an array, or a list of either.

    Always a copy: loaders, and loops of users, fill the same memory again.

    Raises:
        UserError: there are no numbers in it, or its rows have several lengths.
    """
    if isinstance(values, Tensor):
        return values.detach().to("cpu", copy=True)
    try:
        if isinstance(values, Sequence) and len(values) and isinstance(values[0], Tensor):
            return torch.stack([tensor_of(row, name) for row in values])
        return torch.as_tensor(np.array(values))
    except (TypeError, ValueError, RuntimeError) as error:
        kind = type(values).__name__
        inner = f" of {type(values[0]).__name__}" if isinstance(values, list) and values else ""
        raise UserError(
            f"{name}: a {kind}{inner} is given, but numbers are needed: a tensor, an array, or a "
            "list of rows of one length"
        ) from error


def labels_of(labels: Any, n: int, classes: int | None = None) -> Tensor:
    """``[n] int64``, -1 = unknown or OOD; None = -1, by itself or in a list.

    Raises:
        UserError: they are not such numbers, or ``classes`` is not above them.
    """
    if labels is None:
        return torch.full((n,), -1)
    if not isinstance(labels, Tensor):
        listed = np.asarray(labels, dtype=object).ravel()
        if texts := [label for label in listed if isinstance(label, str | bytes)]:
            raise UserError(
                f"labels are texts such as {texts[0]!r}: give the number of each class, from 0 in "
                "the order of the head, and -1 where there is none"
            )
        if any(label is None for label in listed):
            labels = [-1 if label is None else label for label in listed]
    numbers = tensor_of(labels, "labels")
    if numbers.shape != (n,):
        raise UserError(f"labels {list(numbers.shape)} should be [{n}], one number per image")
    integers = numbers.long()
    if bool((integers != numbers).any()) or bool((integers < -1).any()):
        raise UserError("labels should be whole numbers from 0, and -1 where there is none")
    if classes is not None and n and int(integers.max()) >= classes:
        raise UserError(
            f"labels go up to {int(integers.max())}, the head has the classes 0 to {classes - 1}: "
            "number the classes as the head does, from 0, and -1 for none"
        )
    return integers


def matrix_of(values: Any, name: str) -> Tensor:
    """``[N, D] float32``.

    Raises:
        UserError: it has other dimensions, or values that are not finite.
    """
    matrix = tensor_of(values, name).float()
    if matrix.ndim != 2:
        raise UserError(
            f"{name} {list(matrix.shape)} should have two dimensions, one row per image"
        )
    if not bool(matrix.isfinite().all()):
        raise UserError(f"{name} have NaN or infinite values")
    return matrix


def head_arrays(head: Head) -> tuple[Tensor, Tensor]:
    """Weight ``[C, D]`` and bias ``[C]`` of a linear layer, or of the only one in a Sequential.

    Raises:
        UserError: it is something else.
    """
    if isinstance(head, nn.Sequential):  # in evaluation, the others change nothing
        idle = nn.modules.dropout._DropoutNd | nn.Identity | nn.Flatten
        layers = [part for part in head if not isinstance(part, idle)]
        head = layers[0] if len(layers) == 1 else head
    if isinstance(head, nn.Linear):
        head = head.weight, head.bias
    if not (isinstance(head, tuple | list) and len(head) == 2):
        raise UserError(
            f"head is a {type(head).__name__}: give the last linear layer, or (weight [C, D], bias "
            "[C]), with None for no bias"
        )
    weight, bias = head
    w = matrix_of(weight, "the weights of the head")
    if bias is None:
        return w, torch.zeros(len(w))
    b = matrix_of(tensor_of(bias, "the biases of the head")[None], "the biases of the head")[0]
    if len(b) != len(w):
        raise UserError(f"the head has {len(w)} rows of weights and {len(b)} biases: one a class")
    return w, b
