"""Map-style data sets of other packages: their samples taken apart, their images as a store."""

from __future__ import annotations

import hashlib
import io
import json
import os
from collections.abc import Iterable, Mapping, Sequence
from contextlib import suppress
from typing import Any

import numpy as np
import pandas as pd
from PIL import Image
from torch.utils.data import IterableDataset

from ood_lab.common.errors import UserError, one_line, reported_as
from ood_lab.common.file_records import Stamp
from ood_lab.common.files import StrPath
from ood_lab.common.hints import check_known
from ood_lab.data.sources.file_facts import Facts, file_facts, unreadable
from ood_lab.data.sources.folders import NO_LABEL
from ood_lab.data.sources.label_names import is_named
from ood_lab.data.sources.reading_warnings import Tell
from ood_lab.schema.image_columns import LEVELS

_IMAGES = ("image", "img", "picture", "pixel_values", "jpg", "png", "webp")
_LABELS = ("label", "labels", "class", "cls", "target", "fine_label", "y")
#: The third axis of an array that is an image, if it has one.
_CHANNELS = ((), (1,), (3,), (4,))
Column = str | int
#: Samples that are tried for one that shows its columns.
_TRIED = 20


def as_image(value: Any) -> Image.Image:
    """A PIL image from one, an array or tensor, encoded bytes, or a path.

    Arrays are ``[H, W]``, ``[H, W, 1|3|4]`` or ``[1|3|4, H, W]``: bytes, or floats from 0 to 1.

    Raises:
        ValueError: it is none of these.
    """
    if isinstance(value, Image.Image):
        return value
    value = _encoded(value)
    if isinstance(value, bytes):
        return Image.open(io.BytesIO(value))
    if isinstance(value, (str, os.PathLike)):
        return Image.open(value)
    if value is None:
        raise ValueError("the row has no image")
    pixels = np.asarray(value)
    if pixels.shape[2:] not in _CHANNELS:
        pixels = np.moveaxis(pixels, 0, -1)
    if pixels.ndim < 2 or pixels.shape[2:] not in _CHANNELS:
        raise ValueError(f"{type(value).__name__} of shape {np.shape(value)} is no image")
    if pixels.dtype.kind == "f":
        if pixels.min() < 0 or pixels.max() > 1:
            raise ValueError(
                f"its values are {pixels.min():.3g} to {pixels.max():.3g}, not 0 to 1: leave "
                "normalisation to the network's own transform"
            )
        pixels = (pixels * 255).round().astype(np.uint8)
    if pixels.dtype != np.uint8:
        raise ValueError(f"its values are {pixels.dtype}: give bytes, or floats from 0 to 1")
    return Image.fromarray(pixels[..., 0] if pixels.shape[2:] == (1,) else pixels)


