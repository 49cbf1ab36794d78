"""What a run adds to Lightning: callbacks, the log of a training, whole checkpoint files."""

from __future__ import annotations

import io
import logging
import math
import os
import random
from pathlib import Path
from typing import Any

import numpy as np
import torch
from lightning.fabric.plugins import TorchCheckpointIO
from lightning.pytorch import Callback, LightningModule, Trainer
from lightning.pytorch.callbacks import RichProgressBar
from torch import nn
from torch.utils.data import DataLoader

from ood_lab.common.english import counted
from ood_lab.common.files import replaced
from ood_lab.common.grouping import without_keys
from ood_lab.common.progress import Pace, duration
from ood_lab.models.training.classifier import Classifier
from ood_lab.models.weights_formats import Checkpoint

log = logging.getLogger(__name__)

#: What the first estimate of the time is measured on, after one step that warms up: so many
#: steps, or so many seconds where steps are slow.
_STEPS, _SECONDS = 10, 20.0
#: Lines about epochs at most; small data trains for hundreds of short ones.
_LINES = 50


class TrainingLog(Callback):
    """Logs lines before, during and after a training, on the main process.

    Lines about progress go to the logger ``ood_lab.common.progress``; a terminal has a bar for
    them.

    Args:
        name: of what is trained.
        weights: where it starts from, as ``random weights``.
        enough: optimiser steps below which a training is called short; 0 = never.

    Attributes:
        started: False where the training had ended before, in another process.
    """

    # No dataclass: Hydra, which gives callbacks to the Trainer, would read it as a configuration.
    def __init__(self, name: str, weights: str, enough: int = 0) -> None:
        self.name = name
        self.weights = weights
        self.enough = enough
        self._pace: Pace | None = None
        self._estimate_from: int | None = None
        self._validated = False
        self.started = False

    def on_train_start(self, trainer: Trainer, pl_module: LightningModule) -> None:
        """Says what is trained, from where, on how much, and whether it resumes."""
        self.started = True
        if not trainer.is_global_zero:
            return
        log.info("training %s: %s", self.name, self._network(pl_module))
        log.info("%s", _work(trainer))
        if trainer.ckpt_path:
            epoch = f"{trainer.current_epoch + 1}{_of(trainer.max_epochs)}"
            log.info("resuming at epoch %s from %s", epoch, trainer.ckpt_path)
        if trainer.world_size > 1 and any(map(_of_one_device, pl_module.modules())):
            log.info(
                "batch normalisation takes its statistics from the images of each device, so the "
                "weights differ from those of one device; trainer.sync_batchnorm=true takes them "
                "from all (GPU only)"
            )
        if warning := self.warning(trainer):
            log.warning(warning)

    def on_train_batch_end(
        self,
        trainer: Trainer,
        pl_module: LightningModule,
        outputs: Any,
        batch: Any,
        batch_idx: int,
    ) -> None:
        """Estimates the time once, then says something about once a minute."""
        if not trainer.is_global_zero:
            return
        step = _step(trainer, batch_idx)
        if self._pace is None:  # the first step warms up
            self._pace = Pace(total_steps(trainer), step)
            self._estimate_from = step
        elif self._estimate_from is not None:
            if step - self._estimate_from >= _STEPS or self._pace.elapsed > _SECONDS:
                self._estimate_from = None
                log.info("about %.2g s per step: %s", self._pace.each(step), self._pace.left(step))
        elif self._pace.due:
            loss = outputs["loss"] if isinstance(outputs, dict) else outputs
            self._say(step, trainer, [f"loss {float(loss):.4g}"] if loss is not None else [])

    def on_validation_end(self, trainer: Trainer, pl_module: LightningModule) -> None:
        """Notes that this epoch has a validation."""
        self._validated = True

    def on_train_epoch_end(self, trainer: Trainer, pl_module: LightningModule) -> None:
        """Says what the epoch brought; of very many epochs, what every second, third, ... did."""
        if trainer.is_global_zero and _told(trainer.current_epoch + 1, trainer.max_epochs or 0):
            step = _step(trainer, trainer.fit_loop.batch_idx)
            self._say(step, trainer, _metrics(trainer, self._validated))
        self._validated = False

    def on_train_end(self, trainer: Trainer, pl_module: LightningModule) -> None:
        """Says how long it took."""
        if trainer.is_global_zero and self._pace is not None:
            self._pace.line(f"trained in {duration(self._pace.elapsed)}")

    def warning(self, trainer: Trainer) -> str | None:
        """What is to be said of a training of too few steps."""
        total = total_steps(trainer)
        if total is None or total >= self.enough:
            return None
        return (
            f"the network has seen few images: {counted(total, 'optimiser step')} in all, where at "
            f"least {self.enough:,} are usual; trainer.max_epochs=null trains for so many"
        )

    def on_fit_end(self, trainer: Trainer, pl_module: LightningModule) -> None:
        """Says so where a checkpoint holds the whole training already."""
        if trainer.is_global_zero and not self.started and trainer.ckpt_path:
            epochs = counted(trainer.current_epoch, "epoch")
            log.info("trained before: %s, in %s", epochs, trainer.ckpt_path)

    def _network(self, module: LightningModule) -> str:
        counts = [(p.numel(), p.requires_grad) for p in module.parameters()]
        total = sum(count for count, _ in counts)
        trained = sum(count for count, moves in counts if moves)
        parts = [f"{total:,} parameters" + (f" ({trained:,} trained)" if trained < total else "")]
        parts.append(self.weights)
        if isinstance(module, Classifier):
            _, height, width = module.backbone.data_config["input_size"]
            parts.append(f"input {width} x {height} pixels")
        return ", ".join(parts)

    def _say(self, step: int, trainer: Trainer, parts: list[str]) -> None:
        assert self._pace is not None  # made by the first step
        epoch = f"epoch {trainer.current_epoch + 1}{_of(trainer.max_epochs)}"
        steps = f"step {step:,}{_of(self._pace.total)}"
        shown = filter(None, (steps, *parts, self._pace.left(step)))
        self._pace.line(f"{epoch}: {', '.join(shown)}")


