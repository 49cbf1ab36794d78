"""The user's own images: folders, tables, lists, tar shards, and data sets of other packages."""

from __future__ import annotations

import json
import logging
import os
import re
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
from lightning.pytorch.utilities import rank_zero_only

from ood_lab.common.arguments import Seed
from ood_lab.common.errors import UserError, reported_as
from ood_lab.common.files import StrPath
from ood_lab.common.hints import check_known
from ood_lab.data.checks.label_checks import (
    check_classes,
    check_complete,
    check_consistent,
    missing_labels,
)
from ood_lab.data.datamodules.base import OODDataModule
from ood_lab.data.datamodules.class_labels import add_levels, complete_levels, read_hierarchy
from ood_lab.data.datamodules.image_groups import add_groups
from ood_lab.data.dataset import ID_SPLITS, RESERVED, UNKNOWN, Splits
from ood_lab.data.sources.label_names import (
    align_attributes,
    encode_names,
    matched,
    mismatch,
    ordered_names,
)
from ood_lab.data.sources.source_settings import Given, Listed, ReadOptions, Source, source_of
from ood_lab.data.transforms.subsets import (
    ALL,
    check_shares,
    default_shares,
    stratified_split,
)
from ood_lab.schema.image_columns import GROUP, LISTS, SEVERAL
from ood_lab.schema.results import Tables

log = logging.getLogger(__name__)

#: Names of sets become names of files.
_NAME = re.compile(r"[^\W_][\w .,+()-]*|_[\w .,+()-]+")
_LONGEST = 100


