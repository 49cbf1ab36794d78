"""The verdict: the shift of each dataset, the best detector, and the next command.

It is made of rows of results, and computes none of them. Its words are in ``words.j2``.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from functools import cached_property

import pandas as pd

from ood_lab.common.english import counted, listed
from ood_lab.common.grouping import grouped
from ood_lab.metrics import BASELINE, FEWEST_OF_A_VERDICT, named_causes, ranked, strongest_first
from ood_lab.report.rendering.blocks import Block, Folded, Text, texts
from ood_lab.report.rendering.metric_definitions import DAGGER, MISSING, fpr95_sentence, percent
from ood_lab.report.rendering.prose import differs, listing, sentences
from ood_lab.report.rendering.table import (
    Cell,
    Column,
    Group,
    Head,
    Table,
    cut,
    estimate_cell,
    mean_cell,
    name_cell,
    number_cell,
    plain_table,
    table_of,
)
from ood_lab.schema.image_columns import CLASS_UNITS, RATIO, SEVERITY
from ood_lab.schema.results import Row, of_kind
from ood_lab.schema.run_record import RunRecord

#: Template of the sentences.
WORDS = "verdict/words.j2"
#: Severities of common corruptions.
_MOST_SEVERE = 5
#: FPR95 above which a detector is called weak.
WEAK = 0.5
#: Rows of the table on a terminal, detectors that are better on a dataset, and sentences behind
#: the answer that are shown first.
_ROWS, _LEADS, _DETAILS = 8, 6, 8
#: Causes of a dataset that a sentence names, datasets that have one, and sentences of an answer.
_NAMED, _DATASETS, _DIFFERENCES = 2, 3, 2
#: Of the verdict over runs: rows on a terminal, its width, and the fewest letters of a name there.
_BOARD_ROWS, _WIDTH, _LETTERS = 10, 80, 16
#: Columns of a mean over seeds, and what their names end with in a verdict over runs.
STATISTICS = {"value": "", "seed_std": "_std", "sampling_half_width": "_half_width"}
_SHIFT = ["dataset", "encoder", "axis", "metric", "value", "ci_low", "ci_high", "n"]


class Verdict:
    """What a run found, in short.

    Args:
        results: of all kinds.
        record: ``fpr95_positive, findings, detectors, verdict`` (``remarks, next``).

    Attributes:
        rows: of kind ``verdict``, see :func:`ood_lab.metrics.verdict.verdict_of`.
        shift: one row per dataset and axis in units of ID data: ``dataset, encoder, axis, metric,
            value, ci_low, ci_high, n``; empty where nothing was measured.
        causes: of kind ``cause``, see :func:`ood_lab.metrics.causes_of`.
        positive: class whose FPR95 it is.
        flagged: datasets that the check of the data has warned of; "test" is ID test.
        remarks: further sentences, on the data and on how the shift was measured.
        next: the next command, with what it does; None = there is none.
        lost: the network is no better than chance, so that no detector has a verdict.
    """

    def __init__(self, results: pd.DataFrame, record: RunRecord | None = None) -> None:
        record = record or RunRecord()
        columns = dict.fromkeys([*results, "detector", "dataset"])  # where none was scored, too
        self.rows = of_kind(results, "verdict").reindex(columns=list(columns))
        shift = of_kind(results, "shift").reindex(columns=_SHIFT)
        units = shift["metric"].isin([CLASS_UNITS, SEVERITY, RATIO])
        self.shift = shift[units].reset_index(drop=True)
        self.causes = of_kind(results, "cause")
        self.positive = record.fpr95_positive or "ood"
        self.flagged = [name for finding in record.findings for name in finding.sets]
        self.remarks, self.next = record.verdict.remarks, record.verdict.next
        self.lost = bool(record.detectors) and self.rows.empty

    @property
    def recommended(self) -> str | None:
        """The detector to use; None where none detects."""
        return next(iter(self._of("recommended")["detector"]), None)

    @cached_property
    def best(self) -> tuple[str, ...]:
        """The detectors that may be the best, the highest mean AUROC first."""
        within = set(self._of("best_set").query("value == 1")["detector"])
        return tuple(name for name in self.ranking if name in within)

    @cached_property
    def ranking(self) -> list[str]:
        """All detectors, the highest mean AUROC first."""
        rows = self._of("mean_auroc")
        return ranked(dict(zip(rows["detector"].astype(str), rows["value"], strict=True)))

    @cached_property
    def detects(self) -> bool:
        """Whether any detector is significantly above chance."""
        rows = self._of("detects")
        return bool((rows.loc[rows["detector"].isna(), "value"] == 1).any())

    @cached_property
    def named(self) -> str | None:
        """The detector whose numbers are shown: the recommended one, or the highest AUROC."""
        return next(iter(self._of("auroc")["detector"]), None)

    @cached_property
    def datasets(self) -> list[str]:
        """The least shifted first: by semantic shift, then by covariate shift, else as given."""
        names = [str(name) for name in self._of("auroc")["dataset"]]
        names = names or list(self.shift["dataset"].unique())
        for metric in (SEVERITY, CLASS_UNITS):
            of = self.shift[self.shift["metric"] == metric].set_index("dataset")["value"]
            names.sort(key=lambda name: float(of.get(name, math.inf)))
        return names

    @property
    def answer(self) -> list[str]:
        """The verdict for a person without statistics."""
        return sentences(WORDS, "answer", self)

    @property
    def sentences(self) -> list[str]:
        """The verdict in words: the answer, then one number a sentence."""
        return [*self.answer, *sentences(WORDS, "details", self)]

    def __str__(self) -> str:
        """The sentences, one a line."""
        return "\n".join(self.sentences)

    def table(self, rows: int | None = None, intervals: bool = True) -> Table:
        """Shift of every dataset, and what the named detector gets on it.

        Args:
            rows: at most so many, the least and the most shifted; None = all.
            intervals: of the shift, too, for which a terminal has no room.
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
                columns.append(Column(Head(title, "ascending", group=detection), cells))
        for title, cells in self._shift_columns(names):
            kept = cells if intervals else [Cell(cell.text, cell.sort) for cell in cells]
            columns.append(Column(Head(title, "ascending", group=shift), kept))
        notes = sentences(WORDS, "notes", self)
        if left_out:
            notes.insert(0, f"{counted(left_out, 'dataset')} between these: see the report.")
        shifted = self.units & {SEVERITY, CLASS_UNITS}
        caption = "Shift and detection by dataset" if len(self.shift) else "Detection by dataset"
        caption += " with 95% intervals" + ", the least shifted first" * bool(shifted)
        return table_of(caption, columns, notes=notes, spreads=True)

    def blocks(self, page: bool = False, full: bool = False) -> list[Block]:
        """What a terminal ends with, and what a page begins with.

        A page, and a terminal that shows ``full`` sentence, have the causes. Of many sentences a
        page folds the last.
        """
        shown: list[Block] = [*texts(self.answer, "answer")]
        if self.datasets:
            shown.append(self.table(_ROWS, page or full))
            if page and len(self.datasets) > _ROWS:
                shown.append(Folded("All datasets", [self.table()], page_only=True))
        details = [*map(Text, sentences(WORDS, "details", self, causes=page or full))]
        first = _DETAILS if page else len(details)
        shown += details[:first]
        if details[first:]:
            shown.append(Folded("How sure is this?", details[first:], page_only=True))
        if self.next:
            purpose, command = self.next
            shown += [Text(f"Next: {purpose}", "next"), Text(command, "command")]
        return shown

    def values(self) -> dict[str, float | str]:
        """The verdict for a dashboard: ``verdict/recommended``, ``verdict/<dataset>/semantic``."""
        values: dict[str, float | str] = {
            "verdict/recommended": self.recommended or "none",
            "verdict/best": ", ".join(self.best),
            "verdict/detects": float(self.detects),
        }
        for metric in ("auroc", "fpr95"):
            if (mean := self.mean(metric)) is not None:
                values[f"verdict/{metric}"] = float(mean["value"])
            for row in self._of(metric).to_dict("records"):
                values[f"verdict/{row['dataset']}/{metric}"] = float(row["value"])
        for row in self.shift.to_dict("records"):
            key = row["axis"] if row["axis"] != "distance" or self.split else row["metric"]
            key = "semantic" if key == "distance" else key
            values[f"verdict/{row['dataset']}/{key}"] = float(row["value"])
        for row in self.causes.to_dict("records"):
            key = row["statistic"].replace(" ", "_")
            matched = "/matched" if row["metric"] == "matched_auroc" else ""
            values[f"verdict/{row['dataset']}/causes/{key}{matched}"] = float(row["value"])
        return {key: value for key, value in values.items() if value == value}

    # The rows

    @property
    def split(self) -> bool:
        """Whether covariate shift was measured, too; else there is one distance."""
        return "covariate" in set(self.shift["axis"])

    @property
    def units(self) -> set[str]:
        """Metrics of the shift."""
        return set(self.shift["metric"])

    def _of(self, metric: str) -> pd.DataFrame:
        return self.rows[self.rows["metric"] == metric]

    def mean(self, metric: str) -> Row | None:
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

    # What the words are of

    fewest = FEWEST_OF_A_VERDICT

    @property
    def weak(self) -> bool:
        """Whether the recommended detector has a high FPR95."""
        fpr95 = self.mean("fpr95")
        return bool(fpr95 and fpr95["value"] > WEAK)

    @property
    def stronger(self) -> Row | None:
        """``detector, value``: the lowest FPR95 of the best, where only the recommended is weak."""
        rows = self._of("mean_fpr95").query("detector in @self.best and value <= @WEAK")
        return rows.nsmallest(1, "value").iloc[0].to_dict() if self.weak and len(rows) else None

    @cached_property
    def tied(self) -> list[str]:
        """The best detectors; those that share their ranking of all images as one name."""
        joined: dict[str, str] = {}
        for _, names in self._of("ranking").groupby("value")["detector"]:
            one = " = ".join(name for name in self.ranking if name in set(names))
            joined |= dict.fromkeys(names, one)
        return list(dict.fromkeys(joined.get(name, name) for name in self.best))

    @property
    def behind_baseline(self) -> Sequence[Row]:
        """AUROC that the baseline lacks to the recommended detector, where that is another one."""
        rows = self._of("behind")
        differs = self.recommended and self.named != BASELINE
        return rows[rows["detector"] == BASELINE].to_dict("records") if differs else []

    @property
    def missed(self) -> list[str]:
        """Datasets on which the named detector is not significantly above chance."""
        above = self._of("above_chance")
        return [str(name) for name in above.loc[above["value"] == 0, "dataset"]]

    def left_for(self, reason: str) -> list[str]:
        """Datasets that do not count for a reason."""
        return [name for name, why in self.left.items() if why == reason]

    @property
    def flagged_and_counted(self) -> list[str]:
        """Datasets that the check of the data warns of, which the means count."""
        names = [n for n in self.datasets if n in self.flagged and n not in self.left]
        return names if len(self.rows) else []

    @property
    def leads(self) -> Sequence[Row]:
        """Detectors that are significantly better than the named one on a dataset."""
        return self._of("lead_of_other").to_dict("records")[:_LEADS]

    @property
    def inverted(self) -> list[str]:
        """Detectors whose mean AUROC is significantly below 50%."""
        return list(self._of("inverted").query("value == 1")["detector"])

    @property
    def resolution(self) -> float | None:
        """The smallest significant difference of AUROC, where it is known."""
        values = self._of("resolution")["value"]
        defined = self.mean("auroc") is not None and len(values) and values.gt(0).all()
        return float(values.iloc[0]) if defined else None

    @cached_property
    def _named_causes(self) -> dict[str, Sequence[Row]]:
        """The first causes of every dataset, the dataset with the strongest first."""
        if self.causes.empty:
            return {}
        rows = named_causes(self.causes[self.causes["metric"] == "auroc"])
        return {
            str(name): rows[rows["dataset"] == name].head(_NAMED).to_dict("records")
            for name in strongest_first(rows.drop_duplicates("dataset"))["dataset"]
        }

    @property
    def differences(self) -> dict[str, list[str]]:
        """What datasets are called by their first cause, of one dataset by two."""
        n = 1 if len(self._named_causes) > 1 else _NAMED
        groups = grouped(
            (listed([differs(cause) for cause in causes[:n]]), name)
            for name, causes in self._named_causes.items()
        )
        return dict([*groups.items()][:_DIFFERENCES])

    @property
    def strongest_causes(self) -> list[Sequence[Row]]:
        """The causes of the datasets that differ most."""
        return [*self._named_causes.values()][:_DATASETS]

    @property
    def shortcuts(self) -> Sequence[Row]:
        """How well a detector does among images alike in the first cause of a dataset."""
        order = list(self._named_causes)
        alike = self.causes[self.causes["metric"] == "matched_auroc"].to_dict("records")
        rows = [row for row in alike if row["dataset"] in order]
        return sorted(rows, key=lambda row: order.index(row["dataset"]))

    # The table

    def _name(self, name: str) -> Cell:
        mark = DAGGER if name in self.flagged else ""
        return name_cell(f"{name}{mark}", self.datasets.index(name))

    def _shift_columns(self, names: Sequence[str]) -> Iterator[tuple[str, list[Cell]]]:
        rows = {(r["dataset"], r["axis"], r["metric"]): r for r in self.shift.to_dict("records")}
        wanted = {
            ("semantic", CLASS_UNITS): "semantic",
            ("distance", CLASS_UNITS): "semantic" if self.split else "distance",
            ("covariate", SEVERITY): "covariate",
        }
        for (axis, metric), title in wanted.items():
            of = [rows.get((n, axis, metric)) or rows.get((n, axis, RATIO)) for n in names]
            if any(of):
                yield title, list(map(_unit_cell, of))


