"""Chooses detector settings without looking at what is evaluated."""

from __future__ import annotations

import itertools
import logging
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import partial
from typing import Any

import torch
from torch import Tensor

from ood_lab.common.arguments import Fields
from ood_lab.common.errors import UserError
from ood_lab.common.hints import check_known
from ood_lab.common.tensor_arithmetic import random_numbers
from ood_lab.data.checks.check_report import shared_content
from ood_lab.data.datamodules.base import OODDataModule
from ood_lab.data.dataset import ID_SPLITS
from ood_lab.detectors import Detector, checked_score
from ood_lab.detectors.base import Detectors
from ood_lab.evaluation.detector_fitting import fit_and_held_out, fit_within_memory
from ood_lab.features.bank import Banks, FeatureBank
from ood_lab.features.image_groups import group_count
from ood_lab.metrics import SortedScores
from ood_lab.schema.run_record import Facts

log = logging.getLogger(__name__)
#: Where the outliers of the selection come from.
OUTLIERS = {
    "none": "nothing is chosen",
    "val_ood": "the OOD sets in tuning.sets, which are not evaluated",
    "id_only": "shuffled and mixed features of the ID images",
}
#: Added to the name of a detector whose settings were chosen.
SUFFIX = "_tuned"

Grid = Mapping[str, Sequence[Any]]


@dataclass(frozen=True)
class Candidate:
    """One point of a grid.

    Attributes:
        settings: as in the grid.
        used: what the detector made of them (a ViM dimension may be reduced).
        aurocs: by set of outliers.
    """

    settings: Fields
    used: Fields
    aurocs: dict[str, float]

    @property
    def auroc(self) -> float:
        """Mean over the sets of outliers."""
        return sum(self.aurocs.values()) / len(self.aurocs)

    def describe(self) -> Facts:
        """Plain values for the manifest."""
        return {**self.used, "auroc": self.auroc, "auroc_by_set": self.aurocs}


@dataclass
class Selection:
    """What was chosen.

    Attributes:
        record: for the manifest.
        detectors: with the chosen settings, not fitted, by ``<name>_tuned``.
        warnings: an optimum at the edge of its grid, a grid of which nothing works.
    """

    record: Facts
    detectors: dict[str, Detector] = field(default_factory=dict)
    warnings: list[str] = field(default_factory=list)

    def settings_of(self, detector: str | None) -> tuple[str | None, Fields]:
        """The name of a detector without ``_tuned``, and the settings that were chosen for it."""
        if detector is None or detector not in self.detectors:
            return detector, {}
        name = detector.removesuffix(SUFFIX)
        facts = self.record["detectors"][name]
        return name, {key: facts["chosen"][key] for key in facts["grid"]}


