"""The images a detector is most wrong about, as thumbnails."""

from __future__ import annotations

import base64
import io
from collections.abc import Sequence
from dataclasses import dataclass, field

import numpy as np
import pandas as pd

from ood_lab.report.rendering.blocks import Block, Folded, Picture, Pictures, Text
from ood_lab.report.rendering.thumbnails import Pictures as Images
from ood_lab.report.shift.shift_tables import ID_TEST
from ood_lab.schema.shift_axes import LEVELS

_SIDE = 112
_SHOWN = 6
_MARGINAL = 12


@dataclass
class Thumbnails:
    """Pictures as data URIs; one that several detectors share is kept once."""

    pictures: Images
    uris: list[str] = field(default_factory=list)
    _numbers: dict[tuple[str, int], int | None] = field(default_factory=dict)

    def number(self, dataset: str, index: int) -> int | None:
        """Position of the picture in ``uris``; None where the image cannot be had."""
        key = (dataset, index)
        if key not in self._numbers:
            uri = self._encode(*key)
            self._numbers[key] = None if uri is None else len(self.uris)
            self.uris += [uri] if uri else []
        return self._numbers[key]

    def _encode(self, dataset: str, index: int) -> str | None:
        small = self.pictures.small(dataset, index, _SIDE)
        if small is None:
            return None
        buffer = io.BytesIO()
        small.save(buffer, "JPEG", quality=82)
        return "data:image/jpeg;base64," + base64.b64encode(buffer.getvalue()).decode()


def mistake_blocks(
    scores: pd.DataFrame,
    detectors: Sequence[str],
    sets: Sequence[str],
    classes: Sequence[str],
    thumbnails: Thumbnails,
) -> list[Folded]:
    """The most confident mistakes of every detector on the ID test set and the OOD ``sets``.

    ID images that are scored as most OOD, and OOD images scored as most ID, worst first.
    """
    test = scores[scores["dataset"] == ID_TEST].reset_index(drop=True)
    ood = scores[scores["dataset"].isin(sets)].reset_index(drop=True)

    def mistake(row: pd.Series, detector: str, others: np.ndarray, above: bool) -> Picture:
        value = row[detector]
        share = np.mean(others < value) if above else np.mean(others > value)
        who = f"{row['dataset']} #{row['index']}"
        label, predicted = (_class(classes, int(row.get(k, -1))) for k in ("label", "pred"))
        what = f"{label}, predicted {predicted}" if row["label"] >= 0 else f"predicted {predicted}"
        side = "above" if above else "below"
        whom = "OOD" if above else "ID"
        text = f"{who}: {what}; score {value:.4g}, {side} {100 * share:.0f}% of {whom}"
        return Picture(text, thumbnails.number(row["dataset"], int(row["index"])))

    found = []
    for detector in detectors:
        id_scores, ood_scores = test[detector].to_numpy(), ood[detector].to_numpy()
        highest = np.argsort(-id_scores, kind="stable")[:_SHOWN]
        lowest = np.argsort(ood_scores, kind="stable")[:_SHOWN]
        id_as_ood = [mistake(test.iloc[i], detector, ood_scores, above=True) for i in highest]
        ood_as_id = [mistake(ood.iloc[i], detector, id_scores, above=False) for i in lowest]
        strips = [
            Pictures(id_as_ood, "ID images scored as most OOD"),
            Pictures(ood_as_id, "OOD images scored as most ID"),
        ]
        found.append(Folded(detector, strips))
    return found


def marginal_blocks(
    scores: pd.DataFrame, shift: pd.Series, classes: Sequence[str], thumbnails: Thumbnails
) -> list[Block]:
    """The OOD images of the smallest semantic shift, with prediction and MSP (IS-OOD, figure 20).

    Args:
        scores: of the OOD images; ``msp`` may be missing.
        shift: their distance on the semantic axis, or ``semantic_level``; NaN = not known.
        classes: names of the ID classes.
        thumbnails: of the page.
    """
    items, by_level = [], shift.name == LEVELS[0]
    for place in np.argsort(shift.to_numpy(np.float64), kind="stable")[:_MARGINAL]:
        row, value = scores.iloc[place], shift.iloc[place]
        if np.isnan(value):
            break
        msp = f"; MSP {-row['msp']:.2f}" if "msp" in scores else ""
        who = f"{row['dataset']} #{row['index']}"
        where = f"level {value:g}" if by_level else f"distance {value:.3g}"
        text = f"{who}: predicted {_class(classes, int(row['pred']))}{msp}; {where}"
        items.append(Picture(text, thumbnails.number(row["dataset"], int(row["index"]))))
    how = "level: only levels are known" if by_level else "distance from ID train, as measured"
    return [Text(f"Ordered by semantic {how}."), Pictures(items)] if items else []


def _class(classes: Sequence[str], label: int) -> str:
    known = classes[label] if 0 <= label < len(classes) else f"class {label}"
    return known if label >= 0 else "no class"
