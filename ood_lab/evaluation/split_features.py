"""Which images are looked at, and the features of each set."""

from __future__ import annotations

import logging
from collections.abc import Callable, Collection, Sequence
from dataclasses import dataclass, field
from functools import cached_property, partial
from pathlib import Path

from lightning import Trainer

from ood_lab.common.arguments import Settings
from ood_lab.common.english import counted, listed
from ood_lab.common.errors import UserError
from ood_lab.common.grouping import distinct, without_none
from ood_lab.common.stage_times import Stages
from ood_lab.common.tensor_file import Tensors
from ood_lab.data.datamodules.base import OODDataModule
from ood_lab.data.dataset import ImageDataset
from ood_lab.data.sources.image_lists import Listing
from ood_lab.detectors import Detector, DetectorRefusal, unserved, unsuited
from ood_lab.detectors.base import Detectors, Reasons
from ood_lab.evaluation.detector_fitting import none_works
from ood_lab.evaluation.prediction.table_parts import PART, PartFiles, PartSink
from ood_lab.evaluation.streaming_scores import ScoredSet, ScoreSink, identity_of, read_scored
from ood_lab.features.bank import Banks, FeatureBank
from ood_lab.features.cached_extraction import NetworkPasses
from ood_lab.features.extraction_hooks import BankColumn, Columns, GradientColumn
from ood_lab.features.extraction_pass import DatasetParts, pass_through
from ood_lab.features.image_groups import group_count
from ood_lab.features.process_agreement import agreed, join
from ood_lab.models import Backbone

log = logging.getLogger(__name__)
#: Pixels of an image up to which the default takes more than one forward pass on a CPU. ODIN takes
#: 3 to 5 of them an image; on photographs of 224 px it was below MSP, on those of 32 px among the
#: best (docs/results).
MOST_PIXELS = 128**2


def require_ood(data: OODDataModule) -> None:
    """Raises :class:`UserError` where there is only ID data."""
    if not data.ood_names:
        raise UserError(
            "there is no OOD set: add one with data.ood.NAME=DIR, or make one of ID test: "
            "synthetic_ood=corruptions"
        )


def chosen_sets(data: OODDataModule, shift: Settings) -> list[str]:
    """Names of the OOD sets to evaluate: all, or only those with the asked level columns.

    Raises:
        UserError: there is no set, or none with such levels.
    """
    require_ood(data)
    axes = list(shift["axes"])
    leveled = [n for n in data.ood_names if any(a in data.splits[n].table for a in axes)]
    if shift["sets"]:
        return [n for n in data.ood_names if axes or "semantic_level" not in data.splits[n].table]
    if not leveled:
        raise UserError(
            f"no OOD set has a column {' or '.join(axes)}: use report_by=sets, or give a manifest "
            "with that column"
        )
    return leveled


def split_by_columns(detectors: Detectors, backbone: Backbone) -> tuple[Detectors, Reasons]:
    """Detectors the backbone can serve, and the reason for each of the others."""

    def reason(name: str, detector: Detector) -> str | None:
        try:
            columns = columns_for({name: detector})
            needed = [*detector.reads]
            if any(isinstance(column, GradientColumn) for column in columns):
                needed.append("gradients")
            text = unserved(name, needed, backbone.gives, backbone.name)
            if text := text or unsuited(name, detector, backbone.multilabel):
                return text
            for column in columns:
                column.layers(backbone)
        except UserError as error:
            return str(error)
        return None

    return split_by_reason(detectors, reason)


def split_by_reason(
    detectors: Detectors, reason: Callable[[str, Detector], str | None]
) -> tuple[Detectors, Reasons]:
    """Detectors that can be scored, and the reason for each of the others; None = there is none.

    Raises:
        UserError: there are detectors, and none can be scored.
    """
    reasons = {name: reason(name, detector) for name, detector in detectors.items()}
    usable = {name: detector for name, detector in detectors.items() if reasons[name] is None}
    refused = without_none(reasons)
    if refused and not usable:
        raise none_works(refused)
    return usable, refused