@dataclass(frozen=True)
class Tuning:
    """How settings are chosen: the best mean AUROC of the ID validation images against outliers.

    A detector is fitted on its own split. One that is fitted on ``val`` is fitted on one random
    half of it and judged on the other, so that no image serves both ends. Ties go to the default
    settings, then to the first in the grid. Test images are never touched.

    Args:
        mode: ``none``, ``val_ood`` (outliers = ``sets``) or ``id_only``
            (:func:`~ood_lab.evaluation.detector_tuning.synthetic_outliers`).
        sets: names of OOD sets for ``val_ood``; they are not evaluated.
        grids: ``{detector: {setting: [value, ...]}}``; all combinations are tried.
        build: ``build(detector, **settings)`` gives the detector with other settings.
    """

    mode: str
    sets: Sequence[str]
    grids: Mapping[str, Grid]
    build: Callable[..., Detector]

    @property
    def splits(self) -> list[str]:
        """Sets whose features the selection reads, except those that detectors are fitted on."""
        return [] if self.mode == "none" else ["val", *self.sets]

    def evaluated(
        self, data: OODDataModule, ood_sets: Sequence[str], detectors: Detectors
    ) -> list[str]:
        """The OOD sets that remain to be evaluated, once everything has been checked.

        Raises:
            UserError: an unknown mode, set or detector, no OOD set left, a detector that needs
                the network, or content that the selection shares with what is evaluated or
                that tuning sets share with ID.
        """
        names = [*data.ood_names, *data.val_ood_names]
        check_known([self.mode], OUTLIERS, "tuning.mode={name}")
        if (self.mode == "val_ood") != bool(self.sets):
            raise UserError(
                "tuning.sets goes with tuning=val_ood and names OOD sets for selection only "
                f"(data.ood_val.NAME=DIR adds one); this data has {', '.join(names)}"
            )
        check_known(self.sets, names, "tuning.sets names '{name}', which is not an OOD set")
        left = [name for name in ood_sets if name not in self.sets]
        if not left:
            raise UserError(
                f"tuning.sets={list(self.sets)} leaves no OOD set to evaluate: keep one out"
            )
        self.check_grids(detectors)

        def shared(name: str, names: Sequence[str]) -> list[str]:
            images = [data.splits[other] for other in names]
            return [str(part) for part in shared_content(images, data.splits[name])]

        self.check_content([*data.csid_names, *left], shared)
        return left

    def check_grids(self, detectors: Detectors) -> None:
        """Raises :class:`UserError` where a grid is none, or of a detector that cannot be tuned."""
        for name, grid in self.grids.items() if self.mode != "none" else ():
            check_known([name], detectors, "tuning.grids.{name}")
            if detectors[name].extraction_hook is not None:
                raise UserError(
                    f"tuning.grids.{name}: {name} works during feature extraction and cannot be "
                    f"tuned on extracted features: set detector.{name} by hand and leave its grid "
                    f"out with ~tuning.grids.{name}"
                )
            for key, values in grid.items():
                if not isinstance(values, Sequence) or isinstance(values, str) or not values:
                    raise UserError(f"tuning.grids.{name}.{key}={values}: give a list of values")

    def check_content(
        self, evaluated: Sequence[str], shared: Callable[[str, Sequence[str]], list[str]]
    ) -> None:
        """Raises :class:`UserError` where settings would be chosen on what is evaluated or on ID.

        ``shared(name, names)`` says what a set has in common with others; ``evaluated`` are those
        in addition to ID test.
        """
        if self.mode == "none":
            return
        sets = {"val": ["test", *evaluated]} | {s: [*ID_SPLITS, *evaluated] for s in self.sets}
        for name, names in sets.items():
            if sentences := shared(name, names):
                raise UserError(
                    f"tuning={self.mode} would choose settings on what is evaluated or on ID: "
                    f"{'; '.join(sentences)}. Remove these images from '{name}'"
                )

    def select(self, detectors: Detectors, banks: Banks, seed: int) -> Selection:
        """Tries every grid on the banks of the fit splits, ``val`` and the tuning sets.

        Grids of others than these detectors, which work on this backbone, are ignored. The seed is
        that of the halves of ``val`` and the synthetic outliers.
        """
        if self.mode == "none":
            return Selection({"mode": self.mode})
        selection = Selection(
            {
                "mode": self.mode,
                "sets": list(self.sets),
                "criterion": f"mean AUROC of ID val against {OUTLIERS[self.mode]}",
                "detectors": {},
            }
        )
        chosen = {n: grid for n, grid in self.grids.items() if n in detectors and grid}
        for name, grid in chosen.items():
            half = group_count(banks["val"]) // 2
            fit, identity = fit_and_held_out(detectors[name], banks, half, seed)
            outliers = {s: banks[s] for s in self.sets} or synthetic_outliers(identity, seed)
            judge = partial(self._judged, name, grid, fit, {"val": identity, **outliers})
            self._choose(name, grid, judge, selection)
        return selection

    def _judged(
        self,
        name: str,
        grid: Grid,
        fit: FeatureBank,
        banks: Banks,
        settings: Fields,
    ) -> Candidate | str:
        """The AUROCs under ``settings``, or why these cannot work here.

        ``fit`` is what the detector is fitted on; ``banks`` are ``val``, the ID images, then the
        sets of outliers.
        """
        detector = self.build(name, **settings)
        try:
            fit_within_memory(detector, fit)
            scores = {s: checked_score(detector, bank).numpy() for s, bank in banks.items()}
        except UserError as error:
            return str(error)
        identity = scores.pop("val")
        aurocs = {s: SortedScores.of(identity, values).auroc() for s, values in scores.items()}
        described = settings | detector.describe()
        return Candidate(settings, {key: described[key] for key in grid}, aurocs)

    def _choose(
        self,
        name: str,
        grid: Grid,
        judge: Callable[[Fields], Candidate | str],
        selection: Selection,
    ) -> None:
        refused, default = [], judge({})
        candidates: list[Candidate] = []
        for values in itertools.product(*grid.values()):
            settings = dict(zip(grid, values, strict=True))
            candidate = judge(settings)
            if isinstance(candidate, str):
                refused.append({**settings, "reason": candidate})
            elif candidate.used not in [c.used for c in candidates]:
                candidates.append(candidate)
        if not candidates:
            reason = refused[0]["reason"]
            selection.warnings.append(f"{name}: no point of its grid works here: {reason}")
            return
        usual = default.used if isinstance(default, Candidate) else None
        best = max(candidates, key=lambda c: (c.auroc, c.used == usual))
        selection.record["detectors"][name] = {
            "grid": {key: list(values) for key, values in grid.items()},
            "chosen": best.describe(),
            "default": default.describe() if isinstance(default, Candidate) else default,
            "candidates": [c.describe() for c in candidates],
            "refused": refused,
        }
        selection.warnings += _at_the_edge(name, best, candidates)
        tuned = self.build(name, **best.settings)
        tuned.name = name + SUFFIX
        selection.detectors[tuned.name] = tuned
        words = ", ".join(f"{key}={value}" for key, value in best.used.items())
        log.info("%s: %s chosen, mean AUROC %.1f%%", name, words, 100 * best.auroc)


