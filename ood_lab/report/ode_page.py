"""The page of ODE: a single file that needs nothing else."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple

import pandas as pd
from matplotlib.figure import Figure
from PIL import Image

from ood_lab.io import read_table
from ood_lab.lvlm.ode.tendencies import Tendencies
from ood_lab.report.figures import FigureFile, write_figure
from ood_lab.report.figures.answer_levels import level_cells, level_lines
from ood_lab.report.figures.effectiveness import feature_clouds
from ood_lab.report.figures.style import rc
from ood_lab.report.figures.tendencies import tendency_matrix
from ood_lab.report.figures.trends import trend_lines
from ood_lab.report.figures.yes_no import split_bars
from ood_lab.report.html import embed, page_template, save_page
from ood_lab.report.html_tables import Cell, Head, HtmlTable, flatten
from ood_lab.report.mistakes import Mistake, Thumbnails
from ood_lab.report.ode_tables import ANSWERS, CAPTIONS, POPE, SIZES, WAYS, named, whole_criteria
from ood_lab.report.optional import optional
from ood_lab.report.pictures import Pictures
from ood_lab.report.protocol import MISSING, percent

_SHOWN = 6  # captions of a criterion
_LETTERS = 140
_LEVEL_METRICS = {"chair": "CHAIR", "hal": "Hal", "all_accuracy": "Acc"}
_DOWNLOADS = (
    "results.csv",
    "results.parquet",
    "amber.csv",
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
#: Tables of a run that are shown as they are: file, caption.
_PLAIN = {
    "tendencies_groups.csv": "Groups of concepts by what is made up beside them",
    "effectiveness.csv": "Distance of the made images to natural ones (CLIP features)",
    "change.csv": "Change since the round before",
    "amber.csv": "As AMBER's and ODE's scripts round them, %",
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
    ("Distance", "Edges between the two concepts in the graph; 1 where they meet."),
    (
        "Interval",
        "95% bootstrap intervals; images are resampled with all their answers, and those that show "
        "one scene in several styles together.",
    ),
)


class Shown(NamedTuple):
    """Captions of one criterion that name what is not there."""

    name: str
    items: Sequence[Mistake]


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
    figures = write_ode_figures(folder, results, tendencies, manifest)
    files = captions["file"].tolist()
    pictures = Pictures(lambda _, row: Image.open(root / files[row]))
    store = Thumbnails(pictures)
    splits = list(dict.fromkeys(captions["split"]))
    mistakes = [_mistakes(captions, split, store) for split in splits]
    page = page_template("ode.html.j2").render(
        title=manifest["title"],
        sentence="Lower is better but for Cover",
        facts=_facts(whole),
        warnings=manifest.get("warnings", []),
        tables=[*_tables(whole, first), *_plain_tables(folder)],
        figures=[embed(figure, folder) for figure in figures],
        mistakes=[shown for shown in mistakes if shown.items],
        thumbnails=store.uris,
        definitions=_DEFINITIONS,
        manifest=flatten(dict(manifest)),
        downloads=[name for name in _DOWNLOADS if (folder / name).exists()],
    )
    pictures.warn("ode.html")
    return save_page(folder / "ode.html", page)


def write_ode_figures(
    folder: Path,
    results: pd.DataFrame,
    tendencies: Tendencies | None,
    manifest: Mapping[str, Any],
) -> list[FigureFile]:
    """Writes every figure that the tables allow; one that fails is left out with a warning."""
    rows = results[results["unparsed"] == str(manifest["unparsed"])]
    footer = f"{manifest['title']}. 95% intervals."
    files = []
    with rc():
        for name, title, caption, draw in _planned(folder, rows, tendencies, footer):
            with optional(f"figure {name}"):
                if (figure := draw()) is not None:
                    files.append(write_figure(folder / "figures", name, title, caption, figure))
    return files


def _planned(
    folder: Path, rows: pd.DataFrame, tendencies: Tendencies | None, footer: str
) -> Iterator[tuple[str, str, str, Callable[[], Figure | None]]]:
    whole = whole_criteria(rows)
    splits = {split: named(split) for split in dict.fromkeys(whole["split"])}
    answers = {key: f"{title}: {name}" for title, m in ANSWERS.items() for key, name in m.items()}
    shown = {key: name for key, name in answers.items() if key.endswith(("accuracy", "f1"))}
    yield (
        "captions",
        "Captions",
        "Hallucination in captions, by criterion.",
        lambda: split_bars(whole, CAPTIONS, splits, footer),
    )
    yield (
        "answers",
        "Yes/no questions",
        "Accuracy, and F1 with no as the positive class, by criterion.",
        lambda: split_bars(whole, shown, splits, footer),
    )
    yield (
        "levels",
        "By level of shift",
        "By known level of shift of the image; the same pairs at every covariate level.",
        lambda: level_lines(rows, _LEVEL_METRICS, splits, footer),
    )
    yield (
        "cells",
        "Semantic × covariate level",
        "All criteria pooled.",
        lambda: level_cells(rows, _LEVEL_METRICS, "pooled", footer),
    )
    yield (
        "distance",
        "By distance in the graph",
        "Edges between the two concepts; 1 where they meet. All criteria pooled.",
        lambda: trend_lines(rows[rows["split"] == "pooled"], "distance", _LEVEL_METRICS, footer),
    )
    if tendencies is not None:
        yield (
            "tendencies",
            "What is made up beside what",
            "The concepts with most hallucinations, by group.",
            lambda: tendency_matrix(tendencies.matrix, tendencies.groups, footer),
        )
    if (folder / "features.parquet").exists():
        groups = read_table(folder / "features.parquet").groupby("set", sort=False)
        features = {str(k): part.drop(columns="set").to_numpy() for k, part in groups}
        yield (
            "effectiveness",
            "Made beside natural images",
            "CLIP features along their two main directions.",
            lambda: feature_clouds(features, footer),
        )


def _facts(whole: pd.DataFrame) -> list[tuple[str, str, str]]:
    facts = []
    for row in whole[whole["metric"] == "chair"].to_dict("records"):
        remark = f"95% interval {percent(row['ci_low'])} to {percent(row['ci_high'])}"
        facts.append((f"CHAIR, {named(row['split'])}", f"{percent(row['value'])}%", remark))
    return facts


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
    part = rows[rows["metric"].isin(metrics)]
    found = {(row["split"], row["metric"]): row for row in part.to_dict("records")}
    first = next(iter(metrics))
    heads = [Head("criterion", "ascending"), *(Head(name) for name in SIZES.values())]
    cells = []
    for place, split in enumerate(dict.fromkeys(part["split"])):
        sizes = [int(found[split, first][name]) for name in SIZES]
        start = [Cell(named(split), place), *(Cell(f"{size:,}", size) for size in sizes)]
        cells.append([*start, *(_cell(found[split, metric]) for metric in metrics)])
    return HtmlTable(caption, [*heads, *(Head(name) for name in metrics.values())], cells)


def _plain_tables(folder: Path) -> list[HtmlTable]:
    found = []
    for file, caption in _PLAIN.items():
        if (folder / file).exists():
            table = pd.read_csv(folder / file)
            rows = [[_plain(value) for value in row] for row in table.itertuples(index=False)]
            found.append(
                HtmlTable(caption, [Head(str(name).replace("_", " ")) for name in table], rows)
            )
    return found


def _plain(value: Any) -> Cell:
    if isinstance(value, float):
        return Cell(MISSING) if math.isnan(value) else Cell(f"{value:.3g}", value)
    return Cell(f"{value:,}", value) if isinstance(value, int) else Cell(str(value))


def _cell(row: Mapping[Any, Any]) -> Cell:
    value, low, high = (float(row[name]) for name in ("value", "ci_low", "ci_high"))
    if math.isnan(value):
        return Cell(MISSING)
    interval = "" if math.isnan(low) else f"{percent(low)} to {percent(high)}"
    return Cell(percent(value), value, interval)


def _mistakes(captions: pd.DataFrame, split: str, store: Thumbnails) -> Shown:
    """The first captions of a criterion that make something up."""
    table = captions.reset_index(drop=True)
    rows = table[(table["split"] == split) & (table["flagged"] > 0)]
    items = []
    for row in rows.iloc[:_SHOWN].reset_index().to_dict("records"):
        reply, made_up = str(row["reply"]).strip()[:_LETTERS], ", ".join(row["flagged_nouns"])
        text = f"{reply} (made up: {made_up}; there: {', '.join(row['truth_words'])})"
        items.append(Mistake(text, store.number(split, int(row["index"]))))
    return Shown(named(split), items)
