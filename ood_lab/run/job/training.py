"""The training of a network in one job: what is trained, whether it is, and what is recorded."""

from __future__ import annotations

import logging
from collections.abc import Iterator
from contextlib import contextmanager, nullcontext
from typing import TYPE_CHECKING

from ood_lab.run.building import checkpoints
from ood_lab.run.job.workspace import Workspace
from ood_lab.schema.finished_run import FinishedRun
from ood_lab.schema.run_record import Facts

if TYPE_CHECKING:
    import lightning as L

    from ood_lab.models import Backbone

log = logging.getLogger(__name__)


def classifier(job: Workspace) -> L.LightningModule:
    """The LightningModule to train, with a head for the classes of the data."""
    from ood_lab.run.building.networks import make_classifier

    module, own_training = make_classifier(job.cfg, job.data, job.is_main)
    job.own_training = own_training
    return module


@contextmanager
def training(job: Workspace, module: L.LightningModule) -> Iterator[bool]:
    """Tells whether the weights are to be trained; on the main process, one at a time.

    Runs that differ in detectors, report, metrics or task have the same weights.
    """
    from ood_lab.features.process_agreement import agreed, join, told_by_main
    from ood_lab.run.building.linear_probe import LinearProbe

    with job.weights.locked() if job.is_main else nullcontext():
        if job.is_main:
            job.weights.prepare(job.folder, job.retrains)
        join(job.trainer)
        found = agreed(job.trainer, job.weights.record)
        if found and job.is_main:
            log.info("weights: those of %s, which %s trained", job.weights.path, found["run"])
        probe = None
        if not (found or job.own_training):
            place = job.weights.path
            probe = LinearProbe.fitted(job.cfg, module, job.extractor, job.data, place)
        ends = probe is not None and probe.ends
        job.training_log.started |= ends
        yield not (found or ends)
        if job.is_main:
            if not found:
                facts: Facts = {"training": {"epochs": 0, "steps": 0}}
                if not ends:
                    facts = _facts(job, module.trainer)
                if probe is not None:
                    of_probe = probe.compared(facts.get("val_accuracy"))
                    warnings = [*facts.get("warnings", []), *of_probe.pop("warnings", [])]
                    facts |= {**of_probe, "warnings": warnings}
                facts |= {"run": FinishedRun(job.folder).label, "classes": job.data.classes}
                job.weights.finish(job.cfg, facts)
            job.weights.give_to(job.folder)
        if probe is not None:
            told_by_main(job.extractor, True)  # now the others may read the best


def _facts(job: Workspace, trainer: L.Trainer) -> Facts:
    """How long it was, its warning and its validation accuracy."""
    from ood_lab.models import total_steps

    length = {"epochs": trainer.current_epoch, "steps": total_steps(trainer)}
    facts: Facts = {"training": length}
    if warning := job.training_log.warning(trainer):
        facts["warnings"] = [warning]
    accuracy = checkpoints.val_accuracy(trainer)
    return facts | ({} if accuracy is None else {"val_accuracy": accuracy})


def finish_training(job: Workspace, module: L.LightningModule) -> None:
    """Records how long the training was and which run did it, and loads its best weights."""
    known = job.weights.record if job.is_main else {}
    record = job.record
    record.training, record.val_accuracy = known.get("training"), known.get("val_accuracy")
    record.probe = known.get("probe")
    record.fitted_head = known.get("fitted_head") or record.fitted_head
    record.warnings.extend(known.get("warnings") or ())
    if known.get("run") not in (None, FinishedRun(job.folder).label):
        record.weights_of = known["run"]
    own = job.own_training
    backbone: Backbone = own.backbone if own else module.backbone  # type: ignore[assignment]
    backbone.load(checkpoints.weights_file(job.weights.path))
    job.fit_probe(backbone)
    if backbone.chance:
        job.record.warnings.append(backbone.chance)
    job.backbone, job.model_seed = backbone, job.seed
