"""What is found of new images: a table of the verdicts, and sentences."""

from __future__ import annotations

import logging
import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import pandas as pd
from numpy.typing import NDArray

from ood_lab.common.english import counted
from ood_lab.common.grouping import grouped
from ood_lab.metrics import named_causes, wilson_interval
from ood_lab.report.rendering.blocks import Block, Text, texts
from ood_lab.report.rendering.metric_definitions import p_text
from ood_lab.report.rendering.prose import sentences
from ood_lab.report.rendering.summary import show_blocks
from ood_lab.report.rendering.table import (
    Cell,
    Head,
    NumberFormat,
    Table,
    count_cell,
    name_cell,
    number_cell,
)
from ood_lab.schema.arrays import Floats
from ood_lab.schema.results import Row
from ood_lab.schema.run_record import Facts, RunRecord

log = logging.getLogger(__name__)
#: Rows of the table of images.
FIRST = 20
#: Detectors that have a column of their own, or are named; more do not fit next to each other.
DETECTORS = 6
#: Level of the tests, and the share of ID images that a group that is like ID exceeds at most.
ALPHA, _ALIKE = 0.05, 0.6
_WORDS = "detection/predictions.j2"
#: A head, the fact that the column needs, and its cell of the facts of a detector.
_Column = tuple[Head, str, Callable[[Facts], Cell]]


@dataclass(frozen=True)
class Judged:
    """What was found of some images.

    Attributes:
        table: the rows that are shown, index = number of the image; of few images, all. The
            :data:`FIRST` are among them, and of every detector the :data:`EXTREMES` at both ends.
        images: all there are.
        unreadable: those that cannot be read.
        flagged: by detector, how many.
        sample: the rows whose scores are drawn; None = those of ``table``.
        file: with everything.
        groups: of the drawn images that can be read, by name; None = each is its own.
    """

    table: pd.DataFrame
    images: int
    unreadable: int
    flagged: Mapping[str, int]
    sample: pd.DataFrame | None
    file: str
    groups: NDArray[np.object_] | None = None

    @property
    def rows(self) -> pd.DataFrame:
        """The drawn images that can be read."""
        rows = self.table if self.sample is None else self.sample
        return rows[rows["error"] == ""]

    def scores(self, name: str) -> Floats:
        """Of a detector, of the drawn images that can be read."""
        return self.rows[f"{name}_score"].to_numpy(np.float64)

    @property
    def read(self) -> int:
        """Images that can be read."""
        return self.images - self.unreadable


@dataclass(frozen=True)
class PredictionVerdict:
    """What was found of new images that can be read, for the words of ``predictions.j2``.

    Attributes:
        n: images that can be read.
        record: of the run.
    """

    n: int
    record: RunRecord

    @property
    def detectors(self) -> Mapping[str, Facts]:
        """Facts by detector."""
        return self.record.detectors

    @property
    def group(self) -> list[str]:
        """Detectors by which the images differ from ID as a group."""
        return self._significant("group_p_value")

    @property
    def more(self) -> list[str]:
        """Detectors that flag significantly more images than by chance."""
        return self._significant("flagged_p_value")

    def _significant(self, test: str) -> list[str]:
        return [name for name, of in self.detectors.items() if of[test] <= ALPHA]

    @property
    def group_only(self) -> list[str]:
        """Detectors in :attr:`group` that are not in :attr:`more`."""
        return [name for name in self.group if name not in self.more]

    @property
    def more_only(self) -> list[str]:
        """Detectors in :attr:`more` that are not in :attr:`group`."""
        return [name for name in self.more if name not in self.group]

    @property
    def least(self) -> str:
        """The detector with the smallest p-value of more flagged images than by chance."""
        return min(self.detectors, key=lambda name: self.detectors[name]["flagged_p_value"])

    @property
    def alike(self) -> bool:
        """Whether by every detector the group is at most a little more unusual than ID."""
        ends = [of["group_ci_high"] for of in self.detectors.values()]
        return all(end is not None and end < _ALIKE for end in ends)

    @property
    def groups(self) -> int | None:
        """Groups of the new images; None where each is its own."""
        return next(iter(self.detectors.values()))["new_groups"]

    @property
    def calibrations(self) -> dict[tuple[str, int, int], list[str]]:
        """Which ID images new ones are compared with: way, images and groups → detectors."""
        return grouped(
            ((of["calibration"], of["held_out"], of["groups"]), name)
            for name, of in self.detectors.items()
        )

    @property
    def causes(self) -> Sequence[Row]:
        """Statistics in which the images differ, the strongest first."""
        causes = pd.DataFrame(self.record.causes)
        return named_causes(causes).to_dict("records") if len(causes) else []

    @property
    def accuracy(self) -> dict[str, float] | None:
        """ID accuracy with its interval; None where no label is known."""
        value = self.record.id_accuracy
        if value is None:
            return None
        low, high = wilson_interval(value, self.record.id_accuracy_independent)
        return {"value": value, "ci_low": low, "ci_high": high, "n": self.record.id_accuracy_n}


