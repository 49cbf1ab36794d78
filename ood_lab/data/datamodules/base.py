"""The DataModule contract: ID train, val, test and any number of named OOD sets."""

from __future__ import annotations

import math
import re
from abc import abstractmethod
from collections.abc import Iterable, Mapping, Sequence
from functools import cached_property, partial
from pathlib import Path
from typing import Any, ClassVar, TypeVar

import lightning as L
import pandas as pd
import torch
from lightning.fabric.utilities.seed import pl_worker_init_function
from PIL import Image
from torch.utils.data import DataLoader, Sampler, default_collate
from torchvision.transforms import Compose

from ood_lab.common.arguments import Seed, Settings, check_values
from ood_lab.common.cpu_cores import fitting_processes, loading_processes
from ood_lab.common.errors import UserError
from ood_lab.common.files import StrPath
from ood_lab.common.hints import check_known
from ood_lab.common.tensor_file import Batch, Transform
from ood_lab.common.training_epoch import coming_epoch
from ood_lab.data.checks.check_report import CheckReport, Finding, ImageSize, SetSummary, id_size
from ood_lab.data.checks.dataset_checks import Checking, check_data
from ood_lab.data.checks.label_checks import require_labels
from ood_lab.data.datamodules.class_labels import label_space
from ood_lab.data.datamodules.epoch_sampler import DeviceShare, EpochSampler, TrainingView
from ood_lab.data.datamodules.preparation_steps import (
    OUTLIERS,
    Loading,
    Shots,
    add_outliers,
    check_outliers,
    read_division,
    take_shots,
)
from ood_lab.data.dataset import (
    ID_SPLITS,
    UNKNOWN,
    ImageDataset,
    ImageSets,
    Splits,
    ValueNames,
    without_resize,
)
from ood_lab.data.sources.image_files import FileDataset, found_decoding
from ood_lab.data.sources.image_stores import FILES, Store
from ood_lab.data.sources.pixel_decoding import CHANNELS
from ood_lab.data.sources.source_settings import Given
from ood_lab.data.transforms.background_replacement import Backgrounds, Replacement
from ood_lab.data.transforms.subsets import ALL
from ood_lab.data.transforms.synthetic_ood import SyntheticOOD
from ood_lab.schema.image_columns import LISTS
from ood_lab.schema.label_space import LabelSpace
from ood_lab.schema.results import Tables

#: A group's name becomes a part of the name of a metric: ``mean_near_auroc``.
_NAME = re.compile(r"[A-Za-z][A-Za-z0-9_-]*")
Options = TypeVar("Options", Loading, Checking)