class FolderDataModule(OODDataModule):
    """ID and OOD images from anything that ``source_of`` takes.

    Args:
        id: sources of ``train``, ``val`` and ``test``. A missing val or test is split off train,
            stratified by class.
        ood: source of each OOD set, by its name; null = left out.
        csid: source of each set of ID classes with shifted covariates (csID: other cameras, styles,
            corruptions), labelled, by its name; null = left out.
        full_spectrum: the csID sets join ID test; False = they are not read.
        ood_val: source of each OOD set that ``tuning=val_ood`` chooses settings on and that is
            never evaluated, by its name; null = left out.
        name: of the data, for folders and tables.
        hierarchy: CSV file with the levels above the classes, see
            :func:`~ood_lab.data.datamodules.class_labels.read_hierarchy`; it replaces columns
            ``level_<n>``.
        root: folder that relative paths in CSV, Parquet and lists start from; None = the folder
            of that file.
        split: shares of train, val and test when they are split, sum 1; None = see
            :func:`~ood_lab.data.transforms.subsets.default_shares`.
        split_seed: of the split.
        multilabel: labels are lists of classes, see
            :func:`~ood_lab.data.datamodules.folder.with_lists`.
        group: which images belong together, see
            :func:`~ood_lab.data.datamodules.image_groups.add_groups`.
        options: see :class:`OODDataModule`.
    """

    def __init__(
        self,
        id: Mapping[str, Given | None],
        ood: Mapping[str, Given | None],
        name: str = "folder",
        csid: Mapping[str, Given | None] | None = None,
        full_spectrum: bool = False,
        ood_val: Mapping[str, Given | None] | None = None,
        hierarchy: StrPath | None = None,
        root: StrPath | None = None,
        split: Sequence[float] | None = None,
        split_seed: Seed = 0,
        multilabel: bool = False,
        group: str | None = None,
        **options: Any,
    ) -> None:
        super().__init__(name, **options)
        self.root = root
        self.id_sources = self._sources("id", id)
        self.ood_sources = self._sources("ood", ood)
        csid_sources = self._sources("csid", csid)
        self.csid_sources = csid_sources if full_spectrum else {}
        self.val_ood_sources = self._sources("ood_val", ood_val)
        self.csid_names, self.val_ood_names = list(self.csid_sources), list(self.val_ood_sources)
        self.full_spectrum = full_spectrum
        self.left_out = [] if full_spectrum else list(csid_sources)
        self.hierarchy = hierarchy
        self.split = None if split is None else list(split)
        self.split_seed = split_seed
        self.multilabel = multilabel
        self.group = group

    @property
    def sources(self) -> dict[str, Path]:
        """The folder or list file of each set, and the hierarchy."""
        sets = {name: source.place for name, source in self._all_sources.items()}
        return sets | ({"hierarchy": Path(self.hierarchy)} if self.hierarchy else {})

    @property
    def _all_sources(self) -> dict[str, Source]:
        beyond_id = {**self.csid_sources, **self.ood_sources, **self.val_ood_sources}
        return {**self.id_sources, **beyond_id}

    def missing_images(self) -> dict[str, str]:
        """What is not there of each set: listed images, or a data set that cannot be made."""
        sentences = {name: source.missing() for name, source in self._all_sources.items()}
        return {name: sentence for name, sentence in sentences.items() if sentence}

    def build_splits(self) -> Splits:
        """Reads the sources and splits off what is missing."""
        self._check_sources()
        read = {"train": self._read_id(self.id_sources["train"], None)}
        classes = read["train"].classes
        configured = [split for split in ID_SPLITS[1:] if split in self.id_sources]
        read |= {split: self._read_id(self.id_sources[split], classes) for split in configured}
        tables = {split: listed.table for split, listed in read.items()}
        self._check_labels(tables, classes)
        if not classes:
            self._note("ID has no labels: detectors that need classes are skipped")
        shifted = {name: self._read_id(s, classes) for name, s in self.csid_sources.items()}
        ood_sources = {**self.ood_sources, **self.val_ood_sources}
        beyond = shifted | {name: self._read(source, []) for name, source in ood_sources.items()}
        outside = {name: listed.table for name, listed in beyond.items()}
        stores = {name: listed.store for name, listed in (read | beyond).items()}
        names = encode_names(tables, outside)
        if not self.hierarchy:
            names = complete_levels(tables, classes, names)
        elif not classes:
            raise UserError(f"data.hierarchy={self.hierarchy} needs labelled training images")
        else:
            hierarchy, source = read_hierarchy(self.hierarchy), f"data.hierarchy={self.hierarchy}"
            names |= add_levels(tables, classes, hierarchy, source)
        names |= add_groups(tables, outside, classes, self.group, self.remark)
        tables = self._complete(align_attributes(tables), GROUP in names)
        if self.left_out:
            sets = ", ".join(self.left_out)
            self._note(f"csID sets left out: {sets}; data.full_spectrum=true takes them in")
        labelled = dict.fromkeys([*tables, *shifted], classes)
        return self.file_sets(tables | outside, labelled, names, stores)

    def _check_sources(self) -> None:
        check_known(self.id_sources, ID_SPLITS, "data.id.{name} is not a split")
        if "train" not in self.id_sources:
            raise UserError("there are no ID images: add them with data.id.train=DIR")
        of_classes = {
            "data.hierarchy": self.hierarchy,
            "data.shots": self.shots != ALL,
            "synthetic_ood": self.synthetic_ood and self.synthetic_ood.kind != "corruptions",
        }
        if self.multilabel and (one := [key for key, value in of_classes.items() if value]):
            raise UserError(f"{one[0]} needs one class per image, not model.multilabel=true")
        if self.full_spectrum and not self.csid_sources:
            raise UserError("data.full_spectrum=true needs csID sets: data.csid.NAME=DIR")
        taken = list(RESERVED)
        for key, sources in (
            ("csid", self.csid_sources),
            ("ood", self.ood_sources),
            ("ood_val", self.val_ood_sources),
        ):
            for name in map(str, sources):
                long = len(os.fsencode(name)) > _LONGEST
                if name in taken or long or not _NAME.fullmatch(name):
                    raise UserError(
                        f"data.{key}.{name}: a set cannot be called '{name}': give it another "
                        f"name than all others, of up to {_LONGEST} letters, digits, _ and -"
                    )
                taken.append(name)

    def _check_labels(self, tables: Tables, classes: Sequence[str]) -> None:
        by_source = {f"data.id.{n}={self.sources[n]}": table for n, table in tables.items()}
        check_classes(classes, next(iter(by_source)))
        check_consistent(by_source, classes)
        for (source, table), split in zip(by_source.items(), tables, strict=True):
            if split == "test":
                if missing := missing_labels(table):
                    self._note(f"{source}: {missing}; the ID accuracy is of the others")
            elif split != "train" or self.shots == ALL:  # few shots leave such rows out
                check_complete(table, source)

    def _read_id(self, source: Source, classes: Sequence[str] | None) -> Listed:
        if not self.multilabel:
            return self._read(source, classes)
        return with_lists(self._read(source, None), classes, str(source.place))

    def _read(self, source: Source, classes: Sequence[str] | None) -> Listed:
        skip = self.checking.on_broken == "skip"
        return source.read(
            classes, ReadOptions(self.remark, self.checking.cache_dir, skip, self.group)
        )

    def _sources(self, kind: str, settings: Mapping[str, Given | None] | None) -> dict[str, Source]:
        """The sources of sets by name, less those that are skipped."""
        return {
            name: source_of(setting, f"data.{kind}.{name}", self.root)
            for name, setting in (settings or {}).items()
            if not (setting is None or (isinstance(setting, (str, Mapping)) and not setting))
        }

    def _complete(self, tables: dict[str, pd.DataFrame], grouped: bool) -> dict[str, pd.DataFrame]:
        """Takes the missing of val and test off train."""
        missing = [split for split in ID_SPLITS if split not in tables]
        if not missing:
            return tables
        train = tables["train"]
        groups = train[GROUP].to_numpy() if grouped else None
        units = len(train) if groups is None else len(np.unique(groups))
        all_shares = default_shares(units) if self.split is None else self.split
        check_shares(all_shares)
        shares = [all_shares[ID_SPLITS.index(split)] for split in missing]
        strata = train["label"].clip(lower=UNKNOWN).to_numpy()
        parts = stratified_split(strata, shares, self.split_seed, groups)
        for split, rows in zip(["train", *missing], parts, strict=True):
            tables[split] = train.iloc[rows].reset_index(drop=True)
        counts = ", ".join(f"{len(tables[s]):,} {s}" for s in ["train", *missing])
        self._note(f"{' and '.join(missing)} split off train (seed {self.split_seed}): {counts}")
        self.split_off = missing
        return {split: tables[split] for split in ID_SPLITS}

    def _note(self, text: str) -> None:
        self.notes.append(text)
        if rank_zero_only.rank == 0:  # type: ignore[attr-defined]
            log.info(text)


