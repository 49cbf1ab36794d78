"""The page of ORIC: a single file that needs nothing else."""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

import pandas as pd
from PIL import Image

from ood_lab.io import read_table
from ood_lab.lvlm.oric.figures import context_curves, measure_bars, tier_bars
from ood_lab.report.answers_page import (
    AnswersPage,
    Planned,
    Shown,
    asked_and_said,
    draw_figures,
    interval_facts,
    metric_table,
)
from ood_lab.report.differences import difference_table
from ood_lab.report.figures.bars import bar_panels
from ood_lab.report.figures.heatmap import level_cells
from ood_lab.report.figures.lines import level_lines
from ood_lab.report.html_tables import Cell, Head, HtmlTable
from ood_lab.report.mistakes import Mistake, Thumbnails
from ood_lab.report.oric_tables import METRICS, SETS, SIZES, mean_rows
from ood_lab.report.pictures import Pictures
from ood_lab.report.protocol import MISSING, percent

_SHOWN = 6  # questions of a set
_FIGURE_METRICS = (
    "macro_f1",
    "recall_yes",
    "recall_no",
    "yes_rate",
    "precision_yes",
    "precision_no",
)
_COMPARED = {key: METRICS[key] for key in ("macro_f1", "recall_yes", "recall_no", "yes_rate")}
_LEVEL_METRICS = {"macro_f1": "F1", "recall_yes": "R yes", "recall_no": "R no"}
#: Sets that figures of lines show: without the ablations.
_LINES = {name: words for name, words in SETS.items() if name.startswith(("oric", "pope"))}
_LABELS = {"yes": "present", "no": "absent"}
_DOWNLOADS = (
    "oric_bench.json",
    "oric_train.json",
    "audit.csv",
    "results.csv",
    "differences.csv",
    "models.csv",
    "context.csv",
    "tiers.csv",
    "analyses.csv",
    "judged.parquet",
    "questions.jsonl",
    "answers.jsonl",
    "config.yaml",
)
_DEFINITIONS = (
    (
        "Positive",
        "An object that is there, smaller than the median of its image, whose presence the judge "
        "does not expect from the names of the larger ones.",
    ),
    (
        "Negative",
        "An object that is not there, among those that a CLIP finds most likely in the image; the "
        "image is the nearest one to that of the positives.",
    ),
    (
        "uniform, positives only, negatives only",
        "Ablations: both samplers draw at random, or only that of negatives, or of positives.",
    ),
    (
        "POPE",
        "Questions from the same annotations as POPE draws them: absent objects at random, the "
        "most frequent ones, or those most often seen with an object that is there.",
    ),
    (
        "P, R, F1",
        "Precision, recall and F1 of yes and of no; without a name, their plain mean. Computed "
        "for each wording of the questions, then averaged.",
    ),
    ("yes-rate", "Share of the answers that say yes; half of the right answers do."),
    (
        "Unmatched, failed",
        "Replies in which no answer was found: wrong, but neither yes nor no. Requests without a "
        "reply are left out.",
    ),
    (
        "Cut",
        "Replies that reached their longest length. Such a reply counts only where nothing that "
        "could have followed would change what is read; else it is unmatched.",
    ),
    (
        "P(object | context)",
        "Mean, over the other objects of the image, of the share of the other images with that "
        "object that have the one in question too.",
    ),
    (
        "Least distance",
        "Of a class: the least 1 - cosine of an image with it and one without it; mean over "
        "classes that are asked about with both answers.",
    ),
    ("CLIPScore", "100 times the cosine of image and text; no factor of 2.5, no clamp."),
    ("Interval", "95% bootstrap intervals that resample images whole."),
)


@dataclass(frozen=True)
class _Tables:
    """The tables that lie in the folders of a run."""

    differences: pd.DataFrame | None
    models: pd.DataFrame | None
    context: pd.DataFrame | None
    tiers: pd.DataFrame | None
    analyses: pd.DataFrame | None


