"""The verdict: the shift of each dataset, the best detector, and the next command.

It is made of rows of results, and computes none of them.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any

import pandas as pd

from ood_lab.common.english import counted
from ood_lab.metrics import BASELINE, FEWEST_OF_A_VERDICT, ranked
from ood_lab.report.rendering.blocks import Block, Folded, Text
from ood_lab.report.rendering.metric_definitions import DAGGER, MISSING
from ood_lab.report.rendering.sentences import listing, value_of
from ood_lab.report.rendering.table import (
    Cell,
    Column,
    Group,
    Head,
    Table,
    estimate_cell,
    name_cell,
    number_cell,
    table_of,
)
from ood_lab.report.verdict.cause_sentences import cause_sentences
from ood_lab.schema.results import of_kind
from ood_lab.schema.run_record import RunRecord
from ood_lab.schema.shift_axes import CLASS_UNITS, RATIO, SEVERITY

#: Severities of common corruptions.
_MOST_SEVERE = 5
#: FPR95 above which a detector is called weak.
WEAK = 0.5
#: Difference of AUROC above which images are too few to compare detectors.
_COARSE = 0.5
#: Rows of the table on a terminal, names that a sentence lists, and sentences that are shown first.
_ROWS, _NAMED, _SENTENCES = 8, 6, 8
_FPR95 = {
    "ood": "ID images flagged when 95% of OOD images are detected",
    "id": "OOD images accepted when 95% of ID images are accepted",
}


@dataclass(frozen=True)
class Verdict:
    """What a run found, in short.

    Attributes:
        rows: of kind ``verdict``, see :func:`ood_lab.metrics.verdict.verdict_of`.
        shift: one row per dataset and axis in units of ID data: ``dataset, encoder, axis, metric,
            value, ci_low, ci_high, n``; empty where nothing was measured.
        positive: class whose FPR95 it is.
        flagged: datasets that the check of the data has warned of; "test" is ID test.
        remarks: further sentences, on the data and on how the shift was measured.
        next: the next command, with what it does; None = there is none.
        causes: of kind ``cause``, see :func:`ood_lab.metrics.causes_of`.
    """

    rows: pd.DataFrame
    shift: pd.DataFrame = field(default_factory=pd.DataFrame)
    positive: str = "ood"
    flagged: Sequence[str] = ()
    remarks: Sequence[str] = ()
    next: tuple[str, str] | None = None
    causes: pd.DataFrame = field(default_factory=pd.DataFrame)

    @classmethod
    def of(cls, results: pd.DataFrame, record: RunRecord) -> Verdict:
        """The verdict of a run.

        Args:
            results: of all kinds.
            record: ``fpr95_positive, findings, verdict`` (``remarks, next``).
        """
        return cls(
            of_kind(results, "verdict"),
            shift_units(results),
            record.fpr95_positive or "ood",
            tuple(dict.fromkeys(s for finding in record.findings for s in finding.sets)),
            tuple(record.verdict.remarks),
            record.verdict.next,
            of_kind(results, "cause"),
        )

    @property
    def recommended(self) -> str | None:
        """The detector to use; None where none detects."""
        return next(iter(self._of("recommended")["detector"]), None)

    @property
    def best(self) -> tuple[str, ...]:
        """The detectors that may be the best, the highest mean AUROC first."""
        within = set(self._of("best_set").query("value == 1")["detector"])
        return tuple(name for name in self.ranking if name in within)

    @property
    def ranking(self) -> list[str]:
        """All detectors, the highest mean AUROC first."""
        rows = self._of("mean_auroc")
        return ranked(dict(zip(rows["detector"].astype(str), rows["value"], strict=True)))

    @property
    def detects(self) -> bool:
        """Whether any detector is significantly above chance."""
        rows = self._of("detects")
        return bool((rows.loc[rows["detector"].isna(), "value"] == 1).any())

    @property
    def named(self) -> str | None:
        """The detector whose numbers are shown: the recommended one, or the highest AUROC."""
        return next(iter(self._of("auroc")["detector"]), None)

    @cached_property
    def datasets(self) -> list[str]:
        """The least shifted first: by semantic shift, then by covariate shift, else as given."""
        names = [str(name) for name in self._of("auroc")["dataset"]]
        names += [n for n in dict.fromkeys(self.shift.get("dataset", ())) if not names]
        for metric in (SEVERITY, CLASS_UNITS):
            if len(self.shift):
                of = self.shift[self.shift["metric"] == metric].set_index("dataset")["value"]
                names.sort(key=lambda name: float(of.get(name, math.inf)))
        return names

    @property
    def sentences(self) -> list[str]:
        """The verdict in words, one number a sentence, the most important first."""
        return [
            *self._detector_sentences(),
            *cause_sentences(self.causes),
            *self._exceptions(),
            *self._limits(),
            *self.remarks,
        ]

    def __str__(self) -> str:
        """The sentences, one a line."""
        return "\n".join(self.sentences)

    def table(self, rows: int | None = None) -> Table:
        """Shift of every dataset, and what the named detector gets on it.

        Args:
            rows: at most so many, the least and the most shifted; None = all.
        """
        names, left_out = self.datasets, 0
        if rows is not None and len(names) > rows:
            left_out = len(names) - rows
            names = [*names[: rows - rows // 2], *names[len(names) - rows // 2 :]]
        columns = [Column(Head("OOD dataset", "ascending"), list(map(self._name, names)))]
        detection, shift = Group(f"detection by {self.named}"), Group("shift")
        for metric, title in (("auroc", "AUROC %"), ("fpr95", "FPR95 %")):
            of = self._of(metric).set_index("dataset")
            if len(of):
                cells = [estimate_cell(row) for row in of.loc[names].to_dict("records")]
                columns.append(Column(Head(title, "ascending"), cells, detection))
        columns += [Column(*of, shift) for of in self._shift_columns(names)]
        notes = list(self._notes())
        if left_out:
            notes.insert(0, f"{counted(left_out, 'dataset')} between these: see the report.")
        shifted = len(self.shift) and set(self.shift["metric"]) & {SEVERITY, CLASS_UNITS}
        caption = "Shift and detection by dataset" if len(self.shift) else "Detection by dataset"
        caption += " with 95% intervals" + ", the least shifted first" * bool(shifted)
        return table_of(caption, columns, notes=notes, spreads=True, split="groups")

    def blocks(self, page: bool = False, every: bool = False) -> list[Block]:
        """What a terminal ends with, and what a page begins with.

        Of many sentences the first, the others in a fold of the page; ``every``: all of them.
        """
        shown: list[Block] = []
        if self.datasets:
            brief = len(self.datasets) > _ROWS
            shown.append(self.table(_ROWS if brief else None))
            if brief and page:
                shown.append(Folded("All datasets", [self.table()], page_only=True))
        first = len(self.sentences) if every else _SENTENCES
        sentences = [Text(sentence, "answer") for sentence in self.sentences]
        shown += sentences[:first]
        if more := sentences[first:]:
            title = "How sure is this?"
            shown.append(
                Folded(title, more, page_only=True)
                if page
                else Text(f"{title} The report has {counted(len(more), 'more sentence')}.", "note")
            )
        if self.next:
            purpose, command = self.next
            shown += [Text(f"Next: {purpose}"), Text(command, "command")]
        return shown

    def values(self) -> dict[str, float | str]:
        """The verdict for a dashboard: ``verdict/recommended``, ``verdict/<dataset>/semantic``."""
        found: dict[str, float | str] = {
            "verdict/recommended": self.recommended or "none",
            "verdict/best": ", ".join(self.best),
            "verdict/detects": float(self.detects),
        }
        for metric in ("auroc", "fpr95"):
            if (mean := self.mean(metric)) is not None:
                found[f"verdict/{metric}"] = float(mean["value"])
            for row in self._of(metric).to_dict("records"):
                found[f"verdict/{row['dataset']}/{metric}"] = float(row["value"])
        for row in self.shift.to_dict("records"):
            key = row["axis"] if row["axis"] != "distance" or self._split else row["metric"]
            key = "semantic" if key == "distance" else key
            found[f"verdict/{row['dataset']}/{key}"] = float(row["value"])
        for row in self.causes.to_dict("records"):
            key = row["statistic"].replace(" ", "_")
            matched = "/matched" if row["metric"] == "matched_auroc" else ""
            found[f"verdict/{row['dataset']}/causes/{key}{matched}"] = float(row["value"])
        return {key: value for key, value in found.items() if value == value}

    # The rows

    @property
    def _split(self) -> bool:
        """Whether covariate shift was measured, too; else there is one distance."""
        return "covariate" in set(self.shift.get("axis", ()))

    @cached_property
    def _by_metric(self) -> Mapping[Any, pd.DataFrame]:
        return dict(iter(self.rows.groupby("metric")))

    def _of(self, metric: str) -> pd.DataFrame:
        return self._by_metric.get(metric, self.rows.iloc[:0])

    def mean(self, metric: str) -> Mapping[Any, Any] | None:
        """``value, ci_low, ci_high`` of the named detector: mean over the datasets that count."""
        rows = self._of(f"mean_{metric}")
        rows = rows[rows["detector"] == self.named]
        return rows.iloc[0].to_dict() if len(rows) else None

    @cached_property
    def left(self) -> dict[str, str]:
        """Datasets that do not count, and why: ``flagged`` or ``too_few``."""
        return {
            str(name): why for why in ("flagged", "too_few") for name in self._of(why)["dataset"]
        }

    @property
    def n_counted(self) -> int:
        """Number of datasets that the means are over."""
        return len(self._of("auroc")) - len(self.left)

    @cached_property
    def _alike(self) -> dict[str, str]:
        """Detectors that share their ranking of all images with others, and the names of all."""
        rows = self._of("ranking")
        found: dict[str, str] = {}
        for _, names in rows.groupby("value")["detector"]:
            joined = " = ".join(name for name in self.ranking if name in set(names))
            found |= dict.fromkeys(names, joined)
        return found

    # The words

    def _detector_sentences(self) -> Iterator[str]:
        mean = self.mean("auroc")
        if mean is None:
            return
        name = self.named
        several, n = len(self.ranking) > 1, self.n_counted
        where = f"{'simultaneous ' * several}95% interval"
        where = f"mean of {n} datasets, {where}" if n > 1 else where
        if self.recommended:
            yield f"Recommended detector: {name}."
            if several:
                yield self._why()
        elif math.isnan(mean["ci_low"]):
            yield "No detector is recommended: there are too few images for an interval."
        else:
            yield "No detector detects these datasets: no AUROC is significantly above 50%."
        of = "" if self.recommended or not several else f" of {name}, the first by AUROC,"
        rests = "" if math.isnan(mean["ci_low"]) else f": {where}"
        yield f"AUROC{of} {value_of(mean)}{rests}."
        fpr95 = self.mean("fpr95")
        if fpr95 is not None and self.recommended:
            yield f"FPR95 {value_of(fpr95)}: {_FPR95[self.positive]}."
            if fpr95["value"] > WEAK:
                yield f"This is weak: FPR95 of {name} is above 50%."
        if self.recommended and name != BASELINE:
            yield from self._behind(BASELINE, f"the baseline {BASELINE}")

    def _why(self) -> str:
        names = list(dict.fromkeys(self._alike.get(name, name) for name in self.best))
        if len(names) == 1:
            return f"Mean AUROC of {names[0]} is significantly higher than that of all others."
        return (
            f"{len(names)} detectors may be the best: {listing(names)}; {self.named} is the "
            "cheapest of them, then highest in AUROC."
        )

    def _behind(self, other: str, words: str) -> Iterator[str]:
        rows = self._of("behind")
        for row in rows[rows["detector"] == other].to_dict("records"):
            if row["ci_low"] > 0:
                yield f"AUROC of {words} is {_points(row)} lower."
            elif row["ci_high"] < 0:
                yield f"AUROC of {words} is {_points(row, -1)} higher."
            else:
                yield f"AUROC of {words} is not significantly different."

    def _exceptions(self) -> Iterator[str]:
        above = self._of("above_chance")
        missed = [str(name) for name in above.loc[above["value"] == 0, "dataset"]]
        if missed and self.recommended:
            yield f"AUROC of {self.named} is not significantly above 50% on {listing(missed)}."
        for why, words in (
            ("flagged", f"the data check warns of {{}} ({DAGGER})"),
            ("too_few", f"fewer than {FEWEST_OF_A_VERDICT} images in {{}}"),
        ):
            if names := [name for name, reason in self.left.items() if reason == why]:
                one = "it does" if len(names) == 1 else "they do"
                text = words.format(listing(names))
                yield f"{text[0].upper()}{text[1:]}: {one} not count in the means."
        counted_in = [n for n in self.datasets if n in self.flagged and n not in self.left]
        if counted_in and len(self.rows):
            warned = listing(counted_in)
            yield f"The data check warns of {warned} ({DAGGER}), which the means count."
        if "test" in self.flagged:
            yield f"The data check warns of the ID test images ({DAGGER}): see its warning."
        for row in self._of("lead_of_other").to_dict("records")[:_NAMED]:
            yield f"On {row['dataset']}, AUROC of {row['detector']} is {_points(row)} higher."

    def _limits(self) -> Iterator[str]:
        """What the images do not show."""
        inverted = self._of("inverted").query("value == 1")["detector"]
        if len(inverted):
            verb = "rates" if len(inverted) == 1 else "rate"
            yield (
                f"Inverted: {listing(list(inverted))} {verb} the OOD images as more normal than "
                "your test images (mean AUROC below 50%)."
            )
        mean, resolution = self.mean("auroc"), self._of("resolution")["value"]
        if mean is not None and len(resolution) and resolution.gt(0).all():
            unit = "images" if mean["unit"] == "image" else "groups of images"
            images = f"{int(mean['n_id']):,} ID test and {int(mean['n_ood']):,} OOD {unit}"
            least = float(resolution.iloc[0])
            if least < _COARSE:
                least_points = f"{100 * least:.1f} points"
                yield f"AUROC differences below {least_points} are not significant ({images})."
            else:
                yield f"There are too few images to compare detectors ({images})."

    def _notes(self) -> Iterator[str]:
        metrics = set(self.shift.get("metric", ()))
        if CLASS_UNITS in metrics:
            head = "semantic" if self._split else "distance"
            yield f"{head}: 0 = ID test images, 1 = one held-out class of yours."
        if SEVERITY in metrics:
            yield (
                f"covariate: 0 = ID test images, 1 to {_MOST_SEVERE} = corruption severity; "
                f"beyond: times the distance at {_MOST_SEVERE}."
            )
        if len(self.ranking) > 1:
            yield "Intervals here are of one number each; simultaneous ones hold for all detectors."
        if RATIO in metrics:
            yield "x = times the median distance of the ID test images."

    # The table

    def _name(self, name: str) -> Cell:
        mark = DAGGER if name in self.flagged else ""
        return name_cell(f"{name}{mark}", self.datasets.index(name))

    def _shift_columns(self, names: Sequence[str]) -> Iterator[tuple[Head, list[Cell]]]:
        if not len(self.shift):
            return
        rows = {(r["dataset"], r["axis"], r["metric"]): r for r in self.shift.to_dict("records")}
        wanted = {
            ("semantic", CLASS_UNITS): "semantic",
            ("distance", CLASS_UNITS): "semantic" if self._split else "distance",
            ("covariate", SEVERITY): "covariate",
        }
        for (axis, metric), title in wanted.items():
            of = [rows.get((n, axis, metric)) or rows.get((n, axis, RATIO)) for n in names]
            if any(of):
                yield Head(title, "ascending"), list(map(_unit_cell, of))


def shift_units(results: pd.DataFrame) -> pd.DataFrame:
    """The shift of datasets in units of ID data, of a results table of all kinds."""
    rows = of_kind(results, "shift")
    rows = rows[rows["metric"].isin([CLASS_UNITS, SEVERITY, RATIO])]
    if not len(rows):
        return pd.DataFrame()
    columns = ["dataset", "encoder", "axis", "metric", "value", "ci_low", "ci_high", "n"]
    return rows[columns].reset_index(drop=True)


def _unit_cell(row: Mapping[Any, Any] | None) -> Cell:
    if row is None or math.isnan(row["value"]):
        return Cell(MISSING)
    value, low, high = (float(row[key]) for key in ("value", "ci_low", "ci_high"))
    times = "x" if row["metric"] == RATIO else ""
    if row["metric"] == SEVERITY and value > _MOST_SEVERE:
        start = _severity(low) if low <= _MOST_SEVERE else f"{low / _MOST_SEVERE:.1f}x"
        interval = "" if math.isnan(low) else f"{start} to {high / _MOST_SEVERE:.1f}x"
        return Cell(_severity(value), value, interval)
    return number_cell(value, low, high, lambda v: f"{round(v, 1) + 0.0:.1f}{times}")


def _severity(value: float) -> str:
    if value <= _MOST_SEVERE:
        return f"{value:.1f}"
    return f">{_MOST_SEVERE} ({value / _MOST_SEVERE:.1f}x)"


def _points(row: Mapping[Any, Any], sign: int = 1) -> str:
    ends = sorted(sign * 100 * row[key] for key in ("ci_low", "ci_high"))
    return f"{sign * 100 * row['value']:.1f} points [{ends[0]:.1f}, {ends[1]:.1f}]"