def show_predictions(
    images: Judged, passed: Sequence[str], record: RunRecord, folder: Path
) -> list[Block]:
    """Prints the summary of new images, and keeps it to be shown again.

    Args:
        images: what was found.
        passed: what was passed over, in sentences.
        record: of the run.
        folder: of the run.
    """
    title = f"{counted(images.images, 'image')}, {images.unreadable:,} of them unreadable"
    if passed:
        title += "; other files were passed over (see the warning above)"
    verdict = PredictionVerdict(images.read, record)
    blocks: list[Block] = [
        *texts(sentences(_WORDS, "answer", verdict), "answer"),
        _verdict_table(title, record.detectors),
        *map(Text, sentences(_WORDS, "details", verdict)),
    ]
    show_blocks(blocks, folder, "predict")
    log.info("predictions: %s", folder / images.file)
    return blocks


def _verdict_table(caption: str, facts: Mapping[str, Facts]) -> Table:
    """A row a detector: its threshold, how many images it flags, and whether that is chance."""
    columns = [
        _share(Head("higher than", note="ID images"), "group_exceeded", "group"),
        (Head("ID", note="images"), "held_out", lambda of: count_cell(of["held_out"])),
        _share(Head("alpha"), "alpha", show="{:g}".format),
        (Head("OOD if", note="score"), "rule", _rule),
        _share(Head("FPR", note="held-out"), "fpr", "fpr"),
        _share(Head("TPR", note="OOD"), "tpr"),
        (Head("flagged", note="as OOD"), "flagged", _flagged),
        _share(Head("by", note="chance"), "flagged_by_chance", show="{:,.1f}".format),
        (Head("p", "ascending", note="of more"), "flagged_p_value", _p_of_more),
    ]
    present = [c for c in columns if any(of.get(c[1]) is not None for of in facts.values())]
    heads = [Head("detector", "ascending"), *(head for head, _, _ in present)]
    rows = [[name_cell(name), *(cell(of) for _, _, cell in present)] for name, of in facts.items()]
    notes = ["p of more: one-sided test of each detector, not corrected for their number."]
    return Table(caption, heads, rows, notes=notes)


def _share(head: Head, key: str, ends: str = "", show: NumberFormat = "{:.1%}".format) -> _Column:
    """A number, with the interval whose ends have names that begin with ``ends``."""

    def cell(of: Facts) -> Cell:
        keys = (key, f"{ends}_ci_low", f"{ends}_ci_high")
        value, low, high = (_number(of.get(name)) for name in keys)
        return number_cell(value, low, high, show)

    return head, key, cell


def _p_of_more(of: Facts) -> Cell:
    return Cell(p_text(of["flagged_p_value"]), of["flagged_p_value"])


def _flagged(of: Facts) -> Cell:
    return Cell(f"{of['flagged']:,} ({of['share_flagged']:.1%})", of["flagged"])


def _number(value: float | None) -> float:
    return math.nan if value is None else value


def _rule(of: Facts) -> Cell:
    """``> 0.58``, ``>= 0.58``, or ``never``."""
    score = of["threshold_score"]
    rule = str(of["rule"]).removeprefix("score ")
    text = "never" if score is None else rule.replace("threshold", f"{score:.4g}")
    return Cell(text, _number(score))