def write_oric_page(
    folder: Path,
    built: Path,
    results: pd.DataFrame,
    judged: pd.DataFrame,
    manifest: Mapping[str, Any],
) -> Path:
    """Writes ``oric.html`` and the figures of a run.

    Args:
        folder: run folder, with the tables of its last stage.
        built: folder of the run that made the questions.
        results: see :func:`ood_lab.lvlm.oric.scoring.results_of`.
        judged: see :func:`ood_lab.lvlm.judged.judge`.
        manifest: ``title`` is read; all of it is shown.

    Returns:
        The page.
    """
    names = ("differences", "models", "context", "tiers")
    files = [*(folder / f"{name}.csv" for name in names), built / "analyses.csv"]
    tables = _Tables(*(read_table(file) if file.is_file() else None for file in files))
    footer = f"{manifest['title']}. 95% intervals that resample images."
    title = f"{manifest['title']}."  # below what shows no intervals
    planned = [*_of_answers(results, tables, footer, title), *_of_questions(tables, footer)]
    images = judged["file"].tolist()
    pictures = Pictures(lambda _, row: Image.open(images[row]) if images[row] else None)
    store = Thumbnails(pictures)
    page = AnswersPage(
        title=manifest["title"],
        sentence="Mean over the wordings of each question",
        facts=_facts(results),
        tables=list(_html_tables(results, tables)),
        figures=draw_figures(folder / "figures", planned),
        heading="Wrong answers",
        note="The first of each set of questions, with the model's reply.",
        shown=[_mistakes(judged, split, store) for split in SETS],
        thumbnails=store,
        definitions=_DEFINITIONS,
        downloads=_DOWNLOADS,
    ).write(folder / "oric.html", manifest)
    pictures.warn("oric.html")
    return page


def _of_answers(
    results: pd.DataFrame, tables: _Tables, footer: str, title: str
) -> Iterator[Planned]:
    whole = mean_rows(results)
    metrics = {name: METRICS[name] for name in _FIGURE_METRICS}
    caption = "Answers to every set of questions, mean over the wordings."
    yield Planned(
        "sets", "Sets of questions", caption, partial(bar_panels, whole, metrics, SETS, footer)
    )
    if tables.context is not None:
        sets = {n: words for n, words in _LINES.items() if (tables.context["split"] == n).any()}
        yield Planned(
            "context",
            "By P(object | context)",
            context_words(tables.context),
            partial(context_curves, tables.context, sets, footer),
        )
    shown = results["split"].isin(_LINES) & (results["prompt"] == "mean")
    levels = results[shown].rename(columns={"n_items": "n"})
    yield Planned(
        "levels",
        "By level of shift",
        "By known level of shift of the image.",
        partial(level_lines, levels, _LEVEL_METRICS, _LINES, footer),
    )
    yield Planned(
        "cells",
        "Semantic × covariate level",
        "ORIC's questions, by the known levels of shift of the image.",
        partial(level_cells, levels, _LEVEL_METRICS, "oric", title),
    )


def context_words(curve: pd.DataFrame) -> str:
    """What the answers of all sets say of expected and unexpected objects, and how surely.

    Args:
        curve: see :func:`ood_lab.lvlm.oric.analyses.curve_of`.
    """
    sentences = ["Bins have equally many questions."]
    for truth, words in (("yes", "Of objects that are there"), ("no", "Of absent objects")):
        rows = curve[(curve["split"] == "all") & (curve["truth"] == truth)].sort_values("p_context")
        if len(rows) < 2:
            continue
        # An absent object that is seen is a wrong answer.
        low, high = (_seen(row, truth) for row in rows.iloc[[0, -1]].to_dict("records"))
        if math.isnan(low[1]) or math.isnan(high[1]):
            verdict = "there are no intervals to tell them apart"
        elif low[2] < high[1]:
            verdict = "expected ones are seen more often"
        elif high[2] < low[1]:
            verdict = "expected ones are seen less often"
        else:
            verdict = "the intervals overlap"
        least, most = (
            percent(value) + ("" if math.isnan(a) else f" [{percent(a)}, {percent(b)}]")
            for value, a, b in (low, high)
        )
        sentences.append(
            f"{words}, {least}% are seen where they are least expected and {most}% where they are "
            f"most expected: {verdict}."
        )
    return " ".join(sentences)


def _seen(row: Mapping[Any, Any], truth: str) -> tuple[float, float, float]:
    """Share of "yes", and its interval."""
    value, low, high = (float(row[name]) for name in ("accuracy", "ci_low", "ci_high"))
    return (value, low, high) if truth == "yes" else (1 - value, 1 - high, 1 - low)


