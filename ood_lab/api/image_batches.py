"""Images as users have them, as batches of tensors."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from typing import Any

import numpy as np
import torch
from torch import Tensor
from torch.utils.data import Dataset, IterableDataset

from ood_lab.api.arrays import labels_of, tensor_of
from ood_lab.common.cpu_cores import out_of_shared_memory
from ood_lab.common.errors import UserError

Images = Iterable[Any] | Tensor
#: Images of one batch where the user gives all of them, or one at a time.
SIZE = 256
#: What dicts call images and labels, this project and Hugging Face among others.
_IMAGE = ("image", "images", "pixel_values", "img", "x", "input", "inputs")
_LABEL = ("label", "labels", "y", "target", "targets")


def batches_of(images: Images, labels: Any) -> Iterator[dict[str, Any]]:
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
    waiting: list[tuple[Any, Any, Any]] = []
    for image, label, group in items:
        single = isinstance(image, Tensor | np.ndarray) and image.ndim == 3
        alike = single and (not waiting or image.shape == waiting[0][0].shape)
        if waiting and (not alike or len(waiting) == SIZE):
            yield _stacked(waiting)
            waiting = []
        if single:  # the next one may come in the same memory
            waiting.append((tensor_of(image, "images"), _scalar(label), _scalar(group)))
        else:
            groups = group.tolist() if isinstance(group, Tensor | np.ndarray) else group
            yield image, label, groups
    if waiting:
        yield _stacked(waiting)


def _scalar(value: Any) -> Any:
    return value.item() if isinstance(value, Tensor | np.ndarray | np.generic) else value


def _stacked(waiting: list[tuple[Any, Any, Any]]) -> tuple[Tensor, list[Any], list[Any]]:
    images, labels, groups = zip(*waiting, strict=True)
    return torch.stack(images), list(labels), list(groups)


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
    if not bool(images.isfinite().all()):
        raise UserError("images have NaN or infinite values")
