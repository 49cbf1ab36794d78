"""What a set may be read from: folders, tables, lists, tar shards, and data sets of others."""

from __future__ import annotations

import inspect
import os
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property, partial
from pathlib import Path
from typing import Any, NamedTuple

import pandas as pd

from ood_lab.common.errors import UserError, one_line
from ood_lab.common.file_records import stamp, text_sha256
from ood_lab.common.files import StrPath
from ood_lab.data.sources import huggingface
from ood_lab.data.sources.folders import are_splits, in_junk, is_junk, splits_message
from ood_lab.data.sources.foreign_datasets import Column, Samples, class_names
from ood_lab.data.sources.image_stores import FILES, Store
from ood_lab.data.sources.manifest import check_columns, encode_labels, missing_of, read_manifest
from ood_lab.data.sources.reading_warnings import Tell
from ood_lab.data.sources.tar_shards import are_shards, read_shards

#: A path, ``{path: ..., root: ...}``, ``{dataset: ..., image: ..., label: ...}``, a data set, or a
#: function that makes one.
Given = Any
_KEYS = {"path": ("path", "root", "image", "label"), "dataset": ("dataset", "image", "label")}


class Listed(NamedTuple):
    """The images of a source.

    Attributes:
        table: see :func:`~ood_lab.data.sources.manifest.read_manifest`.
        classes: position = label.
        store: where the images lie.
    """

    table: pd.DataFrame
    classes: list[str]
    store: Store


class ReadOptions(NamedTuple):
    """How a source is read, see :func:`~ood_lab.data.sources.manifest.read_manifest`."""

    tell: Tell
    cache_dir: StrPath | None = None
    skip: bool = False
    group: str | None = None


def source_of(setting: Given, key: str, root: StrPath | None = None) -> Source:
    """The source that a value of the configuration stands for.

    Args:
        setting: see :data:`Given`. A path is a folder, a table or list (:func:`read_manifest`), tar
            shards (see :func:`read_shards`) or a folder that Hugging Face's ``save_to_disk`` wrote.
        key: of the value, for messages.
        root: folder that relative paths in tables and lists start from; None = their own.

    Raises:
        UserError: unknown keys.
    """
    options = dict(setting) if isinstance(setting, Mapping) else {}
    kind = next((kind for kind in _KEYS if kind in options), "path")
    if isinstance(setting, Mapping):
        unknown = [name for name in options if name not in _KEYS[kind]]
        if unknown or kind not in options:
            wrong = f"'{unknown[0]}'" if unknown else "no path"
            raise UserError(
                "a data source is a path, {path: ..., root: ...} or {dataset: ..., image: ..., "
                f"label: ...}}, not with {wrong}"
            )
        setting = options[kind]
    image, label = options.get("image"), options.get("label")
    if not isinstance(setting, (str, os.PathLike)):
        return OwnData(setting, key, image, label)
    path = os.fspath(setting)
    if huggingface.is_saved(path) or huggingface.holds_images(path):
        return OwnData(partial(huggingface.load, path=path), key, image, label)
    if are_shards(path):
        return Shards(path, image, label)
    return Manifest(Path(path), options.get("root", root), image, label)


@dataclass(frozen=True)
class Manifest:
    """A folder, table or list of image files.

    Attributes:
        place: the file or folder, for messages.
        root: see :func:`~ood_lab.data.sources.manifest.read_manifest`.
        image: column of the paths.
        label: column of the labels.
    """

    place: Path
    root: StrPath | None
    image: str | None
    label: str | None

    def missing(self) -> str:
        """The number of listed images that are not there, and the first of them; else nothing."""
        return missing_of(self.place, self.root) if self.place.is_file() else ""

    def read(self, classes: Sequence[str] | None, reading: ReadOptions) -> Listed:
        """See :func:`~ood_lab.data.sources.manifest.read_manifest`."""
        columns = {"path": self.image, "label": self.label}
        table, names = read_manifest(
            self.place,
            self.root,
            classes,
            tell=reading.tell,
            skip=reading.skip,
            columns=columns,
            group=reading.group,
        )
        return Listed(table, names, FILES)


@dataclass(frozen=True)
class Shards:
    """Tar shards."""

    pattern: str
    image: str | None
    label: str | None

    @property
    def place(self) -> Path:
        """The shard or folder; of a pattern, the folder."""
        path = Path(self.pattern).expanduser()
        return path if not set(self.pattern) & set("{*?[") else path.parent

    def missing(self) -> str:
        """Nothing that reading would not find."""
        return ""

    def read(self, classes: Sequence[str] | None, reading: ReadOptions) -> Listed:
        """See :func:`~ood_lab.data.sources.manifest.read_manifest`."""
        table, store = read_shards(self.pattern, self.image, self.label, reading.cache_dir)
        encoded, names = encode_labels(
            table, classes, self.pattern, numeric=True, tell=reading.tell
        )
        return Listed(encoded, names, store)