class OODDataModule(L.LightningDataModule):
    """ID train, val, test and the OOD sets, each an :class:`ImageDataset`.

    A subclass says in :meth:`build_splits` which datasets there are; everything else is here.
    Call :meth:`setup` before any heavy work: every error in the data surfaces there. Nothing
    depends on the rank, so all processes hold the same sets in the same order.

    Args:
        name: of the data, for folders and tables.
        shift_order: names of OOD sets from the slightest to the largest shift, for DAD; None or
            empty = no order is claimed.
        ood_groups: names of OOD sets by the name of their group, as in ``{near: [a, b]}``, from the
            slightest to the largest shift: groups have means of their own, and without a
            ``shift_order`` the DAD counts pairs of sets of different groups. A group that is None
            is skipped.
        unresized: names of sets whose images have the network's size already, as ImageNet-C's do:
            they are normalised, but neither resized nor cropped.
        seed: of the order of training images and their augmentation, together with the seed of the
            job; and of the sample that the check decodes.
        info: what to know of the data: ``licence``, ``source``, ``redistribute``, ``tree``,
            ``sha256`` (of list files, by set). Shown by ``task=data_check``, otherwise unused.
        synthetic_ood: makes OOD sets of the ID data; None = none.
        shots, shot_seed: see :func:`take_shots`.
        outliers: source of images that training sees in addition to ``train``; None = none.
        levels: file with measured levels of shift of the OOD sets, see
            :func:`~ood_lab.data.sources.level_tables.read_levels`; None = those that the sets bring
            along.
        options: the fields of :class:`Loading`, :class:`Checking` and
            :class:`~ood_lab.data.transforms.background_replacement.Replacement`.

    Raises:
        UserError: a value of another type, out of range, or no choice.

    Attributes:
        splits: ``train``, ``val``, ``test``, then the sets with shifted covariates (csID), the OOD
            sets in order, those that only choose settings, and the outliers to train with.
        csid_names: sets of ID classes that join ID test (full-spectrum evaluation).
        val_ood_names: OOD sets on which settings are chosen, and which are never evaluated.
        report: what the check found; print it with rich.
    """

    OPTIONS: ClassVar = (Loading, Checking, Replacement)
    #: Which images belong together, see :func:`~ood_lab.data.datamodules.image_groups.add_groups`.
    group: str | None = None
    #: Images that this package renders, by the words in which a shipped model says what it knows.
    rendered: ClassVar[str | None] = None

    def __init__(
        self,
        name: str,
        *,
        shift_order: Sequence[str] | None = None,
        ood_groups: Mapping[str, Sequence[str] | None] | None = None,
        unresized: Sequence[str] = (),
        seed: Seed = 0,
        info: Settings | None = None,
        synthetic_ood: SyntheticOOD | None = None,
        shots: Shots = ALL,
        shot_seed: Seed | None = None,
        outliers: Given | None = None,
        levels: StrPath | None = None,
        **options: Any,
    ) -> None:
        check_values(OODDataModule, {**locals(), **options}, "data")
        super().__init__()
        self.name = name
        self.shift_order = list(shift_order or [])
        self.ood_groups = {g: list(names) for g, names in (ood_groups or {}).items() if names}
        self.csid_names: list[str] = []
        self.val_ood_names: list[str] = []
        #: Sets that the configuration names and this run does not read.
        self.left_out: list[str] = []
        #: Sets that were missing, and are split off ``train``.
        self.split_off: list[str] = []
        #: Classes that ``synthetic_ood`` takes out of ID.
        self.held_out: list[str] = []
        self.unresized = list(unresized)
        self.seed = seed
        self.info = dict(info or {})
        self.synthetic_ood = synthetic_ood
        self.shots, self.shot_seed = shots, shot_seed
        self.outliers, self.levels = outliers, levels
        self.loading, self.checking = _taken(Loading, options), _taken(Checking, options)
        self.replacement = Replacement(**options)
        self.splits: ImageSets = {}
        self.report: CheckReport | None = None
        self.notes: list[str] = []
        self._doubts: list[Finding] = []
        self._train_view: TrainingView | None = None
        self._batch_keys: Sequence[str] | None = None
        self._whole_train: ImageDataset | None = None

    @property
    def title(self) -> str:
        """A name for headings: that of the data, or of the few batches in use."""
        name = str(self.name)
        return name if self.is_whole else f"{self.loading.max_batches} batches of {name}"

    @property
    def is_whole(self) -> bool:
        """False where only a few batches of every set are looked at."""
        return self.loading.max_batches is None

    @property
    def sources(self) -> dict[str, Path]:
        """The place where each set is read from, existing or not; empty for generated data."""
        return {}

    @abstractmethod
    def build_splits(self) -> Splits:
        """Returns ``train``, ``val``, ``test``, then the OOD sets in order.

        What the user should know of the making goes to ``self.notes``.
        """

    def file_sets(
        self,
        tables: Tables,
        classes: Mapping[str, list[str]],
        names: ValueNames,
        stores: Mapping[str, Store] | None = None,
    ) -> ImageSets:
        """Sets of images that are decoded alike, by the pixels of train.

        Args:
            tables: of the sets, see :class:`~ood_lab.data.sources.image_files.FileDataset`.
            classes: of the sets that have any.
            names: of the labels in further columns.
            stores: of the sets, those of train where none is given; None = files.
        """
        stores_of, checking = stores or {}, self.checking
        of_train = stores_of.get("train", FILES)
        paths = tables["train"]["path"].tolist()
        decoding = found_decoding(
            paths,
            of_train,
            checking.pixel_range,
            checking.max_megapixels,
            checking.cache_dir,
            self.remark,
        )
        return {
            name: FileDataset(
                name,
                table,
                classes.get(name, []),
                identify=checking.identify,
                cache_dir=checking.cache_dir,
                names=names,
                store=stores_of.get(name, of_train),
                decoding=decoding,
            )
            for name, table in tables.items()
        }

    def remark(self, text: str, doubtful: bool = True) -> None:
        """Keeps what the reading of a set says for the report of the check."""
        if doubtful:
            self._doubts.append(Finding(text))
        else:
            self.notes.append(text)

    def own_backgrounds(self) -> Backgrounds | None:
        """Backgrounds that the data itself knows; None = only a folder can give some."""
        return None

    def setup(self, stage: str | None = None) -> None:
        """Builds and checks all sets, whatever the stage; a second call does nothing.

        Raises:
            UserError: anything wrong with the data or the names, in one line.
        """
        if self.splits:
            return
        splits = dict(self.build_splits())
        if self.synthetic_ood:
            all_classes = splits["train"].classes
            splits, notes = self.synthetic_ood.hold_out(splits, [*ID_SPLITS, *self.csid_names])
            self.held_out = [name for name in all_classes if name not in splits["train"].classes]
            self.notes += notes
            if not (self.shift_order or self.ood_groups):
                self.shift_order = self.synthetic_ood.order(splits)
        self.notes += take_shots(splits, self.shots, self.shot_seed)
        if self.outliers is not None:
            self.notes += add_outliers(splits, self.outliers, self.checking, self.remark)
        names = [*splits, *(self.synthetic_ood.names if self.synthetic_ood else ())]
        self._check_names(names)
        if not self.is_whole:
            self._whole_train = splits["train"]  # a few batches need not have all labels
            splits = {name: self.loading.cut(data) for name, data in splits.items()}
            self.notes.append(f"{self.loading.max_batches} batches of every set, and no more")
        if not self._ood_of(names):
            self.notes.append(
                "there is no OOD set: data.ood.NAME=DIR adds one, synthetic_ood=corruptions "
                "makes one of ID test"
            )
        report = check_data(splits, self.checking, self.seed, self._ood_of(splits))
        for name, rows in report.broken.items():
            splits[name] = _less(splits[name], rows)
            self.notes.append(f"unreadable images of {name} skipped: {len(rows)}")
        if all(of_set.grey == 1 for of_set in report.sets if of_set.name in ID_SPLITS):
            self.notes.append(
                "all ID images are grey: corruptions, CLIP and networks of three channels read "
                "them as RGB with three equal channels"
            )
        self.notes += self.replacement.apply(
            splits, self.own_backgrounds(), self.seed, self.checking.cache_dir
        )
        if self.synthetic_ood:
            splits = self._with_corrupted(splits, self.synthetic_ood, report)
        if self.outliers is not None:
            check_outliers(splits)
        if self.levels is not None:
            ood = {name: splits[name] for name in self._ood_of(splits)}
            self.notes += read_division(self.levels, ood, not self.is_whole)
        report.notes[:0] = self.notes
        report.differences[:0] = self._doubts
        # A hierarchy that is none shows here, not after training.
        label_space(self._whole_train or splits["train"])
        self.report, self.splits = report, splits

    def _with_corrupted(
        self, splits: ImageSets, synthetic_ood: SyntheticOOD, report: CheckReport
    ) -> ImageSets:
        """The sets and those that are made of what is left of ID test, also in the report."""
        splits, notes = synthetic_ood.corrupt(splits)
        self.notes += notes
        report.sets[:] = [summary for summary in report.sets if summary.name in splits]
        for name in synthetic_ood.names:
            splits[name] = self.loading.cut(splits[name])
            report.sets.append(SetSummary(name, len(splits[name])))
        return splits

    def _check_names(self, splits: Iterable[str]) -> None:
        ood = self._ood_of(splits)
        of_order = "data.shift_order names '{name}', which is not an OOD set"
        check_known(self.shift_order, ood, of_order)
        if len(set(self.shift_order)) < len(self.shift_order):
            raise UserError(f"data.shift_order names a set twice: {', '.join(self.shift_order)}")
        group_of: dict[str, str] = {}
        for group, members in self.ood_groups.items():
            setting = f"data.ood_groups.{group}"
            if not _NAME.fullmatch(group):
                raise UserError(f"{setting}: a group's name has letters, digits, _ and -")
            check_known(members, ood, f"{setting} names '{{name}}', which is not an OOD set")
            for name in members:
                if other := group_of.get(name):
                    raise UserError(f"data.ood_groups: '{name}' is in both {other} and {group}")
                group_of[name] = group
        names = [*splits, *self.left_out]
        check_known(self.unresized, names, "data.unresized names '{name}', which is not a set")

    def _ood_of(self, splits: Iterable[str]) -> list[str]:
        not_ood = (*ID_SPLITS, *self.csid_names, *self.val_ood_names)
        not_ood += (OUTLIERS,) if self.outliers is not None else ()
        return [name for name in splits if name not in not_ood]

    @property
    def identities(self) -> dict[str, str]:
        """What determines the pixels and labels of each set."""
        return {name: split.identity for name, split in self.splits.items()}

    @property
    def ood_names(self) -> list[str]:
        """Names of the OOD sets to evaluate, in order."""
        return self._ood_of(self.splits)

    def further_counts(self) -> pd.DataFrame:
        """Counts of what is on the images, in the columns of ``count_table``; often none."""
        return pd.DataFrame()

    def missing_images(self) -> dict[str, str]:
        """The number of listed images that are not there, and the first of them, by set."""
        return {}

    @property
    def classes(self) -> list[str]:
        """Names of the ID classes, position = label; empty when ID is not labelled."""
        return self.splits["train"].classes

    @cached_property
    def image_size(self) -> ImageSize:
        """Pixels of the ID images, and whether all have as many."""
        self.setup()
        return id_size(self.splits, self.report.sets if self.report else [])

    def require_labels(self) -> None:
        """Raises :class:`UserError` where no classifier can learn from these labels."""
        self.setup()
        require_labels(self.splits, self.sources)

    @property
    def labels(self) -> LabelSpace:
        """Labels of the training images."""
        return label_space(self._whole_train or self.splits["train"])

    def load_image(self, split: str, index: int) -> Image.Image:
        """The image in one row of a set, as a person would see it."""
        return self.splits[split].load_image(index)

    def use_transform(self, *, eval: Transform, train: Transform | None = None) -> None:
        """Gives every set the same ``eval`` transform, ID and OOD alike, but for ``unresized``.

        Args:
            eval: PIL image to tensor, the backbone's own.
            train: used only by :meth:`train_dataloader`; None = ``eval``.
        """
        self.setup()
        for name, data in self.splits.items():
            data.transform = without_resize(eval) if name in self.unresized else eval
            steps = eval.transforms if isinstance(eval, Compose) else ()
            if len(data) and hasattr(next(iter(steps), None), CHANNELS):
                try:  # the first image shows whether the set has them
                    data[0]
                except UserError as error:
                    raise UserError(f"images of {name}: {error}") from error
        self._train_view = TrainingView(self.splits["train"], train or eval)

    def use_batch(self, keys: Sequence[str] | None) -> None:
        """Makes batches of training and validation tuples of these entries; None = the whole dict.

        For a module that was written for ``image, label = batch``.

        Raises:
            UserError: an image has no such entry.
        """
        self.setup()
        entries = ["image", *self.splits["train"].facts(0)]
        check_known(keys or (), entries, "model.batch names '{name}'")
        self._batch_keys = keys

    def use_outliers(self, per_image: int) -> None:
        """Adds so many images of ``data.outliers`` to each training image, from here on."""
        self._view().expose(self.splits[OUTLIERS], per_image)

    def use_views(self, views: int) -> None:
        """Transforms each training image so many times at random, from here on."""
        self._view().views = views

    def leave_out(self, split: str, rows: Sequence[int]) -> None:
        """Takes some images out of a set of files, from here on."""
        data = self.predict_dataset(split)
        assert isinstance(data, FileDataset)  # the rows of generated sets are known by number
        self.splits[split] = data.without(rows)

    def leave_out_images(self) -> None:
        """Leaves images out of later training batches, for a module that keeps what it needs."""
        if self._train_view is not None:
            self._train_view.images = False

    def predict_dataset(self, split: str) -> ImageDataset:
        """A set by name, with the eval transform.

        Raises:
            UserError: there is no such set.
        """
        self.setup()
        check_known([split], self.splits, "no set is called '{name}'")
        return self.splits[split]

    def predict_loader(self, split: str) -> DataLoader[Batch]:
        """Every image of a set once, in order, with the eval transform."""
        return self._loader(self.predict_dataset(split), self.loading.evaluated)

    def train_dataloader(self) -> DataLoader[Batch]:
        """Training images in random order, with the train transform."""
        self.setup()
        data = self._view()
        devices, device = 1, 0
        if self.trainer:
            devices, device = self.trainer.world_size, self.trainer.global_rank
        size = self.loading.on_each(devices)
        order: Sampler[Any] = EpochSampler(len(data), self.seed, lambda: coming_epoch(self.trainer))
        drops = self._drops_last(devices)
        if self.trainer:  # one device, too: under DDP, Lightning mixes any other order again
            total = size * devices
            most = len(data) // total * total if drops else len(data)
            order = DeviceShare(order, devices, device, most)  # type: ignore[arg-type]
        return self._loader(
            data, size, sampler=order, drop_last=drops, persistent=True, keys=self._batch_keys
        )

    def _view(self) -> TrainingView:
        if self._train_view is None:
            raise RuntimeError("the training images have no transform: call use_transform first")
        return self._train_view

    def batches_per_epoch(self, devices: int) -> int:
        """Training batches that each of ``devices`` sees in an epoch."""
        batches = len(self.splits["train"]) / (self.loading.on_each(devices) * devices)
        return math.floor(batches) if self._drops_last(devices) else math.ceil(batches)

    def _drops_last(self, devices: int) -> bool:
        """The last, smaller batch, which batch norm does not like, unless it is the only one."""
        return len(self.splits["train"]) >= self.loading.on_each(devices) * devices

    def val_dataloader(self) -> DataLoader[Batch]:
        """ID validation images, in order."""
        data = self.predict_dataset("val")
        return self._loader(data, self.loading.evaluated, persistent=True, keys=self._batch_keys)

    def _loader(
        self,
        data: ImageDataset | TrainingView,
        batch_size: int,
        sampler: Sampler[Any] | None = None,
        drop_last: bool = False,
        persistent: bool = False,
        keys: Sequence[str] | None = None,
    ) -> DataLoader[Batch]:
        workers = self.loading.num_workers
        if sampler is None and len(data) <= batch_size:
            workers = 0  # one batch in order: another process would not have it sooner
        elif self.trainer:
            workers = loading_processes(self.trainer, workers, len(data) // batch_size)
            # As large as images of train, whose transform draws random numbers.
            workers = fitting_processes(
                workers,
                batch_size,
                lambda: self.predict_dataset("val")[0],
                self.trainer.num_devices,
            )
        return DataLoader(
            data,
            batch_size=batch_size,
            sampler=sampler,
            drop_last=drop_last,
            num_workers=workers,
            pin_memory=torch.cuda.is_available(),
            persistent_workers=persistent and workers > 0,
            worker_init_fn=pl_worker_init_function,
            collate_fn=partial(_tuples, keys) if keys else None,
        )

    def save_splits(self, folder: StrPath) -> None:
        """Writes one ``<set>.csv`` a set; those of files can be read back as they were.

        Labels, levels, categories and shapes are names, ``-1`` where unknown; paths are absolute.
        """
        self.setup()
        place = Path(folder)
        place.mkdir(parents=True, exist_ok=True)
        for name, data in self.splits.items():
            table = data.table.copy()
            for column, words in {"label": data.classes, **data.names}.items():
                if column in table:
                    table[column] = table[column].map(dict(enumerate(words)) | {UNKNOWN: "-1"})
            if LISTS in table:
                table["label"] = table["label"].fillna(table.pop(LISTS))
            table.to_csv(place / f"{name}.csv", index=False)


def _taken(kind: type[Options], options: dict[str, Any]) -> Options:
    """The options of a kind, which are then no longer among the others."""
    return kind(**{key: options.pop(key) for key in options.keys() & kind.__annotations__})


def _tuples(keys: Sequence[str], samples: list[Batch]) -> tuple[Any, ...]:
    """The batch as a tuple of some of its entries."""
    batch = default_collate(samples)
    return tuple(batch[key] for key in keys)


def _less(data: ImageDataset, rows: Sequence[int]) -> ImageDataset:
    assert isinstance(data, FileDataset)  # only files can be unreadable
    rest = data.without(rows)
    emptied = sorted(set(data.labels.tolist()) - set(rest.labels.tolist()))
    if emptied:
        name = data.classes[emptied[0]] if data.classes else data.name
        raise UserError(f"every image of '{name}' in {data.name} is unreadable: repair the files")
    return rest
