"""Lightning's progress bar, with the name of the split that is being extracted."""

from __future__ import annotations

from lightning.pytorch.callbacks import RichProgressBar

from ood_lab.features.extractor import Extractor


class ExtractionProgressBar(RichProgressBar):
    """A ``RichProgressBar`` that says whose features a pass computes."""

    @property
    def predict_description(self) -> str:
        """``test`` instead of ``Predicting`` while the features of ``test`` are extracted."""
        module = self.trainer.lightning_module
        return module.description if isinstance(module, Extractor) else super().predict_description
