"""The page of ODE: a single file that needs nothing else."""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import pandas as pd
from PIL import Image

from ood_lab.io import read_table
from ood_lab.lvlm.ode.figures import feature_clouds, tendency_matrix
from ood_lab.lvlm.ode.tendencies import Tendencies
from ood_lab.report.answers_page import (
    AnswersPage,
    Planned,
    Shown,
    draw_figures,
    interval_facts,
    metric_table,
    quoted,
)
from ood_lab.report.differences import difference_table
from ood_lab.report.figures.bars import bar_panels
from ood_lab.report.figures.heatmap import level_cells
from ood_lab.report.figures.lines import level_lines, trend_lines
from ood_lab.report.html_tables import Cell, Head, HtmlTable
from ood_lab.report.mistakes import Mistake, Thumbnails
from ood_lab.report.ode_tables import (
    ANSWERS,
    CAPTIONS,
    COMPARED,
    POPE,
    SIZES,
    WAYS,
    named,
    whole_criteria,
)
from ood_lab.report.pictures import Pictures
from ood_lab.report.protocol import MISSING

_SHOWN = 6  # captions of a criterion
_LETTERS = 140
_LEVEL_METRICS = {"chair": "CHAIR", "hal": "Hal", "all_accuracy": "Acc"}
_DOWNLOADS = (
    "results.csv",
    "results.parquet",
    "amber.csv",
    "differences.csv",
    "styles.csv",
    "models.csv",
    "captions.parquet",
    "judged.parquet",
    "questions.jsonl",
    "answers.jsonl",
    "pictures.jsonl",
    "plan.jsonl",
    "pairs.csv",
    "graph_T.graphml",
    "graph_H.graphml",
    "graphs.csv",
    "audit.csv",
    "effectiveness.csv",
    "tendencies.csv",
    "tendencies_groups.csv",
    "tendencies_matrix.csv",
    "change.csv",
    "tuning_llava.json",
    "tuning_trl.jsonl",
    "config.yaml",
)
#: Differences between groups of answers: file, caption.
_DIFFERENCES = {
    "differences.csv": "Criteria compared, points",
    "styles.csv": "Covariate levels compared on the same scenes, points",
    "models.csv": "Models on the same questions, points",
}
#: Tables of a run that are shown as they are: file, caption.
_PLAIN = {
    "tendencies_groups.csv": "Groups of concepts by what is made up beside them",
    "effectiveness.csv": "Distance of the made images to natural ones (CLIP features)",
    "change.csv": "Change since the round before",
    "amber.csv": "As AMBER's and ODE's scripts round them, %",
}
_HEADS = {
    "split": "criterion",
    "chair": "CHAIR",
    "cover": "Cover",
    "hal": "Hal",
    "cog": "Cog",
    "rate": "rate, %",
}
_DEFINITIONS = (
    (
        "Criteria",
        "Standard: the most frequent pairs of concepts. Long-tail: pairs that meet now and then. "
        "Random: any two concepts. Fictional: two that never meet.",
    ),
    ("CHAIR", "Hallucinated objects among all objects that the captions name."),
    ("Cover", "Annotated objects that the captions name. Higher is better."),
    ("Hal", "Captions with a hallucinated object."),
    ("Cog", "Tempting absent objects (the candidates of the image) that the captions name."),
    (
        "Acc, P, R, F1",
        "Of yes/no questions, with no as the positive class: recall is the share of absent things "
        "that are denied. POPE's rows take yes.",
    ),
    (
        "Unparsed, failed",
        "Replies in which the parser found no answer, and requests without a reply. Failed "
        "requests are left out; an unparsed answer is wrong, or left out.",
    ),
    (
        "Cut",
        "Replies that reached their longest length. Of a caption what is there is read; an answer "
        "counts only where nothing that could have followed would change what is read.",
    ),
    ("Distance", "Edges between the two concepts in the graph; 1 where they meet."),
    (
        "Interval",
        "95% bootstrap intervals; images are resampled with all their answers, and those that show "
        "one scene in several styles together.",
    ),
)


def write_ode_page(
    folder: Path,
    root: Path,
    results: pd.DataFrame,
    captions: pd.DataFrame,
    judged: pd.DataFrame,
    tendencies: Tendencies | None,
    manifest: Mapping[str, Any],
) -> Path:
    """Writes ``ode.html`` and the figures of a run.

    Args:
        folder: run folder.
        root: folder that the images of the questions start from.
        results: see :func:`ood_lab.lvlm.ode.scoring.results_of`.
        captions: see :func:`ood_lab.lvlm.ode.scoring.caption_table`.
        judged: see :func:`ood_lab.lvlm.judged.judge`.
        tendencies: None where nothing is hallucinated.
        manifest: ``title``, ``unparsed`` and ``scoring`` are read; all of it is shown.

    Returns:
        The page.
    """
    first = str(manifest["unparsed"])
    whole = whole_criteria(results)
    rows = results[results["unparsed"] == first]
    planned = _planned(folder, rows, tendencies, f"{manifest['title']}.")
    files = captions["file"].tolist()
    pictures = Pictures(lambda _, row: Image.open(root / files[row]))
    store = Thumbnails(pictures)
    page = AnswersPage(
        title=manifest["title"],
        sentence="Lower is better but for Cover",
        facts=interval_facts(whole, "chair", lambda split: f"CHAIR, {named(split)}"),
        tables=[*_tables(whole, first), *_difference_tables(folder), *_plain_tables(folder)],
        figures=draw_figures(folder / "figures", planned),
        heading="Hallucinations",
        note="The first of each criterion that name what is not there.",
        shown=[_mistakes(captions, s, store) for s in dict.fromkeys(captions["split"])],
        thumbnails=store,
        definitions=_DEFINITIONS,
        downloads=_DOWNLOADS,
    ).write(folder / "ode.html", manifest)
    pictures.warn("ode.html")
    return page