def _of_questions(tables: _Tables, footer: str) -> Iterator[Planned]:
    found = tables.analyses
    if found is None:
        return
    shares = found[found["analysis"] == "tier_share"]
    recall = tables.tiers if tables.tiers is not None else shares.iloc[:0].assign(tier="")
    if len(shares):
        yield Planned(
            "tiers",
            "Sizes of objects",
            "By the area of the boxes of an object, and how often it is then seen.",
            partial(tier_bars, shares, recall, SETS, footer),
        )
    for name, title in (
        ("clip_score", "CLIPScore of image and text"),
        ("p_context", "P(object | other objects of the image)"),
    ):
        rows = found[found["analysis"] == name]
        if len(rows):
            rows = rows.assign(series=rows["label"].map(_LABELS))
            caption = "Mean over the questions of each set, by the right answer."
            yield Planned(name, title, caption, partial(measure_bars, rows, SETS, title, footer))
    rows = found[(found["analysis"] == "min_distance") & (found["key"] == "mean")]
    if len(rows):
        title = "Least distance of an image with a class and one without"
        draw = partial(measure_bars, rows.assign(series=rows["clip"]), SETS, title, footer)
        yield Planned(
            "min_distance", title, "1 - cosine, mean over classes, in each CLIP's space.", draw
        )


def _facts(results: pd.DataFrame) -> list[tuple[str, str, str]]:
    """Name, value and remark of the numbers at the top of the page."""
    whole = mean_rows(results)
    facts = interval_facts(whole, "macro_f1", lambda split: f"F1, {SETS[split]}")
    rows = whole[(whole["split"] == "oric") & (whole["metric"] == "accuracy")]
    for row in rows.to_dict("records"):
        cut = f"{row['n_cut']:,} cut, " if row["n_cut"] else ""
        remark = f"{row['n_unparsed']:,} unmatched, {cut}{row['n_failed']:,} failed"
        facts.append(("ORIC's questions", f"{row['n_asked']:,}", remark))
    return facts


def _html_tables(results: pd.DataFrame, tables: _Tables) -> Iterator[HtmlTable]:
    whole = mean_rows(results)
    caption = "Answers in %, mean over the wordings"
    yield metric_table(caption, "questions", whole, SETS, SIZES, METRICS)
    single = results[(results["split"] == "oric") & (results["prompt"] != "mean")]
    numbers = {str(n): f"wording {n}" for n in sorted(set(single["prompt"]))}
    if len(numbers) > 1:
        caption = "ORIC's questions by wording, in %"
        yield metric_table(caption, "questions", single, numbers, SIZES, METRICS, "prompt")
    for table, title in (
        (tables.differences, "ORIC minus other questions, points"),
        (tables.models, "Models on the same questions, points"),
    ):
        if table is not None:
            yield difference_table(title, table, SETS, _COMPARED)
    if tables.analyses is not None:
        yield _analysis_table(tables.analyses)


def _analysis_table(found: pd.DataFrame) -> HtmlTable:
    """One row per set: sizes, CLIPScores, P(object | context) and least distances."""
    rows = found[(found["analysis"] != "min_distance") | (found["key"] == "mean")]
    named = {_heading(row): None for row in rows.to_dict("records")}
    values = {(row["split"], _heading(row)): row for row in rows.to_dict("records")}
    splits = [split for split in SETS if (rows["split"] == split).any()]
    heads = [Head("questions", "ascending"), *(Head(name) for name in named)]
    cells = [
        [Cell(SETS[split], place), *(_value(values.get((split, name))) for name in named)]
        for place, split in enumerate(splits)
    ]
    return HtmlTable("What is known of the questions without an answer", heads, cells)


def _heading(row: Mapping[Any, Any]) -> str:
    label = _LABELS.get(row["label"], "")
    return {
        "tier_share": f"{row['key']}, %",
        "clip_score": f"CLIPScore {label}",
        "p_context": f"P(object | context) {label}",
        "min_distance": f"least distance, {row['clip']}",
    }[row["analysis"]]


def _value(row: Mapping[Any, Any] | None) -> Cell:
    if row is None:
        return Cell(MISSING)
    factor, digits = {"tier_share": (100, 1), "clip_score": (1, 1)}.get(row["analysis"], (1, 3))
    value, low, high = (factor * float(row[name]) for name in ("value", "ci_low", "ci_high"))
    interval = "" if math.isnan(low) else f"{low:.{digits}f} to {high:.{digits}f}"
    return Cell(f"{value:.{digits}f}", value, interval)


def _mistakes(judged: pd.DataFrame, split: str, store: Thumbnails) -> Shown:
    """The first wrong answers of a set, each of another image."""
    rows = judged[(judged["split"] == split) & (judged["status"] == "parsed")]
    wrong = rows[~rows["correct"].astype(bool)].drop_duplicates("file").iloc[:_SHOWN]
    items = []
    for row, answer in zip(wrong.index.tolist(), wrong.to_dict("records"), strict=True):
        asked = str(answer["text"]).split("\n")[0].removeprefix("Question: ")
        text = asked_and_said(asked, answer["reply"], answer["truth"])
        items.append(Mistake(text, store.number(split, row)))
    return Shown(SETS[split], items)
