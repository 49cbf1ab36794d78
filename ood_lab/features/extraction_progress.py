"""Progress of a feature extraction: a bar with the name of the split, and lines for long passes."""

from __future__ import annotations

from typing import Any

from lightning.pytorch import Callback, LightningModule, Trainer
from lightning.pytorch.callbacks import RichProgressBar

from ood_lab.common.progress import Pace
from ood_lab.features.lightning_extractor import Extractor


class ExtractionProgressBar(RichProgressBar):
    """A ``RichProgressBar`` that says whose features a pass computes."""

    @property
    def predict_description(self) -> str:
        """``test`` instead of ``Predicting`` while the images of ``test`` pass."""
        module = self.trainer.lightning_module
        return module.description if isinstance(module, Extractor) else super().predict_description


class ExtractionLog(Callback):
    """Logs the progress about once a minute, for those who see no bar."""

    def __init__(self) -> None:
        self._pace: Pace | None = None

    def on_predict_start(self, trainer: Trainer, pl_module: LightningModule) -> None:
        """Looks at the clock."""
        self._pace = Pace(int(sum(trainer.num_predict_batches)))

    def on_predict_batch_end(
        self,
        trainer: Trainer,
        pl_module: LightningModule,
        outputs: Any,
        batch: Any,
        batch_idx: int,
        dataloader_idx: int = 0,
    ) -> None:
        """Logs the share done and the time left, on the main process."""
        if trainer.is_global_zero and self._pace and self._pace.total and self._pace.due:
            done = batch_idx + 1
            share, left = done / self._pace.total, self._pace.left(done)
            text = f"prediction: {share:.0%} done"
            if isinstance(pl_module, Extractor):
                text = pl_module.progress(share)
            self._pace.line(", ".join(filter(None, (text, left))))
