"""Images as users have them, as batches of tensors."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from itertools import groupby, islice
from typing import Any

import numpy as np
import torch
from numpy.typing import ArrayLike
from torch import Tensor, nn
from torch.utils.data import Dataset, IterableDataset

from ood_lab.common.cpu_cores import out_of_shared_memory
from ood_lab.common.errors import UserError
from ood_lab.common.tensor_arithmetic import all_finite
from ood_lab.common.tensor_file import Batch
from ood_lab.models.output import WeightAndBias

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
    if not all_finite(matrix):
        raise UserError(f"{name} have NaN or infinite values")
    return matrix


def head_arrays(head: Head) -> WeightAndBias:
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


Images = Iterable[Any] | Tensor
#: Images of one batch where the user gives all of them, or one at a time.
SIZE = 256
#: What dicts call images and labels, this project and Hugging Face among others.
_IMAGE = ("image", "images", "pixel_values", "img", "x", "input", "inputs")
_LABEL = ("label", "labels", "y", "target", "targets")


def batches_of(images: Images, labels: Any) -> Iterator[Batch]:
    """Batches as the extraction has them, ``{image, label, index}``, and ``group``, a list.

    Args:
        images: a tensor or an array ``[N, 3, H, W]``, or an iterable of batches or of images, each
            with or without labels; see :func:`~ood_lab.api.feature_banks.extract_features`.
        labels: of a tensor or an array.

    Raises:
        UserError: something else is given.
    """
    if isinstance(images, np.ndarray):
        images = torch.as_tensor(images)
    if labels is not None and not isinstance(images, Tensor):
        raise UserError(
            "labels are for images in one tensor [N, 3, H, W]: batches hold their own, as "
            "(images, labels) or {'image': ..., 'label': ...}"
        )
    if isinstance(images, Tensor):
        _check_batch(images)
        numbers = labels_of(labels, len(images))
        parts = zip(images.split(SIZE), numbers.split(SIZE), strict=True)
        pairs: Iterator[Any] = ((image, label, None) for image, label in parts)
    else:
        pairs = _grouped(split_item(item) for item in _items(images))
    start = 0
    for image, label, group in pairs:
        image = image if isinstance(image, Tensor | str) else tensor_of(image, "images")
        _check_batch(image)
        n = len(image)
        index = torch.arange(start, start + n)
        groups = [None] * n if group is None else list(group)
        yield {"image": image, "label": labels_of(label, n), "index": index, "group": groups}
        start += n


def _items(images: Any) -> Iterable[Any]:
    if isinstance(images, Dataset) and not isinstance(images, IterableDataset):
        # Those that never raise an IndexError would be iterated for ever.
        return (images[row] for row in range(len(images)))  # type: ignore[arg-type]
    if isinstance(images, str | bytes) or not isinstance(images, Iterable):
        raise UserError(
            f"images are a {type(images).__name__}: give a tensor [N, 3, H, W], a DataLoader, or "
            "batches of such"
        )
    return _loaded(images)


def _loaded(images: Iterable[Any]) -> Iterator[Any]:
    try:
        yield from images
    except (RuntimeError, OSError) as error:
        if plain := out_of_shared_memory(error):
            raise plain from error
        raise


def split_item(item: Any) -> tuple[Any, Any, Any]:
    """Images, labels and groups (None: there are none) of a batch, or of a single image."""
    if isinstance(item, Mapping):
        image, label = (next((k for k in keys if k in item), None) for keys in (_IMAGE, _LABEL))
        if image is None:
            raise UserError(
                f"a batch has the entries {', '.join(map(str, item))}: call the images 'image' and "
                "the labels 'label'"
            )
        return item[image], None if label is None else item[label], item.get("group")
    if isinstance(item, tuple | list) and item and not isinstance(item[0], str):
        return item[0], None if len(item) == 1 else item[1], None
    return item, None, None


def _grouped(items: Iterable[tuple[Any, Any, Any]]) -> Iterator[tuple[Any, Any, Any]]:
    """Single images ``[3, H, W]`` put together; batches unchanged."""
    for shape, run in groupby(items, lambda item: _shape_of_single(item[0])):
        if shape is None:
            for image, label, group in run:
                several = isinstance(group, Tensor | np.ndarray)
                yield image, label, group.tolist() if several else group
            continue
        while part := [  # copies, as the next one may come in the same memory
            (tensor_of(image, "images"), _scalar(label), _scalar(group))
            for image, label, group in islice(run, SIZE)
        ]:
            images, labels, groups = zip(*part, strict=True)
            yield torch.stack(images), list(labels), list(groups)


def _shape_of_single(image: Any) -> tuple[int, ...] | None:
    single = isinstance(image, Tensor | np.ndarray) and image.ndim == 3
    return tuple(image.shape) if single else None


def _scalar(value: Any) -> Any:
    return value.item() if isinstance(value, Tensor | np.ndarray | np.generic) else value


def _check_batch(images: Any) -> None:
    if not isinstance(images, Tensor) or images.ndim not in (4, 5):
        is_tensor = isinstance(images, Tensor)
        what = f"of shape {list(images.shape)}" if is_tensor else f"a {type(images).__name__}"
        raise UserError(
            f"images are {what}: give a tensor [N, 3, H, W], or batches of such "
            "(a single image: image[None])"
        )
    if not images.is_floating_point():
        raise UserError(
            f"images are {images.dtype}: give numbers as the network expects them, as in "
            "(images.float() / 255 - mean) / std"
        )
    if not len(images):
        raise UserError("there is no image in images")
    if not all_finite(images):
        raise UserError("images have NaN or infinite values")