def with_lists(listed: Listed, classes: Sequence[str] | None, source: str) -> Listed:
    """Reads every label as a list of classes, into the column ``label_list``.

    A label is ``cat;dog`` or a JSON list, ``["cat", "dog"]``; ``[]`` is an image of no class. In
    the column ``label``, it becomes -2.

    Args:
        listed: read with each text as a class.
        classes: of train; None = those found here.
        source: the images, for messages.

    Raises:
        UserError: a class that train does not have, or twice, or a list that is not JSON.
    """
    lists = [_names(text, source) for text in listed.classes]
    present = {name for names in lists for name in names}
    names_of_classes = ordered_names(present) if classes is None else list(classes)
    position, _ = matched(present, names_of_classes, True)
    if unknown := sorted(present - position.keys()):
        raise UserError(mismatch(present, names_of_classes, unknown[0], source))
    texts = [
        json.dumps(
            [names_of_classes[place] for place in sorted({position[name] for name in names})],
            ensure_ascii=False,
        )
        for names in lists
    ]
    labels = listed.table["label"]
    table = listed.table.assign(
        label=np.where(labels >= 0, SEVERAL, UNKNOWN),
        **{LISTS: labels.map(dict(enumerate(texts)))},
    )
    return Listed(table, names_of_classes, listed.store)


def _names(text: str, source: str) -> list[str]:
    if not text.startswith("["):
        return [name for part in text.split(";") if (name := part.strip())]
    with reported_as(
        f'{source}: label {text} is not a JSON list: write ["cat", "dog"] or cat;dog', ValueError
    ):
        names = [str(name).strip() for name in json.loads(text)]
    if len(set(names)) < len(names):
        raise UserError(f"{source}: label {text} names a class twice: give a list of names")
    return names
