"""Detectors that score what the extraction pass has computed for them."""

from __future__ import annotations

from torch import Tensor

from ood_lab.detectors.base import Detector, DetectorRefusal
from ood_lab.detectors.support.requirements import require_column
from ood_lab.features.bank import FeatureBank
from ood_lab.features.extraction_hooks import BankColumn
from ood_lab.models.head_kind import Part


class NetworkDetector(Detector):
    """A detector that needs the network: its ``extraction_hook`` runs in the extraction pass.

    Its constructor sets ``_column``, which is computed with the features; ``fit`` and ``score``
    only read it from the bank.
    """

    reads: tuple[Part, ...] = ("features", "logits", "level", "head", "maps")

    _column: BankColumn

    @property
    def extraction_hook(self) -> BankColumn:
        """The column that the extraction pass computes for this detector."""
        return self._column

    def values(self, bank: FeatureBank) -> Tensor:
        """The column's values, ``[N, ...]``; needs no part of the bank that only a fit uses."""
        return require_column(self, bank, self._column)

    def second_values(self, bank: FeatureBank) -> Tensor:
        """The values of ``second_pass_hook``, ``[N, ...]``.

        Raises:
            DetectorRefusal: no second pass over these images was made with what was learned.
        """
        column = self.second_pass_hook
        if column is None or column.key not in bank.columns:
            raise DetectorRefusal(
                f"{self.name} needs a second pass of these images through the network, after the "
                "fit, which eval.py makes with task=score and task=predict"
            )
        return bank.columns[column.key]
