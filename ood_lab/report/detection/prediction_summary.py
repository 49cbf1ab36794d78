"""What is found of new images: a table of the verdicts, and sentences."""

from __future__ import annotations

import logging
import math
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
from numpy.typing import NDArray

from ood_lab.common.english import counted, listed
from ood_lab.common.grouping import grouped
from ood_lab.metrics import wilson_interval
from ood_lab.report.rendering.blocks import Block, Text
from ood_lab.report.rendering.metric_definitions import p_text
from ood_lab.report.rendering.summary import show_blocks
from ood_lab.report.rendering.table import Cell, Head, Table, count_cell, name_cell, number_cell
from ood_lab.report.verdict.cause_sentences import cause_sentence
from ood_lab.schema.arrays import Floats
from ood_lab.schema.run_record import RunRecord

log = logging.getLogger(__name__)
#: Rows of the table of images.
FIRST = 20
#: Detectors that have a column of their own, or are named; more do not fit next to each other.
DETECTORS = 6
_SIGNIFICANT = 0.05
_SHARE = "{:.1%}".format


@dataclass(frozen=True)
class Judged:
    """What was found of some images.

    Attributes:
        table: the rows that are shown, index = number of the image; of few images, all. The
            :data:`FIRST` are among them, and of every detector the :data:`EXTREMES` at both ends.
        images: all there are.
        unreadable: those that cannot be read.
        flagged: by detector, how many.
        drawn: the rows whose scores are drawn; None = those of ``table``.
        file: with everything.
        groups: of the drawn images that can be read, by name; None = each is its own.
    """

    table: pd.DataFrame
    images: int
    unreadable: int
    flagged: Mapping[str, int]
    drawn: pd.DataFrame | None
    file: str
    groups: NDArray[np.object_] | None = None

    @property
    def rows(self) -> pd.DataFrame:
        """The drawn images that can be read."""
        rows = self.table if self.drawn is None else self.drawn
        return rows[rows["error"] == ""]

    def scores(self, name: str) -> Floats:
        """Of a detector, of the drawn images that can be read."""
        return self.rows[f"{name}_score"].to_numpy(np.float64)

    @property
    def read(self) -> int:
        """Images that can be read."""
        return self.images - self.unreadable


def show_predictions(
    judged: Judged, passed: Sequence[str], record: RunRecord, folder: Path
) -> list[Block]:
    """Prints the summary of new images, and keeps it to be shown again.

    Args:
        judged: what was found.
        passed: what was passed over, in sentences.
        record: of the run.
        folder: of the run.
    """
    title = f"{counted(judged.images, 'image')}, {judged.unreadable:,} of them unreadable"
    if passed:
        title += "; other files were passed over (see the warning above)"
    blocks: list[Block] = [
        *(Text(line, "answer") for line in _verdict_sentences(judged.read, record)),
        _verdict_table(title, record.detectors),
    ]
    show_blocks(blocks, folder, "predict")
    log.info("predictions: %s", folder / judged.file)
    return blocks


def _verdict_table(caption: str, found: Mapping[str, Mapping[str, Any]]) -> Table:
    """A row a detector: its threshold, how many images it flags, and whether that is chance."""
    columns: list[tuple[Head, str, Callable[[Mapping[str, Any]], Cell]]] = [
        (Head("higher than", note="ID images"), "group_exceeded", _group),
        (Head("ID", note="images"), "held_out", lambda of: count_cell(of["held_out"])),
        (Head("alpha"), "alpha", lambda of: number_cell(_number(of["alpha"]), show="{:g}".format)),
        (Head("OOD if", note="score"), "rule", _rule),
        (Head("FPR", note="held-out"), "fpr", _false_positives),
        (Head("TPR", note="OOD"), "tpr", _true_positives),
        (Head("flagged", note="as OOD"), "flagged", _flagged),
        (Head("by", note="chance"), "flagged_by_chance", _by_chance),
        (Head("p", "ascending", note="of more"), "flagged_p_value", _p_of_more),
    ]
    known = [c for c in columns if any(of.get(c[1]) is not None for of in found.values())]
    heads = [Head("detector", "ascending"), *(head for head, _, _ in known)]
    rows = [[name_cell(name), *(cell(of) for _, _, cell in known)] for name, of in found.items()]
    notes = ["p of more: one-sided test of each detector, not corrected for their number."]
    return Table(caption, heads, rows, notes=notes)


