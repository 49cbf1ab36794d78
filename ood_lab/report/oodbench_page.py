"""The page of OODBench: a single file that needs nothing else."""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple

import pandas as pd
from PIL import Image

from ood_lab.lvlm.oodbench.uncertainty import answered, risk_coverage
from ood_lab.report.figures import FigureFile, write_figure
from ood_lab.report.figures.answer_levels import level_cells, level_lines
from ood_lab.report.figures.purified import purified_histograms
from ood_lab.report.figures.risk_coverage import risk_coverage_figure
from ood_lab.report.figures.style import rc
from ood_lab.report.figures.yes_no import split_bars
from ood_lab.report.html_tables import Cell, Head, HtmlTable, flatten
from ood_lab.report.mistakes import Mistake, Thumbnails
from ood_lab.report.oodbench_tables import BAP, SIZES, SPLITS, WAYS, YES_NO, whole_splits
from ood_lab.report.optional import optional
from ood_lab.report.page import embed, page_template, save_page
from ood_lab.report.pictures import Pictures
from ood_lab.report.protocol import MISSING, percent

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
    ("ID", "Random pairs that are in no OOD split; most ask about a category that is absent."),
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
        "BAP",
        "Basic-to-advanced progression: existence of c1, count of c2, and whether there are more "
        "of c1 than of c2. Logic is right where the count and the comparison are.",
    ),
    ("Interval", "95% bootstrap intervals; pairs (BAP: images) are resampled whole."),
)


class Shown(NamedTuple):
    """Questions of one split that were answered wrongly."""

    name: str
    items: Sequence[Mistake]


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
    figures = write_oodbench_figures(folder / "figures", results, judged, division, manifest)
    files = judged["file"].tolist()
    pictures = Pictures(lambda _, row: Image.open(files[row]) if files[row] else None)
    store = Thumbnails(pictures)
    mistakes = [_mistakes(judged, split, store) for split in SPLITS if split != "pooled"]
    ways = sorted(WAYS, key=lambda way: way != first)
    tables = [_yes_no_table(whole[whole["unparsed"] == way], way) for way in ways]
    page = page_template("oodbench.html.j2").render(
        title=manifest["title"],
        sentence="Positive class: yes",
        facts=_facts(whole[whole["unparsed"] == first]),
        warnings=manifest.get("warnings", []),
        tables=[*tables, *_bap_tables(whole)],
        figures=[embed(figure, folder) for figure in figures],
        mistakes=[shown for shown in mistakes if shown.items],
        thumbnails=store.uris,
        definitions=_DEFINITIONS,
        manifest=flatten(dict(manifest)),
        downloads=[name for name in _DOWNLOADS if (folder / name).exists()],
    )
    pictures.warn("oodbench.html")
    return save_page(folder / "oodbench.html", page)


def write_oodbench_figures(
    folder: Path,
    results: pd.DataFrame,
    judged: pd.DataFrame,
    division: pd.DataFrame | None,
    manifest: Mapping[str, Any],
) -> list[FigureFile]:
    """Writes every figure that the tables allow; one that fails is left out with a warning."""
    rows = results[results["unparsed"] == str(manifest["unparsed"])]
    footer = f"{manifest['title']}. Positive class: yes; 95% intervals."
    files = []
    with rc():
        for name, title, caption, draw in (
            *_planned(results, rows, division, manifest, footer),
            *_doubt(judged, footer),
        ):
            with optional(f"figure {name}"):
                if (figure := draw()) is not None:
                    files.append(write_figure(folder, name, title, caption, figure))
    return files