@dataclass
class OwnData:
    """A map-style data set of another package, or of the user.

    Args:
        setting: the data set, or a function without arguments that makes it, such as a ``partial``
            of its class.
        key: of the configuration, for messages.
        image: see :class:`~ood_lab.data.sources.foreign_datasets.Samples`.
        label: the same.
    """

    setting: Any
    key: str
    image: Column | None
    label: Column | None

    @property
    def made_by(self) -> Any:
        """The class or function of the data set."""
        return self.setting.func if isinstance(self.setting, partial) else type(self.setting)

    @cached_property
    def dataset(self) -> Any:
        """The data set, made when it is first asked for.

        Raises:
            UserError: its class rejects.
        """
        if not isinstance(self.setting, partial):
            return self.setting
        try:
            return self.setting()
        except UserError as error:
            raise UserError(f"{self.key}: {error}") from error
        except Exception as error:  # whatever the class of another package finds wrong
            reason = one_line(error)
            takes = "download" in inspect.signature(self.made_by).parameters
            remedy = (
                f"; {self.key}.download=true fetches it" if takes and not self._downloads else ""
            )
            raise UserError(
                f"{self.key}: {self.made_by.__name__} says: {reason}{remedy}"
            ) from error

    @property
    def _arguments(self) -> Mapping[str, Any]:
        return self.setting.keywords if isinstance(self.setting, partial) else {}

    @property
    def _downloads(self) -> bool:
        return bool(self._arguments.get("download"))

    @property
    def _paths(self) -> list[str]:
        """The files and folders that its arguments name."""
        named = [str(a) for a in self._arguments.values() if isinstance(a, (str, os.PathLike))]
        return [path for path in named if os.path.exists(os.path.expanduser(path))]

    @property
    def place(self) -> Path:
        """The first path that its arguments name, else the folder of its code."""
        return Path(next(iter(self._paths), os.path.dirname(_code(self.made_by) or ".") or "."))

    def missing(self) -> str:
        """What its class says where it cannot be made."""
        try:
            return "" if self._downloads or self.dataset is not None else "nothing"
        except UserError as error:
            return str(error).partition(": ")[2]

    def read(self, classes: Sequence[str] | None, reading: ReadOptions) -> Listed:
        """See :func:`~ood_lab.data.sources.manifest.read_manifest`."""
        if plain := _plain_files(self.dataset):
            if classes is None and are_splits(self.dataset.classes):
                raise UserError(splits_message(self.dataset.root, self.dataset.classes))
            table, names = self._table_of(plain, reading.tell)
            return self._listed(table, names, classes, FILES, reading.tell)
        name = f"{self.key.removeprefix('data.').replace('.', '/')}/{self.made_by.__name__}"
        samples = Samples(self.dataset, name, self.image, self.label, self._version())
        table = samples.table(reading.cache_dir, reading.tell, reading.skip)
        return self._listed(table, samples.classes, classes, samples, reading.tell)

    def _table_of(
        self, plain: Sequence[tuple[str, int]], tell: Tell
    ) -> tuple[pd.DataFrame, list[str]]:
        """The images and classes of a folder, less what a system keeps for itself."""
        root = os.path.abspath(self.dataset.root)
        images = [(os.path.abspath(path), label) for path, label in plain]
        kept = [pair for pair in images if not in_junk(os.path.relpath(pair[0], root))]
        if left := len(images) - len(kept):
            tell(f"'{root}': {left:,} images of system folders left out", False)
        names = class_names(self.dataset.classes)
        rows = [(path, names[label]) for path, label in kept]
        table = pd.DataFrame(rows, columns=["path", "label"])
        return table, [name for name in names if not is_junk(name)]

    def _listed(
        self,
        table: pd.DataFrame,
        names: list[str] | None,
        classes: Sequence[str] | None,
        store: Store,
        tell: Tell,
    ) -> Listed:
        table = check_columns(table, Path(self.key))
        names_to_use = names if classes is None and names else classes
        encoded, chosen = encode_labels(table, names_to_use, self.key, not names, tell)
        return Listed(encoded, chosen, store)

    def _version(self) -> int | None:
        """Changes with its code, its arguments and every file that they name; None: no file is."""
        if not (files := sorted(_below(self._paths))):
            return None
        code = _code(self.made_by)
        facts = [(path, *stamp(path)) for path in [*files, *([code] if code else [])]]
        text = f"{self.made_by} {sorted(map(str, self._arguments.items()))} {facts}"
        return int(text_sha256(text)[:14], 16)


#: What lists images.
Source = Manifest | Shards | OwnData


def _code(made_by: Callable[..., Any]) -> str | None:
    try:
        return inspect.getsourcefile(made_by)
    except TypeError:  # builtin, or of a notebook
        return None


def _below(paths: Iterable[str]) -> Iterable[str]:
    for path in map(os.path.expanduser, paths):
        if os.path.isfile(path):
            yield path
        for folder, _, names in os.walk(path):
            yield from (os.path.join(folder, name) for name in names)


def _plain_files(dataset: Any) -> list[tuple[str, int]]:
    """Files and labels of torchvision's ``ImageFolder`` and what is like it; none of all others.

    They are then read as the files of any folder, without a pass over all of them.
    """
    from torchvision.datasets import DatasetFolder
    from torchvision.datasets.folder import default_loader

    if not isinstance(dataset, DatasetFolder):
        return []
    unchanged = type(dataset).__getitem__ is DatasetFolder.__getitem__
    changed = dataset.transform or dataset.target_transform or dataset.loader is not default_loader
    return list(dataset.samples) if unchanged and not changed else []