def _false_positives(of: Mapping[str, Any]) -> Cell:
    ends = (_number(of.get("fpr_ci_low")), _number(of.get("fpr_ci_high")))
    return number_cell(_number(of.get("fpr")), *ends, show=_SHARE)


def _true_positives(of: Mapping[str, Any]) -> Cell:
    return number_cell(_number(of.get("tpr")), show=_SHARE)


def _group(of: Mapping[str, Any]) -> Cell:
    """The share of ID images that new ones exceed, with its interval."""
    ends = (_number(of["group_ci_low"]), _number(of["group_ci_high"]))
    return number_cell(_number(of["group_exceeded"]), *ends, show=_SHARE)


def _by_chance(of: Mapping[str, Any]) -> Cell:
    return number_cell(of["flagged_by_chance"], show="{:,.1f}".format)


def _p_of_more(of: Mapping[str, Any]) -> Cell:
    return Cell(p_text(of["flagged_p_value"]), of["flagged_p_value"])


def _flagged(of: Mapping[str, Any]) -> Cell:
    return Cell(f"{of['flagged']:,} ({of['share_flagged']:.1%})", of["flagged"])


def _number(value: float | None) -> float:
    return math.nan if value is None else value


def _rule(of: Mapping[str, Any]) -> Cell:
    """``> 0.58``, ``>= 0.58``, or ``never``."""
    score = of["threshold_score"]
    rule = str(of["rule"]).removeprefix("score ")
    text = "never" if score is None else rule.replace("threshold", f"{score:.4g}")
    return Cell(text, _number(score))


def _verdict_sentences(n: int, record: RunRecord) -> list[str]:
    """What was found of n images that can be read, a number a sentence."""
    detectors: Mapping[str, Mapping[str, Any]] = record.detectors
    groups = [
        f"{of['group_exceeded']:.1%}{_interval(of)} by {name} (p = {_p(of['group_p_value'])})"
        for name, of in detectors.items()
    ]
    lines = [
        "In the mean, a new image is more unusual than this share of the ID images (50% = alike; "
        f"one-sided rank test): {_first(groups)}."
    ]
    flags = [
        f"{name} flags {of['flagged']:,} ({of['share_flagged']:.0%})"
        for name, of in detectors.items()
    ]
    groups = next(iter(detectors.values()))["new_groups"]
    which = counted(n, "image") + ("" if groups is None else f" in {counted(groups, 'group')}")
    lines.append(f"Of {which}, {_first(flags)} as OOD.")
    if alphas := sorted({of["alpha"] for of in detectors.values() if of["alpha"] is not None}):
        by_chance = [f"{alpha * n:,.1f} (alpha {alpha:g} × {n:,})" for alpha in alphas]
        lines.append(f"Expected by chance, if all were ID: at most {listed(by_chance, 'or')}.")
    lines += _thresholds(n, record)
    more = {name: of for name, of in detectors.items() if of["flagged_p_value"] <= _SIGNIFICANT}
    if more:
        tests = [f"{name} (p = {_p(of['flagged_p_value'])})" for name, of in more.items()]
        lines.append(f"Significantly more than by chance (one-sided test): {_first(tests)}.")
    else:
        (least, of), *_ = sorted(detectors.items(), key=lambda item: item[1]["flagged_p_value"])
        who = "This is not" if len(detectors) == 1 else "No number is"
        smallest = f"p = {_p(of['flagged_p_value'])}"
        smallest += "" if len(detectors) == 1 else f" of {least} is the smallest"
        lines.append(f"{who} significantly more than by chance (one-sided test, {smallest}).")
    group = [name for name, of in detectors.items() if of["group_p_value"] <= _SIGNIFICANT]
    if only := [name for name in group if name not in more]:
        lines.append(
            f"By {_first(only)}, the images differ from ID as a group, though hardly one is so "
            "unusual that it is flagged."
        )
    if only := [name for name in more if name not in group]:
        lines.append(
            f"By {_first(only)}, single images differ from ID, though the group as a whole does "
            "not."
        )
    causes = pd.DataFrame(record.causes)
    if len(causes):
        of_group = cause_sentence(causes, "images", "As a group, the images are", "your ID images")
        lines += [of_group] if of_group else []
    lines += _calibration(detectors)
    if record.id_accuracy is not None:
        accuracy, labelled = record.id_accuracy, record.id_accuracy_n
        low, high = wilson_interval(accuracy, record.id_accuracy_independent)
        lines.append(
            f"ID accuracy of the network: {accuracy:.1%} [{low:.1%}, {high:.1%}] on "
            f"{counted(labelled, 'held-out ID image')}."
        )
    return lines


