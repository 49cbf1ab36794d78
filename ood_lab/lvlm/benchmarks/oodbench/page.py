"""How the results of OODBench are shown."""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from functools import partial

import numpy as np
import pandas as pd
from matplotlib.figure import Figure

from ood_lab.common.files import read_table
from ood_lab.common.grouping import distinct, without_keys
from ood_lab.lvlm.benchmark.contract import BenchmarkWords
from ood_lab.lvlm.benchmarks.oodbench.division import DIVISION, TOGETHER, UNCUT
from ood_lab.lvlm.benchmarks.oodbench.question_building import BAP_TASKS
from ood_lab.lvlm.benchmarks.oodbench.scoring import DATASET, KIND
from ood_lab.lvlm.benchmarks.oodbench.split_contents import distribution_figures
from ood_lab.lvlm.pages.answer_tables import doubt_table, yes_no_tables
from ood_lab.lvlm.pages.benchmark_page import (
    Headline,
    PageBlocks,
    ScoredRun,
    answer_figures,
    captioned,
    defined,
    first_of_each,
    metric_table,
    wrong_answers,
)
from ood_lab.lvlm.pages.result_sentences import ACCURACY
from ood_lab.lvlm.questions.question_files import YES_NO
from ood_lab.lvlm.scoring.yes_no_scores import METRICS
from ood_lab.report.figures.bars import bar_panels
from ood_lab.report.figures.densities import draw_histograms
from ood_lab.report.figures.layout import SOFT, add_legend, panels
from ood_lab.report.rendering.blocks import Block, Folded, PlannedFigure, Text
from ood_lab.report.rendering.table import Table
from ood_lab.report.rendering.thumbnails import Thumbnails
from ood_lab.schema.results import PART, Row, whole

_BINS = np.linspace(0.0, 1.0, 21)
_MOST = 11
_ALL = "all categories"


def purified_figures(division: pd.DataFrame, threshold: float) -> Iterator[PlannedFigure | Folded]:
    """See :func:`purified_histograms`; further figures have the other categories.

    Args:
        division: ``category`` and ``p_<model>`` of every annotated pair.
        threshold: T, drawn as a line.
    """
    count = 1 + max(0, math.ceil((division["category"].nunique() - _MOST) / (_MOST + 1)))
    planned = [
        captioned(
            f"purified_{number + 1}" if number else "purified",
            partial(purified_histograms, division, threshold, number),
            "purified",
            number=f" {number + 1}" if number else "",
        )
        for number in range(count)
    ]
    yield planned[0]
    if planned[1:]:
        yield Folded("Purified probabilities of the other categories", planned[1:], page_only=True)


def purified_histograms(division: pd.DataFrame, threshold: float, number: int) -> Figure:
    """Histograms of ``p_c``: all categories together, then those with the most pairs.

    As in appendix H of arXiv 2602.18094.

    Args:
        division: ``category`` and ``p_<model>`` of every annotated pair.
        threshold: T, drawn as a line.
        number: of the figure; those after the first have the next categories by number of pairs.
    """
    models = [str(c) for c in division.columns if str(c).startswith("p_")]
    counts = division["category"].value_counts()
    start = number * (_MOST + 1) - 1 if number else 0
    end = (number + 1) * (_MOST + 1) - 1
    parts = {} if number else {_ALL: division}
    parts |= {str(c): division[division["category"] == c] for c in counts.index[start:end]}
    left = len(counts) - end
    more = f" {left} further categories are in further figures." if left > 0 else ""
    footer = f"Dashed: T = {threshold:g}. n = annotated pairs.{more}"
    titles = [f"{name}, n {len(rows):,}" for name, rows in parts.items()]
    labels = ("purified probability", "share of pairs")
    figure, grid = panels(
        titles, footer, height=1.15, columns=4, extra=0.6, labels=labels, sharex=True
    )
    for axes, rows in zip(grid, parts.values(), strict=True):
        values = {model.removeprefix("p_"): rows[model].to_numpy() for model in models}
        draw_histograms(axes, values, _BINS)
        axes.axvline(threshold, color=SOFT, lw=0.7, ls="--")
        axes.set_xticks([0, 0.5, 1], ["0", "0.5", "1"])
    add_legend(figure, grid)
    return figure


DISTRIBUTION = "distribution"
BAP = {"bap_existence": "existence", "bap_counting": "counting", "bap_logic": "logic"}
SPLITS = {
    "id": "ID",
    "ood_s": "OOD-S",
    "ood_h": "OOD-H",
    "ood_s_uncut": "OOD-S uncut",
    "ood_h_uncut": "OOD-H uncut",
    "hard": "hard",
    TOGETHER: "ID and OOD together",
}
_OOD = ("ood_s", "ood_h", "hard")
_LEVEL_METRICS = {"accuracy": "Acc", "yes_rate": "yes-rate", "f1": "F1"}