def _planned(
    folder: Path, rows: pd.DataFrame, tendencies: Tendencies | None, title: str
) -> Iterator[Planned]:
    footer = f"{title} 95% intervals."  # below the figures that show some
    whole = whole_criteria(rows)
    splits = {split: named(split) for split in dict.fromkeys(whole["split"])}
    answers = {key: f"{group}: {name}" for group, m in ANSWERS.items() for key, name in m.items()}
    shown = {key: name for key, name in answers.items() if key.endswith(("accuracy", "f1"))}
    yield Planned(
        "captions",
        "Captions",
        "Hallucination in captions, by criterion.",
        lambda: bar_panels(whole, CAPTIONS, splits, footer),
    )
    yield Planned(
        "answers",
        "Yes/no questions",
        "Accuracy, and F1 with no as the positive class, by criterion.",
        lambda: bar_panels(whole, shown, splits, footer),
    )
    yield Planned(
        "levels",
        "By level of shift",
        "By known level of shift of the image; the same pairs at every covariate level.",
        lambda: level_lines(rows, _LEVEL_METRICS, splits, footer),
    )
    yield Planned(
        "cells",
        "Semantic × covariate level",
        "All criteria pooled.",
        lambda: level_cells(rows, _LEVEL_METRICS, "pooled", title, "n_pairs"),
    )
    yield Planned(
        "distance",
        "By distance in the graph",
        "Edges between the two concepts; 1 where they meet. All criteria pooled.",
        lambda: trend_lines(
            rows[rows["split"] == "pooled"], "distance", _LEVEL_METRICS, footer, "n_pairs"
        ),
    )
    if tendencies is not None:
        yield Planned(
            "tendencies",
            "What is made up beside what",
            "The concepts with most hallucinations, by group.",
            lambda: tendency_matrix(tendencies.matrix, tendencies.groups, title),
        )
    if (folder / "features.parquet").exists():
        groups = read_table(folder / "features.parquet").groupby("set", sort=False)
        features = {str(k): part.drop(columns="set").to_numpy() for k, part in groups}
        yield Planned(
            "effectiveness",
            "Made beside natural images",
            "CLIP features along their two main directions.",
            lambda: feature_clouds(features, title),
        )


def _tables(whole: pd.DataFrame, first: str) -> list[HtmlTable]:
    found = [_table("Captions, %", whole, CAPTIONS)]
    for way in sorted(WAYS, key=lambda each: each != first):
        rows = whole[whole["unparsed"] == way]
        if way != first and not rows["n_unparsed"].any():
            continue
        for title, metrics in (*ANSWERS.items(), ("Existence as POPE has it", POPE)):
            if rows["metric"].isin(metrics).any():
                found.append(_table(f"{title}, %: {WAYS[way]}", rows, metrics))
    return found


def _table(caption: str, rows: pd.DataFrame, metrics: Mapping[str, str]) -> HtmlTable:
    names = {split: named(split) for split in dict.fromkeys(rows["split"])}
    return metric_table(caption, "criterion", rows, names, SIZES, metrics)


def _difference_tables(folder: Path) -> Iterator[HtmlTable]:
    for file, caption in _DIFFERENCES.items():
        if (folder / file).exists():
            table = read_table(folder / file)
            every = [*table["a"], *table["b"]]
            names = {key: named(key) if isinstance(key, str) else f"level {key}" for key in every}
            yield difference_table(caption, table, names, COMPARED)


def _plain_tables(folder: Path) -> list[HtmlTable]:
    found = []
    for file, caption in _PLAIN.items():
        if (folder / file).exists():
            table = pd.read_csv(folder / file)
            show = _rounded if file == "amber.csv" else _plain
            if "rate" in table:
                table["rate"] *= 100
            rows = [[show(value) for value in row] for row in table.itertuples(index=False)]
            heads = [Head(_HEADS.get(str(name), str(name).replace("_", " "))) for name in table]
            found.append(HtmlTable(caption, heads, rows))
    return found


def _plain(value: Any) -> Cell:
    if isinstance(value, float):
        return Cell(MISSING) if math.isnan(value) else Cell(f"{value:.3g}", value)
    return Cell(f"{value:,}", value) if isinstance(value, int) else Cell(named(str(value)))


def _rounded(value: Any) -> Cell:
    """Percent with the one decimal that a script has printed."""
    known = isinstance(value, float) and not math.isnan(value)
    return Cell(f"{value:.1f}", value) if known else _plain(value)


def _mistakes(captions: pd.DataFrame, split: str, store: Thumbnails) -> Shown:
    """The first captions of a criterion that make something up."""
    table = captions.reset_index(drop=True)
    rows = table[(table["split"] == split) & (table["flagged"] > 0)]
    items = []
    for row in rows.iloc[:_SHOWN].reset_index().to_dict("records"):
        made_up, there = (", ".join(row[name]) for name in ("flagged_nouns", "truth_words"))
        text = f"{quoted(row['reply'], _LETTERS)} · Made up: {made_up} · In the image: {there}"
        items.append(Mistake(text, store.number(split, int(row["index"]))))
    return Shown(named(split), items)
