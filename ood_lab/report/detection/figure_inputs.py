"""What the figures of a run are drawn from."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property

import numpy as np
import pandas as pd

from ood_lab.metrics import BASELINE
from ood_lab.report.figures.layout import style
from ood_lab.report.figures.lines import Line, Points, curve
from ood_lab.report.results_lookup import RunView
from ood_lab.schema.results import ID_TEST

#: Lines above this number are not told apart: the best ones stand out, the rest is grey.
_MAX_HIGHLIGHTED = 6
#: Panels that one figure shows: those of a paper's 13 detectors and one more.
_MAX_PANELS = 14


@dataclass(frozen=True)
class FigureInputs:
    """Tables of one run.

    Attributes:
        view: the results.
        scores: ``dataset, label, pred, <one column per detector>``, higher = more OOD.
        features: dataset → ``[N, D]``, the ID test set among them; may be empty.
        classes: names of the ID classes, position = label; may be empty.
    """

    view: RunView
    scores: pd.DataFrame
    features: Mapping[str, np.ndarray]
    classes: Sequence[str]

    def footer(self, *notes: str, fpr95: bool = False) -> str:
        """Text below a figure: how to read it, and what FPR95 means where it shows one."""
        lines = [" ".join(filter(None, notes)), f"{self.view.fpr95}." if fpr95 else ""]
        *above, last = list(filter(None, lines)) or [""]
        return "\n".join([*above, f"{last} ID test n = {self.view.n_id:,}.".strip()])

    @property
    def highlighted(self) -> list[str]:
        """The detectors drawn in colour where lines would be too many."""
        detectors = self.view.detectors
        return detectors if len(detectors) <= _MAX_HIGHLIGHTED + 1 else detectors[:_MAX_HIGHLIGHTED]

    @property
    def panels(self) -> list[str]:
        """The detectors with a panel each: all, or those with the highest mean AUROC and msp."""
        detectors = self.view.detectors
        last = _MAX_PANELS - 1
        baseline = BASELINE in detectors[_MAX_PANELS:]
        return [*detectors[:last], BASELINE] if baseline else detectors[:_MAX_PANELS]

    def lines(self, points: Callable[[str], Points]) -> list[Line]:
        """A curve per detector, grey where it is not highlighted."""
        rest = len(self.view.detectors) - len(self.highlighted)
        lines = []
        for place, detector in enumerate(self.view.detectors):
            highlighted = detector in self.highlighted
            look, label = (style(place), detector) if highlighted else (None, f"{rest} others")
            x, y = points(detector)
            lines.append(curve(x, y, look, label))
        return lines

    @cached_property
    def _parts(self) -> dict[str, pd.DataFrame]:
        return {str(name): part for name, part in self.scores.groupby("dataset", sort=False)}

    @property
    def test(self) -> pd.DataFrame:
        """Rows of the ID test set."""
        return self._parts[ID_TEST]

    @property
    def labelled(self) -> pd.DataFrame:
        """Those of them with a label and a prediction, where the network gives logits."""
        test = self.test
        if "pred" not in test:
            return test.iloc[:0].assign(pred=-1)
        return test[(test["label"] >= 0) & (test["pred"] >= 0)]

    def scores_of(self, detector: str, dataset: str) -> np.ndarray:
        """Scores ``[N] float64`` of one dataset."""
        return self._parts[dataset][detector].to_numpy(np.float64)
