"""How the results of question benchmarks are shown: tables, facts, figures and wrong answers."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

import pandas as pd
from PIL import Image

from ood_lab.common.files import packaged_table
from ood_lab.common.grouping import distinct, grouped, with_keys
from ood_lab.lvlm.answers.judgements import PARSED
from ood_lab.report.figures.bars import bar_panels
from ood_lab.report.figures.heatmap import level_cells
from ood_lab.report.figures.lines import level_lines
from ood_lab.report.rendering.blocks import (
    Block,
    Folded,
    Picture,
    Pictures,
    PlannedFigure,
    Section,
    Text,
)
from ood_lab.report.rendering.metric_definitions import MISSING, P_NOTE, p_text
from ood_lab.report.rendering.table import (
    Cell,
    Group,
    Head,
    Table,
    count_cell,
    estimate_cell,
    name_cell,
    names_column,
    pivoted,
)
from ood_lab.report.rendering.thumbnails import Thumbnails
from ood_lab.schema.results import PART, Names, Row, Tables, first_way, whole, why_missing
from ood_lab.schema.run_record import BenchmarkFacts, RunRecord

if TYPE_CHECKING:
    from matplotlib.figure import Figure

_SHOWN = 6  # pictures of a set
_LETTERS = 60  # of a reply
#: Beside the page: see :mod:`ood_lab.lvlm.pages.answers_page`.
ANSWERS_PAGE = "answers/index.html"


#: Metrics of which lower is better, and metrics that rank no model.
LOWER = frozenset({"chair", "hal", "cog"})
UNRANKED = frozenset({"yes_rate", "pope_yes_rate"})


class Headline(NamedTuple):
    """A number that stands for a benchmark where several are shown: a metric of a set."""

    split: str
    metric: str
    words: str


def table_columns(metrics: Names) -> list[list[str]]:
    """Metric, what it is called, and which direction is better: ``lower``, ``higher``, or ""."""
    better = {**dict.fromkeys(LOWER, "lower"), **dict.fromkeys(UNRANKED, "")}
    return [[metric, words, better.get(metric, "higher")] for metric, words in metrics.items()]


@dataclass(frozen=True)
class ScoredRun:
    """A run whose answers are scored.

    Attributes:
        folder: of the run.
        source: folder of the questions, and of their images.
        results: the results table.
        judged: tables of single answers, by the name of their file.
        tables: what else was found, by the name of their file.
        record: of the run.
    """

    folder: Path
    source: Path
    results: pd.DataFrame
    judged: Tables
    tables: Tables
    record: RunRecord

    @property
    def title(self) -> str:
        """The model, and the subject of its questions."""
        return self.record.title

    @property
    def benchmark(self) -> BenchmarkFacts:
        """What the run notes of its benchmark."""
        assert self.record.benchmark is not None  # noted before it is scored
        return self.record.benchmark

    @property
    def whole(self) -> pd.DataFrame:
        """Results of whole sets, the way of treating unparsed answers that comes first."""
        return whole(self.first_way)

    @property
    def first_way(self) -> pd.DataFrame:
        """Results under the way of treating unparsed answers that comes first."""
        return first_way(self.results)


class PageBlocks(NamedTuple):
    """What the page of a benchmark shows, part by part.

    Attributes:
        summary: what the terminal prints, and the page shows first.
        details: further results on the page.
        figures: those of the page.
        wrong: the section of wrong answers.
        pictures: of the wrong answers and of the details.
    """

    summary: Iterable[Table | Text]
    details: Iterable[Block]
    figures: Iterable[PlannedFigure | Folded]
    wrong: Section
    pictures: Thumbnails


def metric_table(
    caption: str,
    heading: str,
    rows: pd.DataFrame,
    names: Names,
    metrics: Names,
    *,
    key: str = "split",
    counts: Names | None = None,
    notes: Sequence[str] = (),
) -> Table:
    """One row per value of ``key``: numbers of questions and of lost ones, then its metrics.

    Args:
        caption: of the table.
        heading: of its first column.
        rows: of a results table.
        names: value of ``key`` and what it is called; in this order, as far as there are rows.
        metrics: metric and heading.
        key: column that tells the rows of the table apart.
        counts: further headings of counts, or other ones.
        notes: below the table; why a row has no value is added.
    """
    rows = rows[rows["metric"].isin(metrics)]
    results = {(str(row[key]), row["metric"]): row for row in rows.to_dict("records")}
    shown = with_keys(metrics, set(rows["metric"]))
    first = next(iter(shown), "")
    present = [name for name in names if (name, first) in results]
    unit = str(rows["unit"].iloc[0]).split()[-1] if len(rows) else "unit"
    headings = {"n": f"{unit}s", "n_asked": "asked"}
    lost = {"n_unparsed": "unparsed", "n_cut": "cut", "n_failed": "failed"}
    headings |= {name: words for name, words in lost.items() if rows[name].any()}
    headings |= {k: v for k, v in (counts or {}).items() if k in headings or k not in lost}
    heads = [Head(heading, "ascending"), *map(Head, [*headings.values(), *shown.values()])]
    cells = [
        [
            name_cell(names[name], place),
            *(count_cell(float(results[name, first][count])) for count in headings),
            *(_estimate(results.get((name, metric))) for metric in shown),
        ]
        for place, name in enumerate(present)
    ]
    reasons = grouped(
        (why_missing(results[name, first]), names[name])
        for name in present
        if all(math.isnan(results[name, m]["value"]) for m in shown if (name, m) in results)
    )
    missing = [f"{MISSING} of {', '.join(w)}: {reason}." for reason, w in reasons.items() if reason]
    read = [] if {*headings} & {*lost} else ["Every question has an answer that could be read."]
    return Table(caption, heads, cells, notes=[*missing, *notes, *read], spreads=True)


def _estimate(row: Row | None) -> Cell:
    """A metric that not every set has."""
    return Cell(MISSING) if row is None else estimate_cell(row)


def difference_table(
    caption: str,
    table: pd.DataFrame,
    names: Mapping[Any, str],
    metrics: Names,
    sets: Names | None = None,
    notes: Sequence[str] = (),
) -> Table:
    """One row per pair of groups; of every metric the difference with its interval, and p.

    Args:
        caption: of the table.
        table: see :func:`ood_lab.metrics.resampling.clustered_bootstrap.contrast`.
        names: group → what it is called; others are called what they are.
        metrics: metric → what it is called; others are not shown.
        sets: set of questions → what it is called, where the groups are compared on several. Of two
            groups only, the rows are named after the sets.
        notes: below the table.
    """
    keys = ["a", "b"] if sets is None else ["a", "b", "split", PART]
    rows = table.assign(**{PART: table[PART].fillna("")}) if PART in keys else table
    pairs = distinct(rows[keys].itertuples(index=False, name=None))
    alone = sets is not None and len({pair[:2] for pair in pairs}) == 1

    def words(a: Any, b: Any, split: str = "", part: str = "") -> str:
        place = ", ".join(filter(None, [(sets or {}).get(split, split), part]))
        both = "" if alone else f"{names.get(a, a)} - {names.get(b, b)}"
        return ": ".join(filter(None, [place, both]))

    cells = {
        (tuple(row[key] for key in keys), replace(head, group=Group(name))): cell
        for metric, name in metrics.items()
        for row in rows[rows["metric"] == metric].to_dict("records")
        for head, cell in _difference(row).items()
    }
    first = names_column("questions" if alone else "pair", [words(*p) for p in pairs], ordered=True)
    return pivoted(caption, [first], pairs, cells, notes=[*notes, P_NOTE], spreads=True)


def form_table(table: pd.DataFrame, sets: Names, metrics: Names) -> Table:
    """What a chain of thought changes, by set of questions, and by parts of the first set.

    Args:
        table: see :func:`ood_lab.lvlm.scoring.answer_differences.contrasts_by`.
        sets: set of questions → what it is called; in this order.
        metrics: metric → what it is called.
    """
    order = {split: place for place, split in enumerate(sets)}
    shown = table[table[PART].isna() | (table["split"] == next(iter(sets)))]
    shown = shown.sort_values("split", key=lambda c: c.map(order), kind="stable")
    notes = ["The same questions in both forms; an answer that cannot be read is wrong."]
    title = "Chain of thought minus plain, points"
    return difference_table(title, shown, {}, metrics, sets, notes)


def form_figure(run: ScoredRun, metrics: Names, sets: Names) -> Iterator[PlannedFigure]:
    """Bars of what a chain of thought changes, where both forms have answers."""
    table = run.tables.get("forms")
    if table is None or not len(table):
        return
    rows = table[table[PART].isna() & table["metric"].isin(metrics)]
    rows = rows.assign(value=rows["difference"])
    titles = {m: f"{words}, points" for m, words in metrics.items()}
    rows[["value", "ci_low", "ci_high"]] *= 100
    footer = f"{run.title}. Chain of thought minus plain, 95% intervals."
    yield captioned("forms", partial(bar_panels, rows, titles, sets, footer, factor=1.0))


def _difference(row: Row) -> dict[Head, Cell]:
    """A difference with its interval, and its p-value."""
    value, low, high = (100 * float(row[k]) for k in ("difference", "ci_low", "ci_high"))
    shown, p = Cell(MISSING), Cell(MISSING)
    if not math.isnan(value):
        interval = f"{low:+.1f} to {high:+.1f}"
        shown = Cell(f"{value:+.1f}", value, interval, f" [{low:+.1f}, {high:+.1f}]")
        p = Cell(p_text(row["p_holm"]), row["p_holm"])
    return {Head("difference"): shown, Head("p", "ascending"): p}


def answer_figures(
    run: ScoredRun,
    metrics: Names,
    splits: Names,
    levels: Names,
    cells_of: str,
    remark: str,
    lines: Names | None = None,
) -> Iterator[PlannedFigure]:
    """Bars of every set, lines over levels of shift, and the grid of cells.

    Args:
        run: what is shown.
        metrics: metric and title of its panel of bars.
        splits: set and what it is called.
        levels: metrics over levels, and their titles.
        cells_of: the set whose cells are shown.
        remark: below every figure, such as the positive class.
        lines: sets that have a line; None = all of them.
    """
    shown = {s: words for s, words in splits.items() if (run.whole["split"] == s).any()}
    footer = f"{run.title}. {remark}"
    sets = run.first_way[run.first_way[PART].isna()]
    intervals = f"{footer} 95% intervals."
    yield captioned("sets", partial(bar_panels, run.whole, metrics, shown, intervals))
    yield captioned("levels", partial(level_lines, sets, levels, lines or shown, intervals))
    draw = partial(level_cells, sets, levels, cells_of, footer)
    yield captioned("cells", draw, of=splits.get(cells_of, cells_of))
    yield from form_figure(run, metrics, splits)


def thumbnails_of(table: pd.DataFrame, source: Path) -> Thumbnails:
    """Small pictures of the images of a table's column ``file``, by the number of the row."""
    files = table["file"].tolist()

    def load(_: str, row: int) -> Image.Image | None:
        return Image.open(source / files[row]) if files[row] else None

    return Thumbnails(load)