class Samples:
    """The images of a map-style data set, addressed as ``<name>#<row>``.

    A sample is an image, a tuple with the image first and the label second, or a dict. Undecoded
    images of Hugging Face's data sets stay undecoded, so that their sha256 is that of the file.

    Args:
        dataset: has ``len`` and ``[i]``.
        name: of the source.
        image: key or position of the image in a sample; None = found by name, or the first image.
        label: the same of the label; None = found by name, or the second of a tuple.
        version: a number that changes with the data; None = nothing may be remembered.

    Raises:
        UserError: it is not map-style, or has no such column.
    """

    def __init__(
        self,
        dataset: Any,
        name: str,
        image: Column | None,
        label: Column | None,
        version: int | None,
    ) -> None:
        if not (hasattr(dataset, "__getitem__") and hasattr(dataset, "__len__")):
            raise UserError(f"{name}: {type(dataset).__name__} is not map-style: it needs len, [i]")
        if isinstance(dataset, IterableDataset):
            raise UserError(
                f"{name}: {type(dataset).__name__} is not map-style: it deals its samples out to "
                "processes by itself, so that each would see a part; take a class whose len and "
                "[i] are of all samples, such as streaming.LocalDataset for MosaicML's shards"
            )
        if len(dataset) == 0:
            raise UserError(f"{name} contains no images")
        self.name = name
        self.dataset = dataset
        self.version = version
        self.changeless = version is not None
        self._hashes: dict[str, str] = {}
        self._width = len(str(len(dataset) - 1))
        features: Any = getattr(dataset, "features", None)
        tabular = isinstance(features, Mapping)  # Hugging Face's
        # The classes of others need not stand several threads.
        self.threads: int | None = None if tabular else 1
        with reported_as(f"{name}#0: {{reason}}"):
            example = features if tabular else self._example()
        self._image, self._label = self._columns(example, image, label)
        self.classes = self._names(features)
        if tabular and type(features[self._image]).__name__ == "Image":
            undecoded = type(features[self._image])(decode=False)
            self.dataset = dataset.with_format(None).cast_column(self._image, undecoded)

    @property
    def paths(self) -> list[str]:
        """The address of every row."""
        return [f"{self.name}#{row:0{self._width}}" for row in range(len(self.dataset))]

    def stat(self, path: str) -> Stamp:
        """The same for every image: nothing is known before it is read."""
        return Stamp(1, self.version or 0, 0)

    def open(self, path: str) -> Image.Image:
        """The image of a row."""
        return as_image(self._value(path))

    def sha256(self, path: str) -> str:
        """Of the encoded image, else of mode, size and pixels."""
        return self._hashes.get(path) or _sha256(self._value(path))

    def ends(self, path: str) -> str:
        """The whole of it."""
        return self.sha256(path)

    def table(self, cache_dir: StrPath | None, tell: Tell, skip: bool = False) -> pd.DataFrame:
        """Columns ``path`` and ``label`` (text), and of Hugging Face's, further label columns.

        Where labels are no column of their own, every sample is read for them, once.

        Args:
            cache_dir: see :func:`~ood_lab.data.sources.file_facts.file_facts`.
            tell: receives a message on what was skipped.
            skip: leave samples out that cannot be read.

        Raises:
            UserError: a sample cannot be read, or all of them.
        """
        paths = self.paths
        if self.threads is None:
            columns = {c: self.dataset[c] for c in self.dataset.column_names if _travels(c)}
            labels = [NO_LABEL] * len(paths) if self._label is None else self.dataset[self._label]
            return pd.DataFrame({"path": paths, "label": self._texts(labels), **columns})
        if self._look(paths[0]) != self._look(paths[0]):
            raise UserError(
                f"{self.name} gives another image at every read of the same row: remove "
                "its random transforms; the network's own are applied later"
            )
        facts = file_facts(paths, self._look, "reading images and labels", cache_dir, self)
        self._hashes = dict(zip(paths, facts["sha256"], strict=True))
        broken = facts["error"] != ""
        if broken.any():
            text = unreadable(facts, "samples")
            if not skip or broken.all():
                raise UserError(f"{text}. Repair them, or set data.on_broken=skip")
            tell(f"{text}; they are skipped")
            facts = facts[~broken]
            paths = facts["path"].tolist()
        labels = facts["label"].map(json.loads)
        return pd.DataFrame({"path": paths, "label": self._texts(labels)})

    def _example(self) -> Any:
        """The first of some samples that can be read; none can: the first says why."""
        for row in range(min(_TRIED, len(self.dataset))):
            with suppress(Exception):  # of the classes of others, which ``table`` reports
                return self.dataset[row]
        return self.dataset[0]

    def _look(self, path: str) -> Facts:
        try:
            sample = self._sample(path)
            label = None if self._label is None else sample[self._label]
            image = sample if self._image is None else sample[self._image]
            return {"label": json.dumps(_scalar(label)), "sha256": _sha256(image), "error": ""}
        except Exception as error:  # the classes of others raise anything
            reason = one_line(error)
            return {"label": "", "sha256": "", "error": reason}

    def _texts(self, labels: Iterable[Any]) -> list[str]:
        texts = []
        for row, label in enumerate(labels):
            with reported_as(f"{self.name}#{row}: {{reason}}", ValueError):
                value = _scalar(label)
            if isinstance(value, str) and value.isdecimal() and value not in (self.classes or ()):
                value = int(value)
            # A number is a position in the list of classes, also where a class has that name.
            if self.classes and not isinstance(value, str) and value == int(value):
                if value >= len(self.classes):
                    raise UserError(
                        f"{self.name}#{row} has label {value}, and there are "
                        f"{len(self.classes)} classes"
                    )
                value = self.classes[int(value)] if value >= 0 else NO_LABEL
            texts.append(str(value))
        return texts

    def _sample(self, path: str) -> Any:
        return self.dataset[int(path.rpartition("#")[2])]

    def _value(self, path: str) -> Any:
        sample = self._sample(path)
        return sample if self._image is None else sample[self._image]

    def _columns(self, example: Any, image: Column | None, label: Column | None) -> tuple[Any, Any]:
        """Key or position of image and label in a sample; None: the sample is the image itself."""
        if isinstance(example, Mapping):
            keys = [str(key) for key in example]
            images = [k for k in keys if _is_image(example[k])] or [k for k in _IMAGES if k in keys]
            images = images or [k for k in keys if _is_encoded(example[k])]
            labels = [k for k in keys if type(example[k]).__name__ == "ClassLabel"]
            named = [k for k in _LABELS if k in keys]
            return (
                self._choose("image", image, keys, images, True),
                self._choose("label", label, keys, named[:1] or labels, False),
            )
        if isinstance(example, (tuple, list)):
            keys = [str(position) for position in range(len(example))]
            images = [k for k in keys if _is_image(example[int(k)])]
            first = self._choose("image", image, keys, images[:1] or keys[:1], True)
            rest = [k for k in keys if k != first and k not in images]
            second = self._choose("label", label, keys, rest[:1], False)
            return int(first), None if second is None else int(second)
        if image is not None or label is not None:
            raise UserError(f"{self.name}: a sample is only an image, without columns to name")
        as_image(example)
        return None, None

    def _choose(
        self, kind: str, column: Column | None, keys: list[str], candidates: list[str], needed: bool
    ) -> Any:
        if column is not None:
            wrong = f"{self.name} has no column '{{name}}' for the {kind}"
            check_known([str(column)], keys, wrong)
            return str(column)
        if len(candidates) == 1:
            return candidates[0]
        if candidates or needed:
            which = (
                f"several columns for the {kind}" if candidates else f"no column that is an {kind}"
            )
            raise UserError(
                f"{self.name} has {which} ({', '.join(candidates or keys)}): name one, as in "
                f"{{dataset: ..., {kind}: {(candidates or keys)[0]}}}"
            )
        return None

    def _names(self, features: Any) -> list[str] | None:
        """Names of the classes, position = label, as the data set numbers them."""
        if isinstance(features, Mapping):
            class_list = getattr(features.get(self._label), "names", None)
        else:
            class_list = _classes_of(self.dataset)
        return None if class_list is None else class_names(class_list)