def _of_one_device(module: nn.Module) -> bool:
    """Whether this is a batch normalisation whose statistics are not shared by devices."""
    return isinstance(module, nn.modules.batchnorm._BatchNorm) and not isinstance(
        module, nn.SyncBatchNorm
    )


def _told(epoch: int, epochs: int) -> bool:
    """Whether this epoch, counted from 1, gets a line."""
    return epoch in (1, epochs) or epoch % max(1, math.ceil(epochs / _LINES)) == 0


def total_steps(trainer: Trainer) -> int | None:
    """Optimiser steps of the whole training; None where it has no fixed end."""
    steps = trainer.estimated_stepping_batches
    return int(steps) if 0 < steps < math.inf else None


def _steps_per_epoch(trainer: Trainer) -> int | None:
    batches = trainer.num_training_batches
    if math.isinf(batches):
        return None
    return math.ceil(batches / trainer.accumulate_grad_batches)


def _step(trainer: Trainer, batch_idx: int) -> int:
    """Optimiser steps up to this batch; ``global_step`` counts every optimiser on its own."""
    per_epoch = _steps_per_epoch(trainer)
    if per_epoch is None:
        return trainer.global_step
    within = math.ceil((batch_idx + 1) / trainer.accumulate_grad_batches)
    return trainer.current_epoch * per_epoch + within


