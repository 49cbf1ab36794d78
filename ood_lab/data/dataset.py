"""The dataset contract: a table with one row per image, and a way to load row ``i``."""

from __future__ import annotations

import json
from abc import ABC, abstractmethod
from collections.abc import Mapping, Sequence

import numpy as np
import pandas as pd
import torch
from PIL import Image
from torch import Tensor
from torch.utils.data import Dataset
from torchvision.transforms import CenterCrop, Compose, Resize

from ood_lab.common.errors import UserError
from ood_lab.common.tensor_file import Batch, Transform
from ood_lab.schema.image_columns import DEGREES, GROUP, LEVELS, LISTS, MADE_OF, SEVERAL

#: Names of the values of a column, position = value.
ValueNames = Mapping[str, Sequence[str]]

#: Columns that hold integers and travel with every sample when the table has them.
INTEGER_COLUMNS = (*LEVELS, "category", "shape")
#: Names of the ID sets; every other name is an OOD set.
ID_SPLITS = ("train", "val", "test")
#: Names that no other set may have.
RESERVED = (*ID_SPLITS, "ID")
#: Label of an image that belongs to no ID class, or whose class is unknown.
UNKNOWN = -1


def columns_with(prefix: str, table: pd.DataFrame) -> list[str]:
    """The columns of a table whose names begin so: ``level_``, ``attribute_``."""
    return [name for name in map(str, table) if name.startswith(prefix)]


class ImageDataset(Dataset[Batch], ABC):
    """Images addressed by row number.

    A sample is a dict: ``image [3, H, W] float32``, ``index int`` (row of ``table``),
    ``label int`` (-1 = OOD or unknown) and, where the table has them, ``semantic_level``,
    ``covariate_level``, ``category``, ``shape`` (int), ``levels [L] int64`` (labels coarse to
    fine, from columns ``level_0, level_1, ...``) and ``attributes [A] float32`` (0/1, from
    columns ``attribute_<name>``), and ``group`` (int, where images belong together). Paths stay in
    the table: rows are joined by ``index``.

    Args:
        name: ``train``, ``val``, ``test`` or the name of an OOD set.
        table: one row per image, columns ``path`` (str) and ``label`` (int64) at least.
        classes: names of the ID classes, position = label; empty for an OOD set.
        identity: sha256 (hex) of everything that determines the pixels and the labels.
        names: of the values of a column (``category``, ``shape``, ``level_<n>``), position =
            value; columns that are not in it hold plain numbers.
    """

    def __init__(
        self,
        name: str,
        table: pd.DataFrame,
        classes: list[str],
        identity: str,
        names: ValueNames | None = None,
    ) -> None:
        self.name = name
        self.names = {column: tuple(words) for column, words in (names or {}).items()}
        self.table = table.reset_index(drop=True)
        self.classes = classes
        self.identity = identity
        self.transform: Transform | None = None
        self._labels = self.table["label"].to_numpy(np.int64)
        self._extras = self._extra_arrays()

    def _extra_arrays(self) -> dict[str, np.ndarray]:
        table = self.table
        extras: dict[str, np.ndarray] = {}
        grouped = (GROUP,) if GROUP in self.names else ()
        for column in (*INTEGER_COLUMNS, *grouped):
            if column in table:
                extras[column] = table[column].to_numpy(np.int64)
        if levels := sorted(columns_with("level_", table)):
            extras["levels"] = table[levels].to_numpy(np.int64, copy=True)
        if attributes := columns_with("attribute_", table):
            extras["attributes"] = table[attributes].to_numpy(np.float32, copy=True)
        return extras

    def set_levels(self, levels: Mapping[str, np.ndarray] | None) -> None:
        """Replaces :data:`LEVELS [N] int64` and :data:`DEGREES [N]`; None takes them away."""
        self.table = self.table.drop(columns=[*LEVELS, *DEGREES], errors="ignore")
        if levels is not None:
            self.table = self.table.assign(**levels)
        self._extras = self._extra_arrays()

    def set_groups(self, codes: np.ndarray) -> None:
        """Sets :data:`GROUP [N] int64`: equal where images belong together, in all sets alike."""
        self.table[GROUP], self.table[MADE_OF] = codes, [f"group {code}" for code in codes]
        self.names[GROUP] = ()
        self._extras = self._extra_arrays()

    def names_of(self, column: str) -> tuple[str, ...]:
        """Names of the values of a label column, position = value; empty without the column."""
        if column not in self.table:
            return ()
        size = int(self.table[column].max()) + 1
        return self.names.get(column) or tuple(str(value) for value in range(size))

    @abstractmethod
    def load_image(self, index: int) -> Image.Image:
        """Returns row ``index`` as an RGB PIL image.

        With other numbers of channels it has an attribute ``channels [H, W, n]``.
        """

    def load_mask(self, index: int) -> np.ndarray | None:
        """Share of the object in every pixel of row ``index``, ``[H, W]``; None = not known."""
        return None

    def address(self, row: int) -> str:
        """Path of a row, as the table has it."""
        return str(self.table["path"].iat[row])

    def __len__(self) -> int:
        return len(self.table)

    @property
    def labels(self) -> Tensor:
        """``[N] int64``, -1 = OOD or unknown."""
        return torch.from_numpy(self._labels.copy())

    @property
    def groups(self) -> Tensor | None:
        """``[N] int64``, equal where images belong together; None where each is its own."""
        codes = self._extras.get(GROUP)
        return None if codes is None else torch.from_numpy(codes.copy())

    def __getitem__(self, index: int) -> Batch:
        if self.transform is None:
            raise RuntimeError(f"dataset '{self.name}' has no transform: call use_transform first")
        return {"image": self.transform(self.load_image(index)), **self.facts(index)}

    def facts(self, index: int) -> Batch:
        """The sample of row ``index`` without its image."""
        sample: Batch = {"index": index, "label": int(self._labels[index])}
        for key, values in self._extras.items():
            value = values[index]
            sample[key] = torch.from_numpy(value) if value.ndim else int(value)
        return sample


#: By name; a step that adds, cuts or takes away sets has those that can change.
Splits = Mapping[str, ImageDataset]
ImageSets = dict[str, ImageDataset]


def targets(data: ImageDataset) -> tuple[np.ndarray, np.ndarray]:
    """Which classes the images have, ``[N, C] bool``, and of which that is known, ``[N] bool``."""
    labelled = (data.labels == SEVERAL).numpy()
    has = np.zeros((len(data), len(data.classes)), dtype=bool)
    position = {name: place for place, name in enumerate(data.classes)}
    for row in np.flatnonzero(labelled).tolist():
        names = json.loads(str(data.table[LISTS].iat[row]))
        has[row, [position[name] for name in names]] = True
    return has, labelled


def without_resize(transform: Transform) -> Transform:
    """The evaluation transform without its resize and centre crop.

    Raises:
        UserError: it is not a chain of steps, so that these cannot be left out.
    """
    if not isinstance(transform, Compose):
        raise UserError(
            "data.unresized needs a transform of separate steps (torchvision's Compose), not a "
            f"{type(transform).__name__}: leave it empty"
        )
    return Compose([s for s in transform.transforms if not isinstance(s, (Resize, CenterCrop))])
