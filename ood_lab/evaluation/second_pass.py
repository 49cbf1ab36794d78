"""The second pass: what detectors ask of the network about scored images once they are fitted."""

from __future__ import annotations

import logging
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from typing import Any

from lightning import Trainer

from ood_lab.common.errors import UserError
from ood_lab.detectors import Detector
from ood_lab.detectors.base import Detectors
from ood_lab.evaluation.detector_fitting import fit_within
from ood_lab.features.bank import FeatureBank
from ood_lab.features.extraction_hooks import BankColumn
from ood_lab.features.process_agreement import told_by_main

log = logging.getLogger(__name__)


@dataclass
class SecondPass:
    """A second pass over scored images, for the detectors that declare one.

    It is a pass like the first: in chunks, shared out among the processes, its columns kept in the
    bank under a key that hashes what was learned, so that nothing is computed twice.

    Attributes:
        detectors: those that have been fitted for it, by name; on every process.
        fit_seconds: what each fit took, on the main process.
        seconds: what the pass over each set took, from the bank where that holds its columns.
    """

    detectors: dict[str, Detector]
    fit_seconds: dict[str, float] = field(default_factory=dict)
    seconds: dict[str, float] = field(default_factory=dict)

    @classmethod
    def fit(
        cls,
        trainer: Trainer,
        detectors: Detectors,
        fit_bank: Callable[[Detector], FeatureBank],
        limit: int,
    ) -> SecondPass:
        """Fits the detectors that declare a second pass, unless they are, on all processes alike.

        One that cannot be fitted is left unchanged: whoever fits the others says why. ``fit_bank``,
        what a detector is fitted on, is called on the main process only; a fit may take ``limit``
        bytes.
        """
        chosen = {n: d for n, d in detectors.items() if d.second_pass_hook is not None}
        if not chosen:
            return cls({})
        seconds = {}
        if trainer.global_rank == 0:
            for name, detector in chosen.items():
                start = time.perf_counter()
                _try_to_fit(detector, fit_bank, limit)
                seconds[name] = time.perf_counter() - start
        learned = told_by_main(trainer, {name: d.fitted for name, d in chosen.items()})
        for name, detector in chosen.items():
            detector.fitted = learned[name]
        fitted = {name: d for name, d in chosen.items() if d.fitted}
        if fitted and trainer.global_rank == 0:
            log.info("second pass over what is scored, with what %s learned", ", ".join(fitted))
        return cls(fitted, seconds)

    @property
    def columns(self) -> list[BankColumn]:
        """What the pass computes."""
        return [
            d.second_pass_hook for d in self.detectors.values() if d.second_pass_hook is not None
        ]

    def over(
        self,
        banks: dict[str, FeatureBank],
        sources: Mapping[str, Callable[..., FeatureBank | None]],
    ) -> None:
        """Gives the banks what the pass adds; without detectors, leaves them unchanged.

        ``sources`` extract ``columns`` of the images of these banks, by name, on all processes; on
        all but the main one there is no bank.
        """
        if not self.detectors:
            return
        for name, extracted in sources.items():
            start = time.perf_counter()
            second = extracted(columns=self.columns)
            self.seconds[name] = time.perf_counter() - start
            if second is not None:
                columns = banks[name].columns | second.columns
                banks[name] = replace(banks[name], columns=columns)

    def describe(self) -> dict[str, Any] | None:
        """For the record of the run; None where no detector asked for one."""
        if not self.detectors:
            return None
        return {
            "detectors": list(self.detectors),
            "columns": [column.key for column in self.columns],
            "seconds": self.seconds,
        }


def _try_to_fit(
    detector: Detector, fit_bank: Callable[[Detector], FeatureBank], limit: int
) -> None:
    if detector.fitted:  # read from a file
        return
    try:
        fit_within(detector, fit_bank(detector), limit)
    except UserError:
        detector.fitted = {}