def _planned(
    results: pd.DataFrame,
    rows: pd.DataFrame,
    division: pd.DataFrame | None,
    manifest: Mapping[str, Any],
    footer: str,
) -> Iterator[tuple[str, str, str, Any]]:
    whole = whole_splits(rows)
    caption = "Answers to yes/no questions of every split, with 95% intervals."
    yield "splits", "Splits", caption, lambda: split_bars(whole, YES_NO, SPLITS, footer)
    bap = whole_splits(results[results["metric"].isin(BAP)])
    if len(bap):
        caption = "Basic-to-advanced progression: share of samples that are right."
        yield "bap", "Basic to advanced", caption, lambda: split_bars(bap, BAP, SPLITS, footer)
    caption = "By known level of shift of the image."
    yield (
        "levels",
        "By level of shift",
        caption,
        lambda: level_lines(rows, _LEVEL_METRICS, SPLITS, footer),
    )
    yield (
        "cells",
        "Semantic × covariate level",
        "All splits pooled, by the known levels of shift of the image.",
        lambda: level_cells(rows, _LEVEL_METRICS, "pooled", footer),
    )
    if division is not None and len(division):
        threshold = float(manifest["division"]["threshold"])
        yield (
            "purified",
            "Purified probabilities",
            "How sure the models of the division are of what is annotated, by category.",
            lambda: purified_histograms(division, threshold),
        )


def _doubt(judged: pd.DataFrame, footer: str) -> Iterator[tuple[str, str, str, Any]]:
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
    yield "risk_coverage", title, caption, lambda: risk_coverage_figure(curves, footer)


def _facts(whole: pd.DataFrame) -> list[tuple[str, str, str]]:
    facts = []
    for row in whole[whole["metric"] == "accuracy"].to_dict("records"):
        remark = f"95% interval {percent(row['ci_low'])} to {percent(row['ci_high'])}"
        name = f"Accuracy, {SPLITS[row['split']]}"
        facts.append((name, f"{percent(row['value'])}%", remark))
    pooled = whole[(whole["split"] == "pooled") & (whole["metric"] == "accuracy")]
    for row in pooled.to_dict("records"):
        remark = f"{row['n_unparsed']:,} unparsed, {row['n_failed']:,} failed"
        facts.append(("Questions", f"{row['n_asked']:,}", remark))
    return facts


def _yes_no_table(rows: pd.DataFrame, way: str) -> HtmlTable:
    return _table(f"Yes/no questions in %: {WAYS[way]}", rows, YES_NO)


def _bap_tables(whole: pd.DataFrame) -> list[HtmlTable]:
    rows = whole[whole["metric"].isin(BAP)]
    return [_table("Basic-to-advanced progression in %", rows, BAP)] if len(rows) else []


def _table(caption: str, rows: pd.DataFrame, metrics: Mapping[str, str]) -> HtmlTable:
    found = {(row["split"], row["metric"]): row for row in rows.to_dict("records")}
    splits = [split for split in SPLITS if any(key[0] == split for key in found)]
    first = next(iter(metrics))
    heads = [Head("split", "ascending"), *(Head(name) for name in SIZES.values())]
    cells = []
    for place, split in enumerate(splits):
        sizes = [int(found[split, first][name]) for name in SIZES]
        start = [Cell(SPLITS[split], place), *(Cell(f"{size:,}", size) for size in sizes)]
        cells.append([*start, *(_cell(found[split, metric]) for metric in metrics)])
    return HtmlTable(caption, [*heads, *(Head(name) for name in metrics.values())], cells)


def _cell(row: Mapping[Any, Any]) -> Cell:
    value, low, high = (float(row[name]) for name in ("value", "ci_low", "ci_high"))
    if math.isnan(value):
        return Cell(MISSING)
    interval = "" if math.isnan(low) else f"{percent(low)} to {percent(high)}"
    return Cell(percent(value), value, interval)


def _mistakes(judged: pd.DataFrame, split: str, store: Thumbnails) -> Shown:
    """The first wrong answers of a split, each of another image."""
    wrong = judged[
        (judged["split"] == split) & (judged["task"] == "yes_no") & (judged["status"] == "parsed")
    ]
    wrong = wrong[~wrong["correct"].astype(bool)].drop_duplicates("file")
    items = []
    for row in wrong.iloc[:_SHOWN].reset_index().to_dict("records"):
        text = f"{row['text']} {str(row['reply']).strip()[:60]} (right: {row['truth']})"
        items.append(Mistake(text, store.number(split, int(row["index"]))))
    return Shown(SPLITS[split], items)
