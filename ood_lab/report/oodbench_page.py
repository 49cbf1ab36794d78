"""The page of OODBench: a single file that needs nothing else."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import pandas as pd
from PIL import Image

from ood_lab.lvlm.oodbench.figures import purified_histograms, risk_coverage_figure
from ood_lab.lvlm.oodbench.uncertainty import answered, risk_coverage
from ood_lab.report.answers_page import (
    AnswersPage,
    Planned,
    Shown,
    asked_and_said,
    draw_figures,
    interval_facts,
    metric_table,
)
from ood_lab.report.figures.bars import bar_panels
from ood_lab.report.figures.heatmap import level_cells
from ood_lab.report.figures.lines import level_lines
from ood_lab.report.html_tables import HtmlTable
from ood_lab.report.mistakes import Mistake, Thumbnails
from ood_lab.report.oodbench_tables import BAP, BAP_SIZES, SIZES, SPLITS, WAYS, YES_NO, whole_splits
from ood_lab.report.pictures import Pictures

_SHOWN = 6  # questions of a split
_LEVEL_METRICS = {"accuracy": "Acc", "yes_rate": "yes-rate", "f1": "F1"}
_DOWNLOADS = (
    "results.csv",
    "results.parquet",
    "uncertainty.csv",
    "judged.parquet",
    "questions.jsonl",
    "answers.jsonl",
    "division.parquet",
    "audit.csv",
    "config.yaml",
)
_DEFINITIONS = (
    (
        "Purified probability",
        "p_c of an annotated label c: the softmax of an image-text model's scores over c and all "
        "labels that are absent; the other annotated labels are left out.",
    ),
    (
        "Flagged",
        "Case 1: an absent label scores higher than the annotated ones. Case 2: p_c is below T. "
        "How the two go together stands in the manifest.",
    ),
    ("OOD-H, OOD-S", "Annotated pairs of image and category that all (H) or some (S) models flag."),
    (
        "ID",
        "Random pairs that are in no OOD split: of objects that are there, as OOD pairs are, "
        "unless task.id_pairing says otherwise (any: most ask about a category that is absent).",
    ),
    (
        "Question pair",
        "Each pair is asked about twice, with opposite answers: does the image contain it, does it "
        "not contain it. Whoever always says yes is right half of the time.",
    ),
    (
        "Acc, P, R, F1, MCC",
        "Accuracy, precision, recall, F1 and Matthews' correlation with yes as the positive class; "
        "0 where a denominator is 0. Pooled: counts of all splits together, not a mean of them.",
    ),
    ("yes-rate", "Share of the answers that say yes; half of the right answers do."),
    (
        "Unparsed, failed",
        "Replies in which the parser found no answer, and requests without a reply. A failed "
        "request removes its pair; an unparsed answer removes it or counts as wrong.",
    ),
    (
        "Cut",
        "Replies that reached their longest length. Such a reply counts only where nothing that "
        "could have followed would change what is read; else it is unparsed.",
    ),
    (
        "BAP",
        "Basic-to-advanced progression: existence of c1, count of c2, and whether there are more "
        "of c1 than of c2. Logic is right where the count and the comparison are.",
    ),
    ("Interval", "95% bootstrap intervals; pairs (BAP: images) are resampled whole."),
)


def write_oodbench_page(
    folder: Path,
    results: pd.DataFrame,
    judged: pd.DataFrame,
    division: pd.DataFrame | None,
    manifest: Mapping[str, Any],
) -> Path:
    """Writes ``oodbench.html`` and the figures of a run.

    Args:
        folder: run folder.
        results: see :func:`ood_lab.lvlm.oodbench.scoring.results_of`.
        judged: see :func:`ood_lab.lvlm.judged.judge`.
        division: of the annotated pairs; None where the questions come from elsewhere.
        manifest: ``title``, ``unparsed`` and ``lvlm`` are read; all of it is shown.

    Returns:
        The page.
    """
    first = str(manifest["unparsed"])
    whole = whole_splits(results)
    rows = results[results["unparsed"] == first]
    footer = f"{manifest['title']}. Positive class: yes; 95% intervals."
    planned = [
        *_planned(results, rows, division, manifest, footer),
        *_doubt(judged, f"{manifest['title']}."),
    ]
    files = judged["file"].tolist()
    pictures = Pictures(lambda _, row: Image.open(files[row]) if files[row] else None)
    store = Thumbnails(pictures)
    ways = sorted(WAYS, key=lambda way: way != first)
    page = AnswersPage(
        title=manifest["title"],
        sentence="Positive class: yes",
        facts=_facts(whole[whole["unparsed"] == first]),
        tables=[*(_yes_no_table(whole, way) for way in ways), *_bap_tables(whole)],
        figures=draw_figures(folder / "figures", planned),
        heading="Wrong answers",
        note="The first of each split, with the model's reply.",
        shown=[_mistakes(judged, split, store) for split in SPLITS if split != "pooled"],
        thumbnails=store,
        definitions=_DEFINITIONS,
        downloads=_DOWNLOADS,
    ).write(folder / "oodbench.html", manifest)
    pictures.warn("oodbench.html")
    return page


def _planned(
    results: pd.DataFrame,
    rows: pd.DataFrame,
    division: pd.DataFrame | None,
    manifest: Mapping[str, Any],
    footer: str,
) -> Iterator[Planned]:
    whole = whole_splits(rows)
    plain = f"{manifest['title']}. Positive class: yes."  # below what shows no intervals
    caption = "Answers to yes/no questions of every split, with 95% intervals."
    yield Planned("splits", "Splits", caption, lambda: bar_panels(whole, YES_NO, SPLITS, footer))
    bap = whole_splits(results[results["metric"].isin(BAP)])
    if len(bap):
        caption = "Basic-to-advanced progression: share of samples that are right."
        yield Planned(
            "bap", "Basic to advanced", caption, lambda: bar_panels(bap, BAP, SPLITS, footer)
        )
    caption = "By known level of shift of the image."
    yield Planned(
        "levels",
        "By level of shift",
        caption,
        lambda: level_lines(rows, _LEVEL_METRICS, SPLITS, footer),
    )
    yield Planned(
        "cells",
        "Semantic × covariate level",
        "All splits pooled, by the known levels of shift of the image.",
        lambda: level_cells(rows, _LEVEL_METRICS, "pooled", plain, "n_pairs"),
    )
    if division is not None and len(division):
        threshold = float(manifest["division"]["threshold"])
        yield Planned(
            "purified",
            "Purified probabilities",
            "How sure the models of the division are of what is annotated, by category.",
            lambda: purified_histograms(division, threshold),
        )


def _doubt(judged: pd.DataFrame, footer: str) -> Iterator[Planned]:
    """Risk over coverage, where the model gives probabilities."""
    rows = answered(judged)
    if not len(rows):
        return
    parts = {SPLITS[str(split)]: part for split, part in rows.groupby("split", sort=False)}
    curves = {
        name: risk_coverage(part["doubt"].to_numpy(), part["wrong"].to_numpy(bool))
        for name, part in parts.items()
    }
    caption = "Share of wrong answers among those of which the model is most certain."
    title = "Risk over coverage"
    yield Planned("risk_coverage", title, caption, lambda: risk_coverage_figure(curves, footer))


def _facts(whole: pd.DataFrame) -> list[tuple[str, str, str]]:
    facts = interval_facts(whole, "accuracy", lambda split: f"Accuracy, {SPLITS[split]}")
    pooled = whole[(whole["split"] == "pooled") & (whole["metric"] == "accuracy")]
    for row in pooled.to_dict("records"):
        cut = f"{row['n_cut']:,} cut, " if row["n_cut"] else ""
        remark = f"{row['n_unparsed']:,} unparsed, {cut}{row['n_failed']:,} failed"
        facts.append(("Questions", f"{row['n_asked']:,}", remark))
    return facts


def _yes_no_table(whole: pd.DataFrame, way: str) -> HtmlTable:
    rows = whole[whole["unparsed"] == way]
    caption = f"Yes/no questions in %: {WAYS[way]}"
    return metric_table(caption, "split", rows, SPLITS, SIZES, YES_NO)


def _bap_tables(whole: pd.DataFrame) -> list[HtmlTable]:
    rows = whole[whole["metric"].isin(BAP)]
    caption = "Basic-to-advanced progression in %"
    return [metric_table(caption, "split", rows, SPLITS, BAP_SIZES, BAP)] if len(rows) else []


def _mistakes(judged: pd.DataFrame, split: str, store: Thumbnails) -> Shown:
    """The first wrong answers of a split, each of another image."""
    wrong = judged[
        (judged["split"] == split) & (judged["task"] == "yes_no") & (judged["status"] == "parsed")
    ]
    wrong = wrong[~wrong["correct"].astype(bool)].drop_duplicates("file")
    items = []
    for row in wrong.iloc[:_SHOWN].reset_index().to_dict("records"):
        text = asked_and_said(row["text"], row["reply"], row["truth"])
        items.append(Mistake(text, store.number(split, int(row["index"]))))
    return Shown(SPLITS[split], items)
