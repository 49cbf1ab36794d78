"""Training a backbone with an objective, and the base of methods with heads of their own."""

from __future__ import annotations

import inspect
from collections.abc import Callable
from functools import partial
from typing import Annotated, Any, Literal, TypedDict

import torch
import torch.nn.functional as F
from annotated_types import Interval
from lightning.pytorch import LightningModule
from torch import Tensor
from torch.optim import Optimizer
from torch.utils.data import DataLoader
from torch.utils.data.distributed import DistributedSampler
from torchmetrics import Metric
from torchmetrics.classification import MulticlassAccuracy

from ood_lab.common.errors import UserError, reported_as
from ood_lab.common.tensor_file import Batch, Tensors
from ood_lab.models.backbone import Backbone
from ood_lab.models.objectives.base import LabelledLoss, Loss, Objective, Step
from ood_lab.models.output import Output
from ood_lab.models.weights_formats import Checkpoint


class Schedule(TypedDict, total=False):
    """Settings of :class:`Classifier` that every method hands on."""

    scheduler: Callable[..., Any] | None
    scheduler_interval: Literal["step", "epoch"]


class Classifier(LightningModule):
    """Trains a backbone on ``label`` with cross-entropy, or another objective.

    Logs ``train|val/loss`` and ``/acc`` (top-1 over all samples), reduced over all processes.
    A method with more heads, labels or losses overrides :meth:`outputs`, :meth:`losses` and
    :meth:`parameter_groups`; everything else stays.

    Checkpoints hold plain types only, so that they load with ``weights_only=True``, and carry the
    backbone's ``data_config``.

    Args:
        backbone: the network.
        optimizer: makes the optimiser from the parameter groups (a partial).
        scheduler: makes the schedule from the optimiser (a partial). Its ``total_steps`` or
            ``T_max``, where left open, is the length of the training in units of
            ``scheduler_interval``.
        scheduler_interval: the schedule moves every ``step`` or every ``epoch``.
        label_smoothing: share of the target spread over all classes, in [0, 1).
        channels_last: the weights lie as ``[C, H, W, C_in]`` in memory: convolutional networks
            train up to 1.5 times faster, transformers as fast. It moves the last digits of every
            step, and so is a setting of the run and not chosen by measurement.
        loss: an :class:`~ood_lab.models.objectives.base.Objective`, or a function ``loss(logits,
            labels)`` such as those of pytorch-ood; None = cross-entropy.

    Raises:
        UserError: the objective cannot train this network.
    """

    def __init__(
        self,
        backbone: Backbone,
        optimizer: Callable[..., Optimizer],
        scheduler: Callable[..., Any] | None = None,
        scheduler_interval: Literal["step", "epoch"] = "epoch",
        label_smoothing: Annotated[float, Interval(ge=0, lt=1)] = 0.0,
        channels_last: bool = False,
        loss: Objective | Callable[[Tensor, Tensor], Tensor] | None = None,
    ) -> None:
        super().__init__()
        self.backbone = backbone
        self.optimizer_factory = optimizer
        self.scheduler_factory = scheduler
        self.scheduler_interval = scheduler_interval
        self.label_smoothing = label_smoothing
        if loss is not None and not isinstance(loss, Objective):
            loss = LabelledLoss(loss)
        if loss is not None:
            loss.attach(backbone)
        if channels_last:  # a convolution takes its images as its weights lie
            backbone.to(memory_format=torch.channels_last)
        classes = backbone.num_classes
        self.train_acc = MulticlassAccuracy(classes, average="micro")
        self.val_acc = MulticlassAccuracy(classes, average="micro")

    @property
    def objective(self) -> Objective | None:
        """What is minimised; None = cross-entropy."""
        added = self.backbone.objective
        assert added is None or isinstance(added, Objective)
        return added

    def check_optimizer(self) -> None:
        """Builds optimiser and schedule once, so that wrong settings show before training.

        Raises:
            UserError: their settings are wrong.
        """
        with reported_as("model.classifier.optimizer: {reason}"):
            optimizer = self.optimizer_factory(self.parameter_groups())
        if self.scheduler_factory is not None:
            with reported_as("model.classifier.scheduler: {reason}"):
                self.scheduler_factory(optimizer, **dict.fromkeys(self._open_lengths(), 1_000_000))

    def forward(self, image: Tensor) -> Output:
        """Maps ``image [B, 3, H, W]`` to ``Output(logits [B, C], features [B, D])``."""
        return self.backbone(image)

    def outputs(self, batch: Batch) -> Any:
        """What :meth:`losses` needs of the network; its ``logits [B, C]`` may be None.

        Of cross-entropy that is the network's :class:`Output`, of another objective its loss.
        """
        if self.objective is None:
            return self(batch["image"])
        outliers = batch.get("outliers") if self.objective.outliers_per_image else None
        epochs = self.trainer.max_epochs if self._trainer is not None else None
        step = Step(
            self.backbone,
            batch["image"],
            batch["label"],
            None if outliers is None else outliers.flatten(0, 1),
            batch.get("views"),
            smoothing=self.smoothing,
            progress=self.current_epoch / epochs if epochs and epochs > 0 else 0.0,
        )
        return self.objective(step)

    def losses(self, outputs: Any, batch: Batch) -> Tensors:
        """The weighted loss terms by name, scalars; their sum is minimised."""
        if isinstance(outputs, Loss):
            return outputs.terms
        smoothing = self.smoothing
        return {"ce": F.cross_entropy(outputs.logits, batch["label"], label_smoothing=smoothing)}

    @property
    def smoothing(self) -> float:
        """Of the labels, now: 0 where nothing is trained."""
        return self.label_smoothing if self.training else 0.0

    def parameter_groups(self) -> list[dict[str, Any]]:
        """The optimiser's parameter groups: all that is trained, with and without decay."""
        free = set() if self.objective is None else {*self.objective.undecayed()}
        trained = [p for p in self.parameters() if p.requires_grad]
        groups: list[dict[str, Any]] = [{"params": [p for p in trained if p not in free]}]
        if free:
            groups.append({"params": [p for p in trained if p in free], "weight_decay": 0.0})
        return groups

    def training_step(self, batch: Batch, batch_idx: int) -> Tensor:
        """Returns the total loss of the batch."""
        total = self._step(batch, "train", self.train_acc)
        if self.objective is not None:
            # Several processes wait for the gradient of layers that a term of a later epoch reads.
            total = total + sum(0 * p.sum() for p in self.objective.parameters())
        self._check_finite(total)
        return total

    def validation_step(self, batch: Batch, batch_idx: int) -> None:
        """Logs ``val/loss`` and ``val/acc`` of every image once, on any number of devices."""
        n = self._unrepeated(len(batch["label"]), batch_idx)
        # Each device passes as many batches: one that is only repeated counts nothing.
        shown = {key: rows[: max(n, 1)] for key, rows in batch.items()}
        # Lightning divides the sum of weights by the number of devices, without a remainder.
        self._step(shown, "val", self.val_acc, n * self.trainer.world_size)

    def configure_optimizers(self) -> Any:
        """The optimiser, with its schedule if there is one."""
        optimizer = self.optimizer_factory(self.parameter_groups())
        if self.scheduler_factory is None:
            return optimizer
        schedule = self.scheduler_factory(optimizer, **self._schedule_length())
        return {
            "optimizer": optimizer,
            "lr_scheduler": {
                "scheduler": schedule,
                "interval": self.scheduler_interval,
                "monitor": "val/loss",  # read by ReduceLROnPlateau only
            },
        }

    def on_save_checkpoint(self, checkpoint: Checkpoint) -> None:
        """Adds the transform settings, so that the weights never travel without them.

        Tensors that evaluation reads replace the trained ones, which are kept for a resumed run.
        """
        checkpoint["data_config"] = dict(self.backbone.data_config)
        weights = checkpoint["state_dict"]
        if self.objective is None:
            return
        changed = {f"backbone.{k}": v for k, v in self.objective.evaluated(self.backbone).items()}
        checkpoint["trained"] = {key: weights[key] for key in changed}
        weights.update(changed)

    def on_load_checkpoint(self, checkpoint: Checkpoint) -> None:
        """Puts the trained tensors back, from which a training resumes."""
        checkpoint["state_dict"].update(checkpoint.get("trained", {}))

    def _unrepeated(self, n: int, batch_idx: int) -> int:
        """Of the ``n`` images of a batch, how many are not repeated to fill up the devices."""
        loader: Any = self.trainer.val_dataloaders
        share = loader.sampler if isinstance(loader, DataLoader) else None
        if not isinstance(share, DistributedSampler):
            return n
        rank_length = len(range(share.rank, len(share.dataset), share.num_replicas))  # type: ignore[arg-type]
        return max(0, min(n, rank_length - batch_idx * loader.batch_size))

    def _step(
        self, batch: Batch, stage: str, accuracy: Metric, weight: int | None = None
    ) -> Tensor:
        outputs, labels = self.outputs(batch), batch["label"]
        terms = self.losses(outputs, batch)
        total = torch.stack(list(terms.values())).sum()
        weight = len(labels) if weight is None else weight
        shown = outputs.logits is not None  # mixed images have no class
        if weight and shown:
            accuracy.update(outputs.logits, labels)
        logged = {f"{stage}/loss": total}
        if len(terms) > 1:
            logged |= {f"{stage}/loss_{name}": term for name, term in terms.items()}
        self.log_dict(logged, on_step=False, on_epoch=True, sync_dist=True, batch_size=weight)
        if shown:
            self.log(f"{stage}/acc", accuracy, on_step=False, on_epoch=True, prog_bar=True)
        return total

    def _check_finite(self, loss: Tensor) -> None:
        bad = not bool(loss.detach().isfinite())
        # All processes stop together: one that raised alone would leave the others waiting.
        if not self.trainer.strategy.reduce_boolean_decision(bad, all=False):
            return
        rate = self.trainer.optimizers[0].param_groups[0]["lr"]
        raise UserError(
            f"the training loss is {float(loss.detach()):g} at step {self.global_step} (epoch "
            f"{self.current_epoch}, learning rate {rate:.3g}): lower "
            "model.classifier.optimizer.lr, or set trainer.gradient_clip_val=1"
        )

    def _open_lengths(self) -> list[str]:
        """Parameters of the schedule that stand for the length of the training, if left open."""
        factory = self.scheduler_factory
        assert factory is not None
        accepted = inspect.signature(factory).parameters
        keywords = factory.keywords if isinstance(factory, partial) else {}
        # OneCycleLR also takes its length as epochs × steps_per_epoch.
        return [
            key
            for key in ("total_steps", "T_max")
            if key in accepted and keywords.get(key) is None and "epochs" not in keywords
        ]

    def _schedule_length(self) -> dict[str, int]:
        open_ = self._open_lengths()
        if not open_:
            return {}
        by_step = self.scheduler_interval == "step"
        length = self.trainer.estimated_stepping_batches if by_step else self.trainer.max_epochs
        if length is None or not 0 < length < float("inf"):
            raise UserError("a schedule needs an end: set trainer.max_epochs (or its own length)")
        return {open_[0]: int(length)}
