"""The results of a run as tables for the terminal, laid out for the width it has."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property, partial
from typing import Any

import numpy as np
import pandas as pd
from rich.console import Console, ConsoleOptions, Group, RenderableType
from rich.table import Table
from rich.text import Text

from ood_lab.axes import AXES, Axis
from ood_lab.report.columns import (
    Column,
    beside,
    break_name,
    build,
    numbers,
    pack,
    width_of,
)
from ood_lab.report.protocol import (
    MISSING,
    finding_sentences,
    fpr95_sentence,
    percent,
    star_sentence,
)
from ood_lab.report.view import Estimate, RunView

_LABEL = {"auroc": "AUROC", "fpr95": "FPR95"}
_MAX_HEADER_LINES = 6


def _percent(estimate: Estimate, interval: bool) -> str:
    text = percent(estimate.value)
    if interval and estimate.has_interval and text != MISSING:
        text += f"±{100 * estimate.half_width:.1f}"
    return text


def _number(value: float, show: Callable[[float], str]) -> str:
    return MISSING if math.isnan(value) else show(value)


@dataclass(frozen=True)
class ConsoleTables:
    """A rich renderable: ``console.print`` it. Made by :func:`console_tables`."""

    view: RunView
    protocol: str
    refused: Mapping[str, str]
    intervals: bool
    title: str | None
    findings: Sequence[Mapping[str, Any]] = ()

    def __rich_console__(
        self, console: Console, options: ConsoleOptions
    ) -> Iterator[RenderableType]:
        """Headline, results, what they mean, levels, refused detectors."""
        yield Text(self._headline(options.max_width), style="bold")
        if self.view.csid_accuracies:
            yield Text(self._spectrum())
        if self.view.detectors and self.view.sets:
            for part in self._results(options.max_width):
                yield Text()
                yield part
            yield Text("\n".join(self._notes()), style="dim")
        for part in self._levels(options.max_width):
            yield Text()
            yield part
        for sentence in self.view.left_out:
            yield Text()
            yield Text(sentence, style="dim")
        if self.findings:
            yield Text()
            yield Text("\n".join(finding_sentences(self.findings)), style="yellow")
        if self.refused:
            yield Text()
        for name, reason in self.refused.items():
            yield Text.assemble(("refused ", "yellow"), (name, "bold"), f": {reason}")

    def _headline(self, width: int) -> str:
        """What was run, accuracy and n; broken between them where the terminal is narrow."""
        accuracy = self.view.get("id_accuracy", None)
        parts = [self.title] if self.title else []
        if not math.isnan(accuracy.value):
            ends = f" [{percent(accuracy.low)}, {percent(accuracy.high)}]"
            shown = ends if accuracy.has_interval else ""
            parts.append(f"ID accuracy {percent(accuracy.value)}%{shown}")
        lines = [""]
        for part in [*parts, f"{self.view.marked('test', 'ID test')} n = {self.view.n_id:,}"]:
            longer = f"{lines[-1]} · {part}" if lines[-1] else part
            lines[-1:] = [longer] if len(longer) <= width or not lines[-1] else [lines[-1], part]
        return "\n".join(lines)

    def _spectrum(self) -> str:
        """Accuracy on the sets with shifted covariates, and its distance to that on ID test."""
        own = self.view.get("id_accuracy", None).value
        parts = [
            f"{self.view.marked(name)} {percent(found.value)}% ({100 * (found.value - own):+.1f})"
            for name, found in self.view.csid_accuracies
        ]
        return f"ID accuracy under shifted covariates: {', '.join(parts)}"

    @cached_property
    def _rows(self) -> list[str]:
        """The detectors in the order of the rows."""
        return [name for _, names in self.view.sections for name in names]

    def _build(self, columns: Sequence[Column], title: str) -> Group:
        """A titled table, with a line above each section."""
        starts, row = {}, 0
        for words, names in self.view.sections:
            starts[row] = words
            row += len(names)
        return build(columns, title, {} if len(starts) < 2 else starts)

    # Detectors × OOD sets

    def _results(self, width: int) -> Iterator[RenderableType]:
        order = f", OOD sets {self.view.order}" if self.view.order else ""
        for words in (14, 12, 9):
            columns = self._paired(words)
            if self._fits(columns, width):
                yield self._build(columns, f"AUROC and FPR95 in %{order}")
                return
        for words in (16, 12, 9, 0):
            tables = [self._stacked(metric, words) for metric in _LABEL]
            if all(self._fits(columns, width) for columns in tables):
                break
        if not words:
            numbered = (f"S{i + 1}={s}" for i, s in enumerate(self.view.sets))
            yield Text(", ".join(numbered))
        for label, columns in zip(_LABEL.values(), tables, strict=True):
            for part in pack(columns, width):
                yield self._build(part, f"{label} in %{order}")

    @staticmethod
    def _fits(columns: list[Column], width: int) -> bool:
        tallest = max(len(column.header) for column in columns)
        return width_of(columns) <= width and tallest <= _MAX_HEADER_LINES

    def _stacked(self, metric: str, words: int) -> list[Column]:
        """One metric a table; ``words`` = width of set names in headers, 0 = numbers instead."""
        columns = [self._names(), *self._set_columns(words, lambda ood: self._cells(metric, ood))]
        columns += [
            Column((group, "mean"), self._group_cells(metric, group)) for group in self.view.groups
        ]
        if len(self.view.sets) > 1:
            columns.append(Column(("mean",), self._mean_cells(metric)))
        return columns + (self._dad() if metric == "fpr95" else [])

    def _paired(self, words: int) -> list[Column]:
        """AUROC and FPR95 of a set beside each other."""

        def pair(cells: Callable[[str], list[Text]]) -> list[Text]:
            return beside(cells("auroc"), cells("fpr95"))

        columns = [self._names()]
        columns += self._set_columns(
            words, lambda ood: pair(lambda metric: self._cells(metric, ood)), "AUROC  FPR95"
        )
        columns += [
            Column((f"{g} mean", "AUROC  FPR95"), pair(partial(self._group_cells, group=g)))
            for g in self.view.groups
        ]
        if len(self.view.sets) > 1:
            columns.append(Column(("mean", "AUROC  FPR95"), pair(self._mean_cells)))
        return columns + self._dad()

    def _names(self) -> Column:
        return Column(("detector",), [Text(name, "bold") for name in self._rows])

    def _set_columns(
        self, words: int, cells: Callable[[str], list[Text]], *below: str
    ) -> list[Column]:
        columns = []
        for position, ood in enumerate(self.view.sets):
            name = break_name(ood, words) if words else (f"S{position + 1}",)
            n = f"n {self.view.get('auroc', self.view.detectors[0], ood).n_ood:,}"
            marked = (*name[:-1], name[-1] + self.view.mark(ood))
            columns.append(Column((*marked, n, *below), cells(ood)))
        return columns

    def _marked(self, metric: str, ood: str | None, values: list[float]) -> set[int]:
        by_name = dict(zip(self._rows, values, strict=True))
        best = self.view.best(metric, ood, by_name)
        return {row for row, name in enumerate(self._rows) if name in best}

    def _cells(self, metric: str, ood: str) -> list[Text]:
        return self._estimates(metric, ood, [self.view.get(metric, d, ood) for d in self._rows])

    def _estimates(self, metric: str, ood: str | None, estimates: list[Estimate]) -> list[Text]:
        marked = self._marked(metric, ood, [e.value for e in estimates])
        return numbers([_percent(e, self.intervals) for e in estimates], marked)

    def _mean_cells(self, metric: str) -> list[Text]:
        means = [self.view.mean(metric, d) for d in self._rows]
        return self._estimates(f"mean_{metric}", None, means)

    def _group_cells(self, metric: str, group: str) -> list[Text]:
        name = f"mean_{group}_{metric}"
        return self._estimates(name, None, [self.view.get(name, d) for d in self._rows])

    def _dad(self) -> list[Column]:
        dads = [self.view.get("dad", d) for d in self._rows]
        if not self.view.most_dad or all(math.isnan(d.value) for d in dads):
            return []
        texts = [_number(d.value, "{:.0f}".format) for d in dads]
        if self.intervals:
            ends = [f" [{d.low:.0f},{d.high:.0f}]" if d.has_interval else "" for d in dads]
            texts = [text + end for text, end in zip(texts, ends, strict=True)]
        return [Column(("DAD", f"of {self.view.most_dad}"), numbers(texts))]

    # What the numbers mean

    def _notes(self) -> Iterator[str]:
        yield fpr95_sentence(self.protocol)
        if self.view.has_marks:
            yield f"Sorted by mean AUROC. {star_sentence(self.view.has_significance)}"
        elif len(self.view.detectors) > 1:
            yield "Sorted by mean AUROC. None is marked as best: see the warning."
        if self.view.most_dad:
            yield "DAD = pairs of sets in which the larger shift has the lower FPR95."
        halves = [f"{label} ±{100 * h:.1f}" for m, label in _LABEL.items() if (h := self._half(m))]
        if halves and not self.intervals:
            yield f"95% intervals: {', '.join(halves)} points (median half-width)."
        yield from self.view.interval_notes

    def _half(self, metric: str) -> float:
        view = self.view
        cells = [view.get(metric, d, s).half_width for d in view.detectors for s in view.sets]
        known = [h for h in cells if not math.isnan(h)]
        return float(np.median(known)) if known else 0.0

    # Levels

    def _levels(self, width: int) -> Iterator[RenderableType]:
        for ood in self.view.level_sets:
            tables = []
            for axis in AXES:
                columns = self._level_columns(ood, axis) if self.view.levels(ood, axis) else []
                for part in pack(columns, width) if columns else []:
                    tables.append((part, f"AUROC in % by {axis} level ({self.view.marked(ood)})"))
            if not tables:
                continue
            gap = 4
            if sum(width_of(part) + gap for part, _ in tables) - gap <= width:
                row = Table.grid(padding=(0, gap, 0, 0), pad_edge=False)
                row.add_row(*(self._build(part, title) for part, title in tables))
                yield row
            else:
                yield from (self._build(part, title) for part, title in tables)

    def _level_columns(self, ood: str, axis: Axis) -> list[Column]:
        columns = [self._names()]
        for level in self.view.levels(ood, axis):
            cells = [self.view.at_level("auroc", d, ood, axis, level) for d in self._rows]
            header = (f"{level:g}", f"n {cells[0].n_ood:,}")
            columns.append(Column(header, numbers([_percent(c, self.intervals) for c in cells])))

        def summary(metric: str, show: Callable[[float], str]) -> list[Text]:
            name = f"{metric}_{axis}_auroc"
            values = [self.view.get(name, d, ood).value for d in self._rows]
            return numbers([_number(v, show) for v in values])

        correlation = summary("correlation", "{:+.2f}".format)
        sensitivity = summary("sensitivity", lambda v: f"{100 * v:.1f}")
        return [
            *columns,
            Column(("correl-", "ation"), correlation),
            Column(("points", "per level"), sensitivity),
        ]


def console_tables(
    results: pd.DataFrame,
    *,
    protocol: str = "openood",
    significance: pd.DataFrame | None = None,
    reads: Mapping[str, str] | None = None,
    refused: Mapping[str, str] | None = None,
    intervals: bool = False,
    title: str | None = None,
    findings: Sequence[Mapping[str, Any]] = (),
) -> ConsoleTables:
    """Tables of one run for ``rich``: ``Console().print(console_tables(results))``.

    Detectors × OOD sets with AUROC, FPR95, their mean and DAD, ID accuracy and n; then AUROC
    by level with correlation and sensitivity. The layout follows the width of the terminal.

    Args:
        results: long results table of one model and seed, values as fractions.
        protocol: ``openood`` or ``hendrycks``: which FPR95 the table holds.
        significance: rows ``detector, ood, best`` and optionally ``metric`` (default
            ``auroc``): all with ``best`` are marked in that column; those of ``mean_<metric>``
            without ``ood`` in that of the mean.
        reads: detector → what it looks at; a table of many detectors has a section for each.
        refused: detector → why it could not work here.
        intervals: show the half-width of the 95% interval in every cell.
        title: what was run, first in the headline.
        findings: ``text`` and ``sets`` of what the check of the data found: the sets are marked.

    Raises:
        UserError: unknown protocol.
        ValueError: the table holds several models or seeds.
    """
    fpr95_sentence(protocol)
    view = RunView(results, significance, reads, findings)
    return ConsoleTables(view, protocol, refused or {}, intervals, title, findings)
