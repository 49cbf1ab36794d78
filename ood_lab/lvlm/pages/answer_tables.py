"""Tables of answers by set: yes/no, other kinds of questions, doubt, and repeated samples."""

from __future__ import annotations

from collections.abc import Collection, Iterator

import pandas as pd

from ood_lab.common.grouping import distinct
from ood_lab.lvlm.pages.benchmark_page import ScoredRun, metric_table
from ood_lab.lvlm.scoring.answer_differences import AGREEMENT
from ood_lab.lvlm.scoring.kind_scores import KINDS
from ood_lab.lvlm.scoring.scored_results import POOLED
from ood_lab.lvlm.scoring.uncertainty import METRICS
from ood_lab.report.rendering.table import Head, Table, mean_cell, names_column, pivoted
from ood_lab.schema.results import PART, NamedTables, Names, whole

WORDS = {
    "drop_pair": "an unparsed answer removes its pair",
    "wrong": "an unparsed answer counts as wrong",
}


def yes_no_tables(run: ScoredRun, metrics: Names, splits: Names) -> Iterator[Table]:
    """Whole sets, with unparsed answers treated both ways; once where none is unparsed.

    Args:
        run: with rows of :func:`yes_no_rows`.
        metrics: metric and heading.
        splits: set and what it is called.
    """
    notes = ["Positive class: yes. ± half of the 95% interval, from resampling question pairs."]
    for title, part in by_way("Yes/no questions, %", run, metrics):
        yield metric_table(title, "split", whole(part), splits, metrics, notes=notes)


def by_way(title: str, run: ScoredRun, metrics: Collection[str]) -> NamedTables:
    """Title and rows of these metrics for each treatment of unparsed answers; one if none is."""
    rows = run.results[run.results["metric"].isin(metrics)]
    lost = bool(rows["n_unparsed"].any())
    for way, part in rows.groupby("unparsed", sort=False):
        yield (f"{title}; {WORDS[str(way)]}" if lost else title), part
        if not lost:
            return


def doubt_table(run: ScoredRun, splits: Names) -> Iterator[Table]:
    """The rows of :func:`uncertainty_rows`, where the model gave probabilities.

    Args:
        run: with these rows.
        splits: set and what it is called.
    """
    doubts = run.whole[run.whole["metric"].isin(METRICS)]
    if len(doubts):
        title = "Does the model doubt what it gets wrong? %"
        notes = ["Doubt: 1 - max(P(yes), P(no)). AUROC: 50 is chance."]
        yield metric_table(title, "split", doubts, splits, METRICS, notes=notes)


def kind_tables(run: ScoredRun, splits: Names) -> Iterator[Table]:
    """A table of each kind in the file, and one of its categories, where there are any."""
    for title, names in KINDS.values():
        for caption, part in by_way(f"{title}, %", run, names):
            yield metric_table(caption, "split", whole(part), splits, names)
            of = part[(part["split"] == POOLED) & part[PART].fillna("").str.startswith("category ")]
            named = {item: item.removeprefix("category ") for item in dict.fromkeys(of[PART])}
            if len(named) > 1:
                heading = f"{caption}, by category"
                yield metric_table(heading, "category", of, named, names, key=PART)


def spread_table(spread: pd.DataFrame, names: Names, metrics: Names) -> Table:
    """Mean ± standard deviation of each set and metric."""
    words = {**metrics, AGREEMENT: "same answer each time"}
    splits = distinct(spread["split"])
    cells = {
        (row["split"], Head(text)): mean_cell({"value": row["mean"], "seed_std": row["sd"]})
        for metric, text in words.items()
        for row in spread[spread["metric"] == metric].to_dict("records")
    }
    title = f"{spread['samples'].iloc[0]} samples of each question: mean ± standard deviation, %"
    note = "All other numbers are of the first sample of each question."
    first = names_column("split", [names.get(split, split) for split in splits], ordered=True)
    return pivoted(title, [first], splits, cells, notes=[note])
