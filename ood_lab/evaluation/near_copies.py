"""Near copies among the images of a run: scenes of several images that no setting names."""

from __future__ import annotations

import logging
import os
from collections.abc import Sequence
from dataclasses import dataclass, field, replace

import pandas as pd
import torch
from torch import Tensor

from ood_lab.common.english import counted
from ood_lab.common.tensor_file import Tensors
from ood_lab.data.datamodules.base import OODDataModule
from ood_lab.data.dataset import ID_SPLITS
from ood_lab.features.bank import Banks, FeatureBank
from ood_lab.metrics import SortedScores
from ood_lab.neighbours import near_copies
from ood_lab.neighbours.near_copies import MOST_IMAGES
from ood_lab.schema.image_columns import MADE_OF
from ood_lab.schema.run_record import Facts

log = logging.getLogger(__name__)
#: Scenes, or pairs of images of two sets, that a page shows.
EXAMPLES = 3
TRAIN, _, TEST = ID_SPLITS


@dataclass(frozen=True)
class NearCopies:
    """What to say of near copies, and which to show.

    Attributes:
        sentences: for the warnings of a run.
        examples: ``heading``, and ``images``: set, row and name of each.
        rows: of each set, those that look like copies of training images.
    """

    sentences: list[str] = field(default_factory=list)
    examples: list[Facts] = field(default_factory=list)
    rows: dict[str, list[int]] = field(default_factory=dict)

    def show_scenes(self, places: Sequence[tuple[str, int]], codes: Tensor) -> None:
        """Takes the largest groups as examples; ``codes`` ``[N]`` are those of the ``places``."""
        numbers, sizes = codes.unique(return_counts=True)
        for place in sizes.sort(descending=True, stable=True).indices[:EXAMPLES].tolist():
            if sizes[place] > 1:
                rows = torch.nonzero(codes == numbers[place]).flatten().tolist()
                heading = f"Images of one scene ({len(rows)})"
                self.examples.append({"heading": heading, "images": [places[row] for row in rows]})

    def note_training_copies(self, name: str, of_train: Tensor, of_set: Tensor) -> None:
        """Images of a set, not train, whose group ``[n]`` is that of a training image ``[m]``."""
        if name == TRAIN:
            return
        rows = torch.nonzero(torch.isin(of_set, of_train)).flatten().tolist()
        if not rows:
            return
        self.rows[name] = rows
        self.sentences.append(
            f"{len(rows):,} of {counted(len(of_set), 'image')} of {name} look like copies of "
            "training images."
        )
        for row in rows[:EXAMPLES]:
            pair = [(TRAIN, int((of_train == of_set[row]).nonzero()[0])), (name, row)]
            heading = f"A training image and its copy in {name}"
            self.examples.append({"heading": heading, "images": pair})

    def auroc(self, scores: pd.DataFrame, detectors: Sequence[str]) -> list[Facts]:
        """AUROC with and without copies of training images, of the sets where there are any.

        Args:
            scores: see :class:`~ood_lab.metrics.Evaluation`.
            detectors: its columns.

        Returns:
            A dict ``dataset, detector, auroc, without`` for each set and detector; ``without`` is
            None where no image is left.
        """
        copies = pd.Series(False, scores.index)
        for name, rows in self.rows.items():
            copies |= (scores["dataset"] == name) & scores["index"].isin(rows)
        table = []
        for name in scores.loc[scores["dataset"] != TEST, "dataset"].unique():
            images = scores["dataset"].isin([TEST, name])
            for detector in detectors if copies[images].any() else ():
                both, without = (
                    _auroc(scores.loc[part], name, detector) for part in (images, images & ~copies)
                )
                table.append(
                    {"dataset": name, "detector": detector, "auroc": both, "without": without}
                )
        return table


def _auroc(scores: pd.DataFrame, ood: str, detector: str) -> float | None:
    """AUROC of a detector on a set; None without ID test images or without images of the set."""
    inside, outside = (scores.loc[scores["dataset"] == name, detector] for name in (TEST, ood))
    return SortedScores.of(inside, outside).auroc() if len(inside) and len(outside) else None


