"""What the passes of the networks over the images leave: features, or only scores."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

from ood_lab.detectors.base import Detectors
from ood_lab.evaluation.detector_tuning import Tuning
from ood_lab.evaluation.ensembles import HELD_OUT, Member, same_network
from ood_lab.evaluation.near_copies import NearCopies, with_near_copies
from ood_lab.evaluation.second_pass import SecondPass
from ood_lab.evaluation.split_features import Extraction
from ood_lab.evaluation.streaming_scores import Fitted, fit_before
from ood_lab.features.extraction_hooks import BankColumn
from ood_lab.models import Backbone

#: What passes: the sets that are evaluated in addition to ID test, those of the selection, and
#: what else is computed of ID test.
PassedSets = tuple[Sequence[str], Sequence[str], Sequence[BankColumn]]


@dataclass(frozen=True)
class Passed:
    """What the passes of the network have left; the banks of the other ranks are empty.

    Attributes:
        limit: bytes that a detector's fit may take, looked at before the banks took their share.
        extraction: makes the passes.
        usable: detectors that the network supports.
        refused: why it does not support the others.
        banks: features of the sets, by name; with ``fitted``, what is left of the evaluated ones.
        fitted: the detectors, where they were fitted before the images passed.
        members: further networks of an ensemble.
        copies: near copies among the images.
    """

    limit: int
    extraction: Extraction
    usable: Detectors
    refused: dict[str, str]
    banks: dict[str, Any] = field(default_factory=dict)
    fitted: Fitted | None = None
    members: Sequence[Member] = ()
    copies: NearCopies = field(default_factory=NearCopies)

    def extracted(
        self,
        sets: PassedSets,
        networks: Iterable[tuple[str | None, Callable[[], Backbone]]],
        new_detectors: Callable[[], Detectors],
    ) -> tuple[Passed, list[str]]:
        """Extracts the features of all networks; call it on all ranks.

        Args:
            sets: to pass.
            networks: what loads each further one of an ensemble, by its name; a sample by dropout
                has none.
            new_detectors: makes detectors that are not fitted.

        Returns:
            What is left, and what to warn of networks that are one.
        """
        members: list[Member] = []
        extracted = self.extraction.banks(self.usable, *sets)
        banks, copies = with_near_copies(self.extraction.data, extracted)
        known, same = {self.extraction.network}, []
        for name, load in networks:
            made = replace(self.extraction, backbone=load(), always=())
            if name and made.network in known:
                same.append(name)
                continue
            known.add(made.network)
            own = {key: d for key, d in new_detectors().items() if key in self.usable}
            members.append(Member.passed(name, made, own, sets[:2], self.limit))
        self.extraction.data.use_transform(eval=self.extraction.backbone.transform)
        passed = replace(self, banks=banks, members=members, copies=copies)
        return passed, same_network(same, len(members))

    def scored(self, sets: PassedSets, tuning: Tuning, folder: Path, seed: int) -> Passed:
        """Fits first, and then scores the evaluated sets while they pass; call it on all ranks.

        ``folder`` gets the parts of the scores; ``seed`` is that of the tuning.
        """
        evaluated, _, of_test = sets
        banks: dict[str, Any] = dict(self.extraction.for_fits(self.usable, tuning.splits))
        with self.extraction.stages("score"):
            made_with = banks, tuning, self.limit, seed
            fitted = fit_before(self.extraction.trainer, self.usable, *made_with)
        for split in ["test", *evaluated]:
            kept = of_test if split == "test" else ()
            left = self.extraction.scored(split, fitted.detectors, folder, kept)
            banks |= {} if left is None else {split: left}
        return replace(self, banks=banks, fitted=fitted, refused=self.refused | fitted.refused)

    def second_pass(self, sets: Sequence[str]) -> SecondPass:
        """The second pass over the sets to be scored; call it on all ranks."""
        if self.fitted is not None:
            return self.fitted.second_pass
        scored = [*sets, HELD_OUT] if self.members else sets
        return self.extraction.second_pass(self.usable, self.banks, scored, self.limit)
