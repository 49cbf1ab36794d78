"""The second pass: what detectors ask of the network about scored images once they are fitted."""

from __future__ import annotations

import logging
from collections.abc import Callable, Mapping
from contextlib import suppress
from dataclasses import replace

from lightning import Trainer

from ood_lab.common.errors import UserError
from ood_lab.detectors import Detector
from ood_lab.detectors.base import Detectors
from ood_lab.evaluation.detector_fitting import fit_within
from ood_lab.features.bank import FeatureBank
from ood_lab.features.process_agreement import told_by_main

log = logging.getLogger(__name__)


def second_pass(
    trainer: Trainer,
    detectors: Detectors,
    fit_bank: Callable[[Detector], FeatureBank],
    limit: int,
    banks: dict[str, FeatureBank],
    sources: Mapping[str, Callable[..., FeatureBank | None]],
) -> None:
    """Fits the detectors that declare a second pass, makes it, and gives the banks what it adds.

    It is a pass like the first: in chunks, shared out among the processes, its columns kept in the
    bank under a key that hashes what was learned, so that nothing is computed twice. A detector
    that cannot be fitted has none: whoever fits the others says why. All processes call it.

    Args:
        trainer: makes the pass.
        detectors: of which one that has been fitted is not fitted again.
        fit_bank: what a detector is fitted on; called on the main process only.
        limit: bytes that a fit may take.
        banks: of the first pass; on all but the main process there are none.
        sources: extract ``columns`` of the images of these banks, by name, on all processes.
    """
    chosen = {n: d for n, d in detectors.items() if d.second_pass_hook is not None}
    if not chosen:
        return
    if trainer.global_rank == 0:
        # One that was read from a file has been fitted, and there may be no images to fit on.
        for detector in (d for d in chosen.values() if not d.fitted):
            with suppress(UserError):
                fit_within(detector, fit_bank(detector), limit)
    learned = told_by_main(trainer, {name: dict(d.fitted) for name, d in chosen.items()})
    for name, detector in chosen.items():
        detector.fitted = learned[name]
    fitted = [name for name, d in chosen.items() if d.fitted]
    if fitted and trainer.global_rank == 0:
        log.info("second pass over what is scored, with what %s learned", ", ".join(fitted))
    for name, extracted in sources.items() if fitted else ():
        second = extracted(columns=[chosen[detector].second_pass_hook for detector in fitted])
        if second is not None:
            banks[name] = replace(banks[name], columns=banks[name].columns | second.columns)