def affordable(
    detectors: Detectors, backbone: Backbone, trainer: Trainer, by_default: bool
) -> tuple[Detectors, Reasons]:
    """Spares a CPU what nobody has asked for.

    Which detectors the default skips follows from images and device, never from the speed of
    the machine: the same command scores the same detectors.

    Args:
        detectors: that the network can serve.
        backbone: the network.
        trainer: of the passes.
        by_default: nobody has chosen them. On a CPU, those that need more than the forward pass
            are then left out where images have more than :data:`MOST_PIXELS` pixels.

    Returns:
        The detectors to score, and the reason for each of the others.
    """
    height, width = backbone.data_config["input_size"][1:]
    on_cpu = trainer.strategy.root_device.type == "cpu"
    if not (by_default and on_cpu and height * width > MOST_PIXELS):
        return detectors, {}
    slow = (
        f"more than one forward pass for images of {width} x {height} pixels is slow on a CPU; "
        "detector=default scores it"
    )
    kept, left_out = split_by_reason(detectors, lambda _, d: slow if d.cost == "again" else None)
    if left_out and trainer.global_rank == 0:
        names = listed(left_out)
        log.warning("the default is detector=forward here, without %s: %s", names, slow)
    return kept, left_out


def check_sizes(detectors: Detectors, data: OODDataModule, classes: int) -> None:
    """Warns of detectors that the sets they are fitted on are too small for.

    ``classes`` are those of the head, where they are known.

    Raises:
        UserError: that is all of them.
    """
    refused = {}
    for name, detector in detectors.items():
        try:
            if detector.fit_split is not None:
                detector.check_size(len(data.splits[detector.fit_split]), classes)
        except DetectorRefusal as refusal:
            refused[name] = str(refusal)
    if refused and len(refused) == len(detectors):
        raise none_works(refused)
    for name, reason in refused.items():
        log.warning("%s will be left out: %s", name, reason)


def columns_for(detectors: Detectors, fitted_on: str | None = None) -> list[BankColumn]:
    """What the detectors need of a pass over images, to score them or only to fit on them.

    Args:
        detectors: by name.
        fitted_on: the split, where it is not scored.
    """
    return [
        column
        for d in detectors.values()
        if (column := d.extraction_hook) is not None
        and (fitted_on is None or d.fit_split == fitted_on)
    ]


def moments_for(detectors: Detectors, split: str) -> set[str]:
    """What the detectors that are fitted on this split learn from it in sums."""
    return {part for d in detectors.values() if d.fit_split == split for part in d.moments}


def fill(
    passes: NetworkPasses,
    files: PartFiles,
    images: ImageDataset | Listing,
    columns: Columns,
    sink: Callable[[Trainer], PartSink],
    lenient: bool = False,
) -> None:
    """Passes the images of the parts that are missing."""
    trainer = passes.trainer
    # Before the first pass has connected the processes each looks for itself, and as nobody
    # writes before, finds the same.
    join(trainer)
    missing, n = agreed(trainer, files.missing()), len(files.parts.numbers)
    if trainer.global_rank == 0 and len(missing) < n:
        log.info("%s of %d are there already", counted(n - len(missing), "part"), n)
    if missing:
        pass_through(
            trainer,
            passes.backbone,
            images,
            columns,
            files.parts,
            sink,
            numbers=missing,
            num_workers=passes.num_workers,
            lenient=lenient,
        )