def auroc_sentences(rows: Sequence[Facts], detector: str | None) -> list[str]:
    """What a detector reaches with and without copies; None = the first of them."""
    shown = [row for row in rows if row["detector"] == (detector or rows[0]["detector"])]
    return [
        f"AUROC of {row['detector']} on {row['dataset']}: {100 * row['auroc']:.1f}%, "
        "without copies of training images "
        + ("no image is left." if row["without"] is None else f"{100 * row['without']:.1f}%.")
        for row in shown
    ]


def scenes_of(features: Tensors, labels: Tensors, remedy: str) -> tuple[Tensors, NearCopies]:
    """Groups of the images of each set that has near copies, by one rule.

    See :func:`~ood_lab.neighbours.near_copies`. The ID sets are compared as one, each other set by
    itself, and with the training images for their copies.

    Args:
        features: ``[n, D]`` by set.
        labels: ``[n]`` by set.
        remedy: how each image counts.

    Returns:
        ``[n] int64`` by set, equal where images belong together; and what to say of them.
    """
    inside = [name for name in ID_SPLITS if name in features]
    groups: Tensors = {}
    copies, start = NearCopies(), 0
    for names in ([inside] if inside else []) + [[n] for n in features if n not in ID_SPLITS]:
        parts = [features[name] for name in names]
        sizes = [len(part) for part in parts]
        of = "" if names is inside else f" of {names[0]}"
        if sum(sizes) > MOST_IMAGES:
            log.info("%s%s: too many to look for near copies", counted(sum(sizes), "image"), of)
            continue
        rows = torch.cat(parts)
        codes = near_copies(rows, torch.cat([labels[name] for name in names]))
        scenes = len(codes.unique())
        if scenes < len(codes):
            groups |= dict(zip(names, (start + codes).split(sizes), strict=True))
            start += len(codes)
            copies.sentences.append(
                f"{counted(len(codes), 'image')}{of} look like {counted(scenes, 'scene')}; each "
                f"scene counts once. {remedy}"
            )
            places = [(name, row) for name in names for row in range(len(features[name]))]
            copies.show_scenes(places, codes)
        if names is inside:
            for name in names if TRAIN in groups else ():
                copies.note_training_copies(name, groups[TRAIN], groups[name])
        elif (n := len(features.get(TRAIN, ()))) and n + len(rows) > MOST_IMAGES:
            words = counted(n + len(rows), "image")
            log.info("%s of train and %s: too many to look for near copies", words, names[0])
        elif n:
            both = near_copies(torch.cat([features[TRAIN], rows]))
            copies.note_training_copies(names[0], both[:n], both[n:])
    return groups, copies


def with_scenes(banks: Banks, remedy: str) -> tuple[dict[str, FeatureBank], NearCopies]:
    """Banks with the groups of :func:`scenes_of`."""
    features = {name: bank.features for name, bank in banks.items() if "features" in bank.gives}
    groups, copies = scenes_of(features, {name: banks[name].labels for name in features}, remedy)
    grouped = {name: replace(banks[name], groups=codes) for name, codes in groups.items()}
    return {**banks, **grouped}, copies


def group_near_copies(data: OODDataModule, features: Tensors) -> NearCopies:
    """Sets the groups of the sets that have near copies; nothing where ``data.group`` is set.

    Args:
        data: its sets get the groups. Sets that are made of other images have theirs.
        features: ``[n, D]`` by set; others than those of ``data`` are skipped.
    """
    if data.group is not None or any(images.groups is not None for images in data.splits.values()):
        return NearCopies()
    sets = {
        name: rows
        for name, rows in features.items()
        if name in data.splits and MADE_OF not in data.splits[name].table and rows.shape[1]
    }
    labels = {name: data.splits[name].labels for name in sets}
    groups, copies = scenes_of(sets, labels, "data.group=none counts every image.")
    for name, codes in groups.items():
        data.splits[name].set_groups(codes.numpy())
    for example in copies.examples:
        example["images"] = [
            (name, row, os.path.basename(str(data.splits[name].table["path"].iat[row])))
            for name, row in example["images"]
        ]
    return copies


def with_near_copies(
    data: OODDataModule, banks: Banks
) -> tuple[dict[str, FeatureBank], NearCopies]:
    """Banks with the groups that :func:`group_near_copies` sets."""
    copies = group_near_copies(data, {name: bank.features for name, bank in banks.items()})
    sets = data.splits
    return {
        name: replace(bank, groups=sets[name].groups) if name in sets else bank
        for name, bank in banks.items()
    }, copies
