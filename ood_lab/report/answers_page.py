"""What the pages of benchmarks that ask chat models have in common."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple

import pandas as pd
from matplotlib.figure import Figure

from ood_lab.report.answers_table import present_sizes, why_missing
from ood_lab.report.figures.drawing import write_figure
from ood_lab.report.figures.style import rc
from ood_lab.report.html_tables import Cell, Head, HtmlTable, flatten
from ood_lab.report.mistakes import Mistake, Thumbnails
from ood_lab.report.optional import optional
from ood_lab.report.page import FigureFile, embed, page_template, save_page
from ood_lab.report.protocol import MISSING, percent


class Shown(NamedTuple):
    """Replies to one set of questions that are shown with their images."""

    name: str
    items: Sequence[Mistake]


class Planned(NamedTuple):
    """A figure to draw; ``draw`` returns None where there is nothing to show."""

    name: str
    title: str
    caption: str
    draw: Callable[[], Figure | None]


class AnswersPage(NamedTuple):
    """The content of a page.

    Args:
        title: of the run.
        sentence: below it.
        facts: name, value and remark of the numbers at the top.
        tables: in order.
        figures: in order.
        heading: of the replies that are shown.
        note: below that heading.
        shown: those replies; sets without any are left out.
        thumbnails: of their images.
        definitions: name and words.
        downloads: files of the run folder, as far as they are there.
    """

    title: str
    sentence: str
    facts: Sequence[tuple[str, str, str]]
    tables: Sequence[HtmlTable]
    figures: Sequence[FigureFile]
    heading: str
    note: str
    shown: Sequence[Shown]
    thumbnails: Thumbnails
    definitions: Sequence[tuple[str, str]]
    downloads: Sequence[str]

    def write(self, path: Path, manifest: Mapping[str, Any]) -> Path:
        """Writes the page, whole or not at all; all of the manifest is shown."""
        folder = path.parent
        text = page_template("answers.html.j2").render(
            title=self.title,
            sentence=self.sentence,
            facts=self.facts,
            warnings=manifest.get("warnings", []),
            tables=self.tables,
            intervals=any(table.has_intervals for table in self.tables),
            figures=[embed(figure, folder) for figure in self.figures],
            heading=self.heading,
            note=self.note,
            mistakes=[shown for shown in self.shown if shown.items],
            thumbnails=self.thumbnails.uris,
            definitions=self.definitions,
            manifest=flatten(dict(manifest)),
            downloads=[name for name in self.downloads if (folder / name).exists()],
        )
        return save_page(path, text)


def draw_figures(folder: Path, planned: Iterable[Planned]) -> list[FigureFile]:
    """Writes every figure that the tables allow; one that fails is left out with a warning."""
    files = []
    with rc():
        for name, title, caption, draw in planned:
            with optional(f"figure {name}"):
                if (figure := draw()) is not None:
                    files.append(write_figure(folder, name, title, caption, figure))
    return files


def estimate_cell(row: Mapping[Any, Any]) -> Cell:
    """``value`` in percent, with its interval ``ci_low`` to ``ci_high`` where there is one.

    In place of a missing value stands why it is missing, as far as its row tells.
    """
    value, low, high = (float(row[name]) for name in ("value", "ci_low", "ci_high"))
    if math.isnan(value):
        reason = why_missing(row) if "n_asked" in row else ""
        return Cell(f"{MISSING}: {reason}" if reason else MISSING)
    interval = "" if math.isnan(low) else f"{percent(low)} to {percent(high)}"
    return Cell(percent(value), value, interval)


def asked_and_said(question: str, reply: object, truth: str = "", most: int = 60) -> str:
    """A question, what the model replied (its first letters), and the right answer if there is one.

    Marks tell them apart where they stand in one paragraph.
    """
    right = f" (right: {truth})" if truth else ""
    return f"Q: {' '.join(question.split())} · Reply: {quoted(reply, most)}{right}"


def quoted(reply: object, most: int) -> str:
    """The first letters of a reply as a quotation on one line."""
    said = " ".join(str(reply).split())
    return f"“{said[:most].rstrip()} …”" if len(said) > most else f"“{said}”"


def metric_table(
    caption: str,
    heading: str,
    rows: pd.DataFrame,
    names: Mapping[str, str],
    sizes: Mapping[str, str],
    metrics: Mapping[str, str],
    key: str = "split",
) -> HtmlTable:
    """One row per value of ``key``: its sizes, then its metrics.

    Args:
        caption: of the table.
        heading: of its first column.
        rows: ``<key>, metric, value, ci_low, ci_high`` and the columns of ``sizes``.
        names: value of ``key`` and what it is called; in this order, as far as there are rows.
        sizes: column and heading, read from the first metric's row.
        metrics: metric and heading.
        key: column that tells the rows of the table apart.
    """
    sizes = present_sizes(rows, sizes)
    found = {(str(row[key]), row["metric"]): row for row in rows.to_dict("records")}
    first = next(iter(metrics))
    present = [name for name in names if (name, first) in found]
    heads = [Head(heading, "ascending"), *map(Head, [*sizes.values(), *metrics.values()])]
    cells = []
    for place, name in enumerate(present):
        counts = [int(found[name, first][size]) for size in sizes]
        start = [Cell(names[name], place), *(Cell(f"{count:,}", count) for count in counts)]
        cells.append([*start, *(estimate_cell(found[name, metric]) for metric in metrics)])
    return HtmlTable(caption, heads, cells)


def interval_facts(
    rows: pd.DataFrame, metric: str, name: Callable[[str], str]
) -> list[tuple[str, str, str]]:
    """One metric of every split for the top of the page, with its interval."""
    return [
        (
            name(str(row["split"])),
            *_value_and_remark(row),
        )
        for row in rows[rows["metric"] == metric].to_dict("records")
    ]


def _value_and_remark(row: Mapping[Any, Any]) -> tuple[str, str]:
    """A share with its interval, or why there is none."""
    if math.isnan(row["value"]):
        asked, lost = int(row["n_asked"]), int(row["n_unparsed"]) + int(row["n_failed"])
        if not asked:
            return MISSING, "no questions"
        if lost == asked:
            return MISSING, f"none of {asked:,} answers could be read"
        return MISSING, f"too few of {asked:,} answers to say"
    if math.isnan(row["ci_low"]):
        return f"{percent(row['value'])}%", "no interval: too few to resample"
    return (
        f"{percent(row['value'])}%",
        f"95% interval {percent(row['ci_low'])} to {percent(row['ci_high'])}",
    )