def _work(trainer: Trainer) -> str:
    """Images, batches and steps, where they are known."""
    loader, parts = trainer.train_dataloader, []
    if isinstance(loader, DataLoader) and loader.batch_size:
        world = trainer.world_size
        devices = f" ({loader.batch_size} on each of {world} devices)" if world > 1 else ""
        images = len(loader.dataset)  # type: ignore[arg-type]  # ours have a length
        batches = f"in batches of {loader.batch_size * world}{devices}"
        parts.append(f"{counted(images, 'training image')} {batches}")
    if (per_epoch := _steps_per_epoch(trainer)) is not None:
        parts.append(f"{counted(per_epoch, 'step')} per epoch")
    if trainer.max_epochs is not None and trainer.max_epochs > 0:
        parts.append(counted(trainer.max_epochs, "epoch"))
    if (total := total_steps(trainer)) is not None:
        parts.append(f"{counted(total, 'step')} in all")
    return ", ".join(parts)


def _metrics(trainer: Trainer, validated: bool) -> list[str]:
    """Training loss and, of an epoch with a validation, its accuracy or other measures."""
    metrics = {key: float(value) for key, value in trainer.callback_metrics.items()}
    parts = [f"loss {metrics['train/loss']:.4g}"] if "train/loss" in metrics else []
    if validated and "val/acc" in metrics:
        parts.append(f"val accuracy {metrics['val/acc']:.1%}")
    elif validated:
        validation = {key: value for key, value in metrics.items() if key.startswith("val/")}
        parts += [f"{key.replace('/', ' ')} {value:.4g}" for key, value in validation.items()]
    return parts


def _of(total: int | None) -> str:
    return f" of {total:,}" if total is not None and total > 0 else ""


class EpochSeed(Callback):
    """Seeds dropout and other draws inside the network at the start of every epoch.

    A resumed training has the numbers of an uninterrupted one.

    Args:
        seed: of the run.
    """

    def __init__(self, seed: int) -> None:
        self.seed = seed

    def on_train_batch_start(
        self, trainer: Trainer, pl_module: LightningModule, batch: Any, batch_idx: int
    ) -> None:
        """Seeds torch, numpy and ``random``, differently on every process."""
        # Not on_train_epoch_start, which Lightning leaves out when a training is resumed.
        if batch_idx == 0:
            entropy = [self.seed, trainer.current_epoch, trainer.global_rank]
            state = int(np.random.SeedSequence(entropy).generate_state(1)[0])
            torch.manual_seed(state)
            np.random.seed(state)
            random.seed(state)


class TrainingProgressBar(RichProgressBar):
    """A ``RichProgressBar`` without ``v_num``: a run has one version, whose folder is named."""

    def get_metrics(
        self, trainer: Trainer, pl_module: LightningModule
    ) -> dict[str, int | str | float | dict[str, float]]:
        """What the module logs for the bar."""
        return without_keys(super().get_metrics(trainer, pl_module), ["v_num"])


#: Epochs and optimiser steps of a training whose length nobody sets, at least. The bundled data
#: makes 340 steps in 5 epochs; 480 images of one's own make 301 in 43. Fewer give a warning.
MIN_EPOCHS, MIN_STEPS = 5, 300


def epochs_for(steps: int) -> int:
    """Epochs of so many optimiser ``steps`` that make :data:`MIN_EPOCHS` and :data:`MIN_STEPS`."""
    return max(MIN_EPOCHS, math.ceil(MIN_STEPS / max(1, steps)))


class WholeCheckpointIO(TorchCheckpointIO):
    """Writes a checkpoint to a file in the same folder, and renames that file when it is on disk.

    Lightning writes to ``$TMPDIR`` first. Where that is another file system, it then copies over
    the old checkpoint, and a kill or a full disk during the copy leaves neither.
    """

    def save_checkpoint(
        self, checkpoint: Checkpoint, path: str | Path, storage_options: Any = None
    ) -> None:
        """Writes the file; the one before stays until the new one is complete.

        Raises:
            OSError: it cannot be written, as on a full disk.
        """
        if "://" in str(path):
            super().save_checkpoint(checkpoint, path, storage_options)
            return
        content = io.BytesIO()  # torch.save hides the reason why a file cannot be written
        torch.save(checkpoint, content)
        with replaced(path) as part, part.open("wb") as file:
            file.write(content.getbuffer())
            file.flush()
            os.fsync(file.fileno())
