"""The linear head on frozen features with which the fine-tuning of pretrained weights begins."""

from __future__ import annotations

import logging
import os
from dataclasses import dataclass
from pathlib import Path

import lightning as L
from omegaconf import DictConfig

from ood_lab.common.english import counted
from ood_lab.common.progress import duration
from ood_lab.data.datamodules.base import OODDataModule
from ood_lab.evaluation.fitted_head import fit_head
from ood_lab.features.process_agreement import told_by_main
from ood_lab.models import Backbone, Classifier, WholeCheckpointIO, epochs_for
from ood_lab.models.head_check import seconds_of_a_step
from ood_lab.run.building import checkpoints
from ood_lab.run.building.trainers import has_length, steps_per_epoch
from ood_lab.run.commandline.composition import running_overrides
from ood_lab.run.commandline.printed_commands import command_line
from ood_lab.run.commandline.process_start import is_main
from ood_lab.schema.run_record import Facts

log = logging.getLogger(__name__)
#: Images of a class below which fine-tuning rarely beats a linear head on frozen features.
FEW = 100
#: Seconds on a CPU that nobody has to wait for a fine-tuning that was not asked for, and epochs of
#: the command that asks for it.
LONGEST, EPOCHS = 300.0, 10
#: Its checkpoint, as long as the fine-tuning lasts.
FILE = "probe.ckpt"


@dataclass(frozen=True)
class LinearProbe:
    """A fitted head, and the network with it as a checkpoint.

    Attributes:
        facts: see :func:`~ood_lab.evaluation.fitted_head.fit_head`.
        folder: of the checkpoints.
        ends: nothing follows, as nobody has asked for a fine-tuning that so few images rarely gain,
            or that a CPU takes long for.
    """

    facts: Facts
    folder: Path
    ends: bool

    @classmethod
    def fitted(
        cls,
        cfg: DictConfig,
        module: L.LightningModule,
        extractor: L.Trainer,
        data: OODDataModule,
        weights: Path,
    ) -> LinearProbe | None:
        """Gives the module its head where the training begins with that; call it on all processes.

        Source: linear probing, then fine-tuning (arXiv 2202.10054).

        Args:
            cfg: of the job.
            module: will be trained.
            extractor: makes the passes over ID train and val.
            data: set up.
            weights: folder of the training.
        """
        if type(module) is not Classifier or not _is_fresh(cfg, module):
            return None
        backbone = module.backbone
        asked = has_length(cfg) or checkpoints.to_resume(weights)
        reason = None if asked else _reason(cfg, backbone, extractor, data)
        ends = told_by_main(extractor, reason is not None)
        if ends:
            log.info(
                "%s: a linear head is fitted and %s stays frozen; this fine-tunes it too: %s",
                reason,
                backbone.name,
                command_line("train", [*running_overrides(), f"trainer.max_epochs={EPOCHS}"]),
            )
        facts = fit_head(backbone, extractor, data, Path(cfg.paths.features), validated=True)
        folder = checkpoints.folder(weights)
        if is_main():
            checkpoint = {"state_dict": module.state_dict()}
            module.on_save_checkpoint(checkpoint)
            WholeCheckpointIO().save_checkpoint(checkpoint, folder / FILE)
        return cls(facts, folder, ends)

    def compared(self, accuracy: float | None) -> Facts:
        """Keeps the probe unless ``accuracy``, on ID val after the fine-tuning, is higher.

        Returns:
            Facts about the training, for the manifest.
        """
        before = self.facts.get("val_accuracy")
        facts: Facts = {"probe": {**self.facts, "fine_tuned_val_accuracy": accuracy}}
        taken = self.ends
        if before is not None and accuracy is not None:
            log.info(
                "val accuracy: linear probe %.1f%%, fine-tuned %.1f%%", 100 * before, 100 * accuracy
            )
            taken = accuracy <= before
            if taken:
                facts["warnings"] = [
                    f"fine-tuning does not beat the linear probe on ID val ({accuracy:.1%} against "
                    f"{before:.1%}): the run takes the probe, which is recommended; the fine-tuned "
                    "network is in checkpoints/last.ckpt"
                ]
        if not taken:
            (self.folder / FILE).unlink()
            return facts
        os.replace(self.folder / FILE, self.folder / "best.ckpt")
        return facts | {"fitted_head": self.facts, "val_accuracy": before}


def _reason(
    cfg: DictConfig, backbone: Backbone, extractor: L.Trainer, data: OODDataModule
) -> str | None:
    """Why a fine-tuning that nobody has asked for is not begun; None where it is."""
    each = len(data.splits["train"]) / len(data.classes)
    if each < FEW:
        return f"{each:.0f} images per class are few"
    if extractor.strategy.root_device.type != "cpu":
        return None
    devices = extractor.world_size
    steps = steps_per_epoch(cfg, data, devices)
    of_step = seconds_of_a_step(backbone, data.loading.on_each(devices))
    # Gradients are gathered over several batches before a step.
    of_epoch = of_step * data.batches_per_epoch(devices)
    epochs = epochs_for(steps)
    if (seconds := epochs * of_epoch) <= LONGEST:
        return None
    return (
        f"{counted(epochs, 'epoch')} on this CPU would take about {duration(seconds)}, "
        f"{EPOCHS} about {duration(EPOCHS * of_epoch)}"
    )


def _is_fresh(cfg: DictConfig, module: Classifier) -> bool:
    """True if a head without training is trained with cross-entropy on pretrained weights."""
    backbone, head = module.backbone, module.backbone.head
    weights = cfg.model.get("pretrained") or cfg.model.get("weights")
    if not (cfg.probe_first and weights) or cfg.ckpt or module.objective:
        return False
    # A head that is the mean of several has no parameters of its own.
    if head is None or len([*head.parameters()]) < 2:
        return False
    return backbone.fresh_head or backbone.fitted_head is not None