def _interval(of: Mapping[str, Any]) -> str:
    if of["group_ci_low"] is None:
        return ""
    return f" [{of['group_ci_low']:.1%}, {of['group_ci_high']:.1%}]"


def _calibration(detectors: Mapping[str, Mapping[str, Any]]) -> Iterator[str]:
    """Which ID images new ones are compared with."""
    keys = "calibration", "held_out", "groups"
    ways = grouped((tuple(of[key] for key in keys), name) for name, of in detectors.items())
    for (way, n, groups), names in ways.items():
        images = counted(n, "ID image")
        images += "" if n == groups else f" in {counted(groups, 'group')}, each of weight one"
        itself = "it" if n == groups else "its group"
        of_all = "" if len(ways) == 1 else f" of {_first(names)}"
        how = (
            "which the fit did not see"
            if way == "held-out"
            else f"each scored by a fit without {itself} ({way}); the fit used is of all"
        )
        yield f"p-values{of_all} are ranks among {images}, {how}."


def _thresholds(n: int, record: RunRecord) -> list[str]:
    """What is known of thresholds that are given or made of OOD images."""
    given = {name: of for name, of in record.detectors.items() if of["alpha"] is None}
    if not given:
        return []
    lines = []
    if source := record.threshold_from:
        sets, images = list(source["ood"]), sum(source["ood"].values())
        which = f"{'dataset' if len(sets) == 1 else 'datasets'} {listed(sets)}"
        reached = [f"{of['tpr']:.1%} by {name}" for name, of in given.items()]
        lines.append(
            f"TPR of at least {source['tpr']:g} on {counted(images, 'image')} of the OOD {which}: "
            f"{_first(reached)}."
        )
    rates = [
        f"{name} {of['fpr']:.1%} [{of['fpr_ci_low']:.1%}, {of['fpr_ci_high']:.1%}] "
        f"(n = {of['groups']:,})"
        for name, of in given.items()
    ]
    lines.append(f"FPR on held-out ID images at this threshold: {_first(rates)}.")
    chance = [f"{of['flagged_by_chance']:,.1f} by {name}" for name, of in given.items()]
    lines.append(f"Expected by chance, if all were ID (FPR × {n:,}): {_first(chance)}.")
    return lines


def _first(texts: Sequence[str]) -> str:
    """The first detectors; a table has the others."""
    more = len(texts) - DETECTORS
    return listed([*texts[:DETECTORS], *([f"{more} more in the table"] if more > 0 else [])])


def _p(value: float) -> str:
    return f"{value:.2g}" if value >= 1e-4 else f"{value:.0e}"