def first_of_each(
    title: str,
    note: str,
    rows: pd.DataFrame,
    names: Names,
    text: Callable[[Row], str],
    store: Thumbnails,
) -> Section:
    """The first rows of every set with their images, one of each image.

    Args:
        title: of the section.
        note: below it.
        rows: with ``split, file``; the index numbers the rows of ``store``.
        names: set and what it is called; in this order.
        text: what a row says.
        store: of the pictures.
    """
    folded: list[Folded] = []
    for split, words in names.items():
        part = rows[rows["split"] == split].drop_duplicates("file").iloc[:_SHOWN]
        items = [
            Picture(text(row), store.number(split, int(number)))
            for number, row in zip(part.index, part.to_dict("records"), strict=True)
        ]
        if items:
            folded.append(Folded(words, [Pictures(items)], open=not folded))
    return Section(title, [Text(note), *folded] if folded else [])


def wrong_answers(
    judgements: pd.DataFrame, names: Names, source: Path
) -> tuple[Section, Thumbnails]:
    """The first wrong answers of every set with their images, and the pictures.

    Args:
        judgements: yes/no answers, see :func:`ood_lab.lvlm.answers.judgements.judge`.
        names: set and what it is called; in this order.
        source: folder that relative paths of images start from.
    """
    wrong = judgements[(judgements["status"] == PARSED) & ~judgements["correct"].astype(bool)]
    store = thumbnails_of(judgements, source)

    def text(row: Row) -> str:
        question = str(row["text"]).split("\n")[0].removeprefix("Question: ")
        return asked_and_said(question, row["reply"], row["truth"])

    note = "The first of each set of questions, with the model's reply."
    return first_of_each("Wrong answers", note, wrong, names, text, store), store