def summary(run: ScoredRun) -> Iterator[Table | Text]:
    """Yes/no questions both ways (once where nothing is unparsed), BAP, doubts, by data set."""
    yield from yes_no_tables(run, METRICS, SPLITS)
    bap = run.whole[run.whole["metric"].isin(BAP)]
    if len(bap):
        notes = ["logic: the count and the comparison are right."]
        title = "Basic-to-advanced progression, % right"
        yield metric_table(title, "split", bap, SPLITS, BAP, notes=notes)
    yield from doubt_table(run, SPLITS)
    single, names = by_dataset(run)
    for title, metrics in (("Yes/no questions", METRICS), ("Basic-to-advanced progression", BAP)):
        if single["metric"].isin(metrics).any():
            caption = f"{title} by data set, %"
            yield metric_table(caption, "split", single, names, metrics, key="place")


def by_dataset(run: ScoredRun) -> tuple[pd.DataFrame, dict[str, str]]:
    """The rows of each data set in each split, with ``place``, and what the places are called."""
    part = run.first_way[PART].fillna("").astype(str)
    rows = run.first_way[part.str.startswith(f"{DATASET} ")]
    name = part[rows.index].str.removeprefix(f"{DATASET} ")
    rows = rows.assign(name=name, place=rows["split"] + "/" + name)
    datasets = distinct(rows["name"])
    splits = without_keys(SPLITS, (TOGETHER,))
    named = {f"{s}/{d}": f"{words}, {d}" for s, words in splits.items() for d in datasets}
    return rows, named


def yes_no(run: ScoredRun) -> pd.DataFrame:
    """Single answers to yes/no questions."""
    judgements = run.judged["judged"]
    return judgements[judgements["task"] == YES_NO]


def samples_of(run: ScoredRun, store: Thumbnails) -> Sequence[Block]:
    """The first OOD pairs of each split and data set with their images, as figures 17 and 18.

    Args:
        run: with yes/no answers, whose index numbers the pictures.
        store: of the pictures.
    """
    judgements = yes_no(run)
    rows = judgements[judgements["split"].isin(_OOD)].drop_duplicates("pair_id")
    datasets = rows.get(DATASET, pd.Series("", rows.index)).fillna("")
    words = rows["split"].map(SPLITS) + datasets.where(datasets == "", ", " + datasets)
    names = {name: f"Pairs of {name}" for name in sorted(set(words))}
    note = "The first pairs of each OOD split: the category below its image."
    rows = rows.assign(split=words)

    def named(row: Row) -> str:
        return str(row.get("category", row["text"]))

    return first_of_each("", note, rows, names, named, store).blocks


def blocks(run: ScoredRun) -> PageBlocks:
    """The parts of the page."""
    wrong, pictures = wrong_answers(yes_no(run), SPLITS, run.source)
    return PageBlocks(summary(run), samples_of(run, pictures), figures(run), wrong, pictures)


def figures(run: ScoredRun) -> Iterator[PlannedFigure | Folded]:
    """Results, levels, data sets and the division."""
    remark = "Positive class: yes."
    splits = list(run.whole["split"])
    cells_of = TOGETHER if TOGETHER in splits else splits[0]
    cut = {split: words for split, words in SPLITS.items() if split not in UNCUT}
    yield from answer_figures(run, METRICS, SPLITS, _LEVEL_METRICS, cells_of, remark, cut)
    single, _ = by_dataset(run)
    if len(single):
        series = ("name", {name: name for name in dict.fromkeys(single["name"])})
        footer = f"{run.title}. {remark}"
        draw = partial(bar_panels, single, METRICS, SPLITS, footer, series=series)
        yield captioned("datasets", draw)
    bap = whole(run.results[run.results["metric"].isin(BAP)])
    if len(bap):
        draw = partial(bar_panels, bap, BAP, SPLITS, f"{run.title}. 95% intervals.")
        yield captioned("bap", draw)
    yield from distribution_figures(run.tables[DISTRIBUTION], SPLITS, run.title)
    file = run.source / DIVISION
    if file.exists() and run.record.division:
        yield from purified_figures(read_table(file), float(run.record.division["threshold"]))


WORDS = BenchmarkWords(
    name="OODBench",
    kind=KIND,
    asks=(YES_NO, *BAP_TASKS),
    headlines=(
        Headline("id", "accuracy", "ID Acc"),
        Headline("ood_s", "accuracy", "OOD-S Acc"),
        Headline("ood_h", "accuracy", "OOD-H Acc"),
    ),
    sentences=(ACCURACY,),
    compared=METRICS,
    definitions=defined("oodbench", "yes_no", "doubt", "oodbench_bap"),
    # As the paper's tables 1, 3 and 10 to 17.
    metric_tables={"Yes/no questions": METRICS, "Basic-to-advanced progression": BAP},
    sets=SPLITS,
    # Those of several sets or of uncut ones are only in tables.
    told_as=SPLITS | dict.fromkeys((TOGETHER, *UNCUT), ""),
    finer=(DATASET,),
    joined=UNCUT,
    of_building=("annotations", "image_text", "division", "datasets"),
)