def _classes_of(dataset: Any) -> list[Any] | None:
    """The names in a data set as torchvision has them, or in those that it is made of."""
    if isinstance(names := getattr(dataset, "classes", None), Sequence):
        return list(names)
    if positions := getattr(dataset, "class_to_idx", None):
        return sorted(positions, key=positions.__getitem__)
    inner = [dataset.dataset] if hasattr(dataset, "dataset") else getattr(dataset, "datasets", [])
    lists = [_classes_of(part) for part in inner]
    if any(names != lists[0] for names in lists):
        raise UserError(
            f"{type(dataset).__name__} joins data sets with other classes, so that a label has "
            "several meanings: give each a source of its own"
        )
    return lists[0] if lists else None


def class_names(entries: Sequence[Any]) -> list[str]:
    """Names as texts, each once: ImageNet has two cranes."""
    names = [", ".join(map(str, n)) if isinstance(n, (tuple, list)) else str(n) for n in entries]
    return [f"{n} ({i})" if names.count(n) > 1 else n for i, n in enumerate(names)]


def _travels(column: str) -> bool:
    return is_named(column) or column in LEVELS or column.startswith("attribute_")


def _is_image(value: Any) -> bool:
    """True for what can only be an image: PIL's, an array of two or three axes, such a feature."""
    shape = value.shape if hasattr(value, "shape") else ()
    return type(value).__name__ == "Image" or isinstance(value, Image.Image) or len(shape) in (2, 3)


def _is_encoded(value: Any) -> bool:
    """True for the bytes of an image and its path, of a file that names no feature as such."""
    return isinstance(value, Mapping) and "bytes" in value


def _scalar(label: Any) -> str | float:
    """A label as text or number; no label is :data:`NO_LABEL`."""
    if label is None:
        return NO_LABEL
    if hasattr(label, "item") and np.size(label) == 1:
        label = label.item()
    if isinstance(label, bool):
        return str(label)
    if isinstance(label, (int, float)):
        return label if label >= 0 else NO_LABEL  # NaN, too, is no label
    if isinstance(label, str):
        return label.strip() or NO_LABEL
    raise ValueError(f"its label is {type(label).__name__}, not a name or a number: name another")


def _encoded(value: Any) -> Any:
    """The bytes or the path of an image that Hugging Face has not decoded; others unchanged."""
    if not _is_encoded(value):
        return value
    return value["path"] if value["bytes"] is None else value["bytes"]


def _sha256(value: Any) -> str:
    value = _encoded(value)
    if isinstance(value, (str, os.PathLike)):
        with open(value, "rb") as file:
            value = file.read()
    if isinstance(value, bytes):
        return hashlib.sha256(value).hexdigest()
    image = as_image(value)
    head = f"{image.mode} {image.size} {image.getexif().get(274, 1)}\0".encode()
    return hashlib.sha256(head + image.tobytes()).hexdigest()