def asked_and_said(question: str, reply: object, truth: str) -> str:
    """A question, what the model replied (its first letters), and the right answer.

    Marks distinguish them within one paragraph.
    """
    asked = " ".join(question.split())
    return f"Q: {asked} · Reply: {quoted(reply, _LETTERS)} (right: {truth})"


def quoted(reply: object, most: int) -> str:
    """The first letters of a reply as a quotation on one line."""
    text = " ".join(str(reply).split())
    return f"“{text[:most].rstrip()} …”" if len(text) > most else f"“{text}”"


_CAPTIONS: dict[str, list[str]] = packaged_table(__package__, "figure_captions.yaml")


def captioned(
    name: str, draw: Callable[[], Figure | None], entry: str = "", **words: str
) -> PlannedFigure:
    """A figure with its title and caption.

    Args:
        name: of its files.
        draw: returns the figure, or None where its inputs show nothing.
        entry: of the captions; empty = that of the name.
        words: fill the names in braces.
    """
    title, caption = (text.format(**words) for text in _CAPTIONS[entry or name])
    return PlannedFigure(name, title, caption, draw)


def title_of(name: str) -> str:
    """The title of a figure, without what is filled in."""
    return _CAPTIONS[name][0].partition(":")[0].partition("{")[0]


_DEFINITIONS: dict[str, dict[str, str]] = packaged_table(__package__, "definitions.yaml")


def defined(*names: str) -> list[tuple[str, str]]:
    """Terms and their meanings, of these kinds of questions and benchmarks, in this order."""
    return [pair for name in names for pair in _DEFINITIONS[name].items()]