def _unit_cell(row: Row | None) -> Cell:
    if row is None or math.isnan(row["value"]):
        return Cell(MISSING)
    value, low, high = (float(row[key]) for key in ("value", "ci_low", "ci_high"))
    times = "x" if row["metric"] == RATIO else ""
    if row["metric"] == SEVERITY and value > _MOST_SEVERE:
        beyond = _severity(value)
        text = f">{_MOST_SEVERE} ({beyond})" if beyond.endswith("x") else beyond
        interval = "" if math.isnan(low) else f"{_severity(low)} to {_severity(high)}"
        return Cell(text, value, interval)
    return number_cell(value, low, high, lambda v: f"{round(v, 1) + 0.0:.1f}{times}")


def _severity(value: float) -> str:
    """``2.1``, ``5`` at the end of the scale, and beyond it how many times as far: ``2.0x``."""
    if value <= _MOST_SEVERE:
        return f"{value:.1f}"
    times = f"{value / _MOST_SEVERE:.1f}"
    return f"{_MOST_SEVERE}" if times == "1.0" else f"{times}x"


@dataclass(frozen=True, eq=False)
class BoardVerdict:
    """What the runs of a leaderboard found, of their verdicts.

    A configuration is all that differs between runs but the seed.

    Attributes:
        detectors: one row per detector and configuration. ``recommended, in_best_set``: by how
            many of ``n_seeds``; ``detects``: in how many any detector does. ``auroc, fpr95``: mean
            over seeds of the mean over datasets, ``*_std``: their standard deviation (n - 1),
            ``*_half_width``: of the 95% sampling interval, mean over seeds. ``best``: not
            significantly worse than the highest AUROC of all.
        rows: of these the one of each configuration that most seeds recommend, with its name as
            ``configuration``.
        verdicts: of the runs that have one on detectors.
        n_sets: number of datasets.
        positive: class whose FPR95 it is.
        without: number of runs without a verdict.
    """

    detectors: pd.DataFrame
    rows: pd.DataFrame
    verdicts: Sequence[Verdict]
    n_sets: int
    positive: str
    without: int

    @property
    def sentences(self) -> list[str]:
        """The verdict in words."""
        return sentences(WORDS, "board", self)

    def blocks(self, page: bool = False) -> list[Block]:
        """What a terminal ends with, and what a page begins with."""
        shown: list[Block] = []
        if self.verdicts:
            shown.append(self.table() if page else _narrow(self.table()))
        shifts = [verdict.shift for verdict in self.verdicts if len(verdict.shift)]
        if page and shifts:
            by = pd.concat(shifts).groupby(["dataset", "encoder", "axis", "metric"], sort=False)
            means = by["value"].agg(mean="mean", std="std", runs="count").reset_index()
            table = plain_table("Shift of the datasets over runs", means.to_dict("records"))
            shown.append(Folded(table.caption, [table], page_only=True))
        return [*shown, *texts(self.sentences, "answer")]

    def table(self) -> Table:
        """One row per configuration."""
        heads = [Head("configuration", "ascending"), Head("detector", "ascending")]
        heads += [Head("recom-", note="mended"), Head("best", note="set"), Head("detects")]
        heads += [Head("AUROC %"), Head("FPR95 %", "ascending")]
        counts = ("recommended", "in_best_set", "detects")
        cells = [
            [
                *(name_cell(row[key]) for key in ("configuration", "detector")),
                *(Cell(f"{row[k]}/{row['n_seeds']}", row[k] / row["n_seeds"]) for k in counts),
                *(_mean_cell(row, metric) for metric in ("auroc", "fpr95")),
            ]
            for row in self.rows.to_dict("records")
        ]
        auroc, fpr95 = (percent(self.rows[f"{m}_half_width"].median()) for m in ("auroc", "fpr95"))
        notes = [
            "k/n: k of n seeds recommend the detector, have it in the set of the best, or have "
            "any detector that detects.",
            f"Mean over {self._counted()}; a ± b: mean and standard deviation over seeds.",
            f"Simultaneous 95% sampling intervals: AUROC ±{auroc}, FPR95 ±{fpr95} points (median).",
            f"{fpr95_sentence(self.positive)}.",
        ]
        return Table("Verdict by configuration", heads, cells, names=2, notes=notes)

    def _counted(self) -> str:
        """The datasets that count, and those that do not, with the reason."""
        left = {name: why for verdict in self.verdicts for name, why in verdict.left.items()}
        words = {"flagged": DAGGER, "too_few": "too few images"}
        names = [f"{name} ({words[why]})" for name, why in left.items()]
        n = counted(self.n_sets - len(left), "dataset")
        return f"{n}, without {listing(names)}" if names else n

    # What the words are of

    @property
    def detects(self) -> bool:
        """Whether any detector of any run detects."""
        return bool(self.rows["detects"].any())

    @property
    def recommended(self) -> list[tuple[str, int]]:
        """The detectors that runs recommend, and how many do."""
        return Counter(v.recommended for v in self.verdicts if v.recommended).most_common()

    @property
    def left_differs(self) -> bool:
        """Whether the means of the runs are over different datasets."""
        return len({frozenset(verdict.left) for verdict in self.verdicts}) > 1

    @cached_property
    def _best(self) -> pd.DataFrame:
        return self.detectors[self.detectors["best"]].sort_values("auroc", ascending=False)

    @property
    def first(self) -> Row | pd.Series:
        """The row of the highest mean AUROC of all models."""
        return self._best.iloc[0]

    @property
    def best(self) -> list[str]:
        """The highest mean AUROC of all models, and what is not significantly worse."""
        names = self.rows.set_index("run")["configuration"]
        return [f"{row['detector']} ({names[row['run']]})" for row in self._best.to_dict("records")]

    @property
    def undetected(self) -> list[str]:
        """Configurations in which no seed has a detector that detects."""
        return list(self.rows.loc[self.rows["detects"] == 0, "configuration"])

    def mean_text(self, row: Row | pd.Series, metric: str) -> str:
        """Mean and standard deviation over seeds."""
        return _mean_cell(row, metric).text


def _mean_cell(row: Row | pd.Series, metric: str) -> Cell:
    """Mean and standard deviation over seeds, with the ± of the sampling interval."""
    return mean_cell({name: row[f"{metric}{end}"] for name, end in STATISTICS.items()})


def _narrow(table: Table) -> Table:
    """The first rows, with names that leave room for the numbers."""
    first = replace(table, rows=table.rows[:_BOARD_ROWS])
    room = max(_LETTERS, _WIDTH - sum(first.widths[1:]))
    shown = [[name_cell(cut(row[0].text, room)), *row[1:]] for row in first.rows]
    left = len(table.rows) - len(shown)
    notes = [f"{counted(left, 'configuration')} more: see the report."] if left else []
    return replace(table, rows=shown, notes=[*notes, *table.notes])