@dataclass(frozen=True)
class Extraction:
    """The passes of one network over the sets of a DataModule; banks hold what they computed.

    Attributes:
        data: set up.
        backbone: the network.
        trainer: of the passes; on its other ranks, which do their share of them, all is empty.
        root: folder of all feature banks.
        stages: records its duration, as stage ``extract``.
        always: computed in every pass that keeps its features.
    """

    data: OODDataModule
    backbone: Backbone
    trainer: Trainer
    root: Path
    stages: Stages = field(default_factory=Stages)
    always: Columns = ()

    def __post_init__(self) -> None:
        self.data.use_transform(eval=self.backbone.transform)

    def banks(
        self,
        detectors: Detectors,
        evaluated: Sequence[str],
        selection: Sequence[str],
        of_test: Columns,
        images: Sequence[ImageDataset],
    ) -> dict[str, FeatureBank]:
        """The banks of ID test, of what detectors are fitted on, and of further sets.

        Detectors that work in the pass do so on the evaluated sets, not on those of the selection.

        Args:
            detectors: that the network can serve.
            evaluated: sets that are scored, too.
            selection: sets that settings are chosen on, and others whose features are read.
            of_test: columns that are computed also on ID test.
            images: sets that are made of ID test, whose transform they get.
        """
        scored = {"test", *evaluated}
        read = {*scored, *selection, *(d.fit_split for d in detectors.values())}
        banks = {}
        for split in distinct(["train", "val", "test", *evaluated, *selection]):
            if split in read:
                columns = columns_for(detectors, None if split in scored else split)
                columns += of_test if split == "test" else ()
                banks[split] = self._bank(split, columns, moments_for(detectors, split))
        return without_none(banks) | self.of_sets([], images)

    def for_fits(self, detectors: Detectors, selection: Sequence[str]) -> Banks:
        """The banks that detectors are fitted on, and those of ``selection``.

        Where all that are fitted on train learn nothing but sums from it, it is not kept.
        """
        banks = {}
        for split in dict.fromkeys(["train", "val", *selection]):
            on_it = {name: d for name, d in detectors.items() if d.fit_split == split}
            moments = moments_for(on_it, split)
            n = group_count(self.data.splits[split]) if on_it else 0
            width = self.backbone.num_features
            rows = [name for name, d in on_it.items() if d.reads_rows(n, width)]
            if split == "train" and on_it and not rows and split not in selection:
                with self.stages("extract"):
                    bank = self.passes.sums(self.data.predict_dataset(split), moments)
            elif on_it or split in selection:
                if rows:
                    log.info("the features of '%s' are kept: %s need them", split, ", ".join(rows))
                bank = self._bank(split, columns_for(on_it, split), moments)
            else:
                continue
            if bank is not None:
                banks[split] = bank
        return banks

    def scored(
        self, split: str, detectors: Detectors, folder: Path, kept: Columns = ()
    ) -> ScoredSet | None:
        """Scores a set by fitted detectors while it passes, and keeps nothing else but ``kept``.

        Parts that are in ``folder`` from an earlier attempt are not made again.
        """
        images = self.data.predict_dataset(split)
        record = self.passes.record_of(images)
        fitted_on = {d.fit_split for d in detectors.values() if d.fit_split}
        by = identity_of(detectors, {name: self.data.splits[name].identity for name in fitted_on})
        parts = DatasetParts(len(images), self.data.loading.evaluated, PART)
        files = PartFiles(folder / split, parts, lambda rows: f"{record.key} {by}")
        with self.stages("extract"):
            columns = [*columns_for(detectors), *kept]
            sink = partial(ScoreSink, files, detectors, kept)
            fill(self.passes, files, images, columns, sink)
        if self.trainer.global_rank != 0:
            return None
        record.n = len(images)
        return read_scored(files, record, self.backbone.num_classes, images.labels, kept)

    def features(self, splits: Sequence[str], images: Sequence[ImageDataset] = ()) -> Tensors:
        """Features of sets, ``[n, D]`` each, see :meth:`of_sets`."""
        return {split: bank.features for split, bank in self.of_sets(splits, images).items()}

    def of_sets(
        self, splits: Sequence[str], images: Sequence[ImageDataset] = ()
    ) -> dict[str, FeatureBank]:
        """The banks of sets; ``images`` are made of ID test, whose transform they get."""
        for dataset in images:
            dataset.transform = self.data.predict_dataset("test").transform
        banks = {split: self._bank(split) for split in splits}
        banks |= {dataset.name: self._bank_of(dataset) for dataset in images}
        return without_none(banks)

    @cached_property
    def passes(self) -> NetworkPasses:
        """Those of the network, with the settings of the data."""
        loading = self.data.loading
        return NetworkPasses(
            self.trainer, self.backbone, self.root, loading.evaluated, loading.num_workers
        )

    def _bank(
        self, split: str, columns: Columns = (), moments: Collection[str] = ()
    ) -> FeatureBank | None:
        return self._bank_of(self.data.predict_dataset(split), columns, moments)

    def _bank_of(
        self,
        images: ImageDataset,
        columns: Columns = (),
        moments: Collection[str] = (),
    ) -> FeatureBank | None:
        with self.stages("extract"):
            return self.passes.bank(images, [*columns, *self.always], moments)
