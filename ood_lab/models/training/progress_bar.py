"""The bar of a training."""

from __future__ import annotations

from lightning.pytorch import LightningModule, Trainer
from lightning.pytorch.callbacks import RichProgressBar


class TrainingProgressBar(RichProgressBar):
    """A ``RichProgressBar`` without ``v_num``: a run has one version, whose folder is named."""

    def get_metrics(
        self, trainer: Trainer, pl_module: LightningModule
    ) -> dict[str, int | str | float | dict[str, float]]:
        """What the module logs for the bar."""
        shown = super().get_metrics(trainer, pl_module)
        return {key: value for key, value in shown.items() if key != "v_num"}