def with_tuned(detectors: Detectors, tuned: Detectors) -> Detectors:
    """All detectors, each tuned one right after its default."""
    both = {}
    for name, detector in detectors.items():
        both[name] = detector
        if name + SUFFIX in tuned:
            both[name + SUFFIX] = tuned[name + SUFFIX]
    return both


def _at_the_edge(name: str, best: Candidate, candidates: Sequence[Candidate]) -> list[str]:
    """One warning a numeric setting whose best value has nothing as good inside the grid."""
    warnings = []
    for key, value in best.used.items():
        values = {c.used[key] for c in candidates}
        if len(values) < 2 or not all(isinstance(v, int | float) for v in values):
            continue
        if {c.used[key] for c in candidates if c.auroc == best.auroc} <= {min(values), max(values)}:
            warnings.append(
                f"{name}{SUFFIX}: the best {key}={value:g} is at the edge of its grid "
                f"({min(values):g} to {max(values):g}): add values beyond it to "
                f"tuning.grids.{name}.{key}"
            )
    return warnings


def synthetic_outliers(bank: FeatureBank, seed: int) -> Banks:
    r"""Two sets of outliers in feature space, with the logits that the head gives them.

    - ``shuffled``: every feature is permuted over the images on its own. Each keeps its
      distribution while what ties them together is lost, the synthetic class of "unsupervised as
      supervised learning" (Hastie, Tibshirani, Friedman, Elements of Statistical Learning,
      section 14.2.4): far from ID.
    - ``mixed``: (x_i + x_j) / 2 of two images of different predicted classes, the arithmetic
      mean that Outlier Exposure validates on (arXiv 1812.04606), taken of features instead of
      pixels: between the classes, near ID. Absent where only one class is predicted.

    Both keep features at or above 0 where they were.

    Args:
        bank: ID images ``[N]``.
        seed: of the permutations.

    Returns:
        Banks of N and of up to N rows, label -1, without columns.
    """
    generator = random_numbers(seed)
    n, d = bank.features.shape
    order = torch.rand(n, d, generator=generator).argsort(dim=0)
    outliers = {"shuffled": _bank(bank, bank.features.gather(0, order))}
    partner = torch.randperm(n, generator=generator)
    differ = bank.predictions != bank.predictions[partner]
    if bool(differ.any()):
        mixed = (bank.features[differ] + bank.features[partner][differ]) / 2
        outliers["mixed"] = _bank(bank, mixed)
    return outliers


def _bank(like: FeatureBank, features: Tensor) -> FeatureBank:
    n, logits = len(features), features.new_zeros(len(features), 0)
    if like.num_classes and not like.head_weight.numel():
        raise UserError(
            "the logits of mixed features follow from a linear head, and this network has none: "
            "tuning=val_ood with data.ood_val.NAME=DIR chooses settings without mixing"
        )
    if like.num_classes:
        logits = features @ like.head_weight.T + like.head_bias
    return replace(
        like,
        features=features,
        logits=logits,
        labels=torch.full((n,), -1),
        index=torch.arange(n),
        columns={},
    )
