"""How the results of ORIC are shown."""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping
from functools import partial
from pathlib import Path
from typing import Any

import pandas as pd

from ood_lab.common.files import read_table
from ood_lab.lvlm.benchmarks.oric.construction.pope_questions import SAMPLINGS
from ood_lab.lvlm.benchmarks.oric.figures import context_curves, measure_bars, tier_bars
from ood_lab.lvlm.benchmarks.oric.question_analyses import ANNOTATED, TIER_SHARES
from ood_lab.lvlm.benchmarks.oric.run_questions import SUBSET
from ood_lab.lvlm.benchmarks.oric.scoring import KIND, WORDING
from ood_lab.lvlm.benchmarks.oric.wording import TASK
from ood_lab.lvlm.pages.benchmark_page import (
    Headline,
    Scored,
    answer_figures,
    difference_table,
    metric_table,
    wrong_answers,
)
from ood_lab.lvlm.pages.benchmark_record import BenchmarkRecord
from ood_lab.lvlm.pages.definitions import defined
from ood_lab.lvlm.pages.figure_captions import captioned, title_of
from ood_lab.lvlm.pages.result_sentences import MetricSentence
from ood_lab.report.rendering.blocks import PlannedFigure, Text
from ood_lab.report.rendering.metric_definitions import percent
from ood_lab.report.rendering.misclassified_images import Thumbnails
from ood_lab.report.rendering.table import (
    Column,
    Group,
    Head,
    Table,
    name_cell,
    number_cell,
    table_of,
)
from ood_lab.schema.results import PART

#: Metric, and what it is called in tables; in this order.
METRICS = {
    "macro_f1": "F1",
    "macro_precision": "P",
    "macro_recall": "R",
    "yes_rate": "yes-rate",
    "recall_yes": "R yes",
    "recall_no": "R no",
    "f1_yes": "F1 yes",
    "f1_no": "F1 no",
    "precision_yes": "P yes",
    "precision_no": "P no",
    "accuracy": "Acc",
}
#: Set of questions, and what it is called.
SETS = {
    "oric": "ORIC",
    "uniform": "uniform",
    "pos_only": "positives only",
    "neg_only": "negatives only",
    **{
        f"pope_{name}{end}": f"POPE {name}{words}"
        for name in SAMPLINGS
        for end, words in (("", ""), (SUBSET, " (subset)"))
    },
}
#: What is compared between sets, and between models.
COMPARED = {key: METRICS[key] for key in ("macro_f1", "recall_yes", "recall_no", "yes_rate")}
_FIGURE_METRICS = {
    key: METRICS[key]
    for key in (
        *("macro_f1", "recall_yes", "recall_no"),
        *("yes_rate", "precision_yes", "precision_no"),
    )
}
_LEVEL_METRICS = {"macro_f1": "F1", "recall_yes": "R yes", "recall_no": "R no"}
#: Sets that sentences and figures of lines show: without the ablations and subsets.
LINES = {
    name: words
    for name, words in SETS.items()
    if name.startswith(("oric", "pope")) and not name.endswith(SUBSET)
}
#: Sets whose objects have sizes.
_SIZED = SETS | {ANNOTATED: "all annotated objects"}
_LABELS = {"yes": "present", "no": "absent"}
#: Of each analysis: its group of columns, what its columns are, factor and digits of a value.
_GROUPS = {
    "tier_share": ("edges as chosen", "key", 100, 1),
    "coco_tier_share": ("COCO's edges", "key", 100, 1),
    "clip_score": ("CLIPScore", "label", 1, 1),
    "p_context": ("P(object | context)", "label", 1, 3),
    "min_distance": ("least distance", "clip", 1, 3),
}
#: Analyses that have a figure, and what their bars are divided by.
_FIGURES = {"clip_score": "label", "p_context": "label", "min_distance": "clip"}
_COUNTS = {"n_unparsed": "unmatched", "n_items": "items"}


def summary(run: Scored) -> Iterator[Table | Text]:
    """Metrics of every set, then how other sets differ."""
    notes = ["Mean over the wordings of each question; F1, P, R: mean of yes and no."]
    notes.append("± half of the 95% interval, from resampling images.")
    yield metric_table(
        "Answers, %", "questions", run.whole, SETS, METRICS, counts=_COUNTS, notes=notes
    )
    found = run.tables.get("differences")
    if found is not None and len(found):
        yield difference_table("ORIC minus other questions, points", found, SETS, COMPARED)
    found = run.tables.get("drops")
    if found is not None:
        caption = "Random samplers minus ORIC's: the drop, points"
        yield difference_table(caption, found, SETS, COMPARED)
    yield from _of_sets(run)


def _details(run: Scored, _: Thumbnails) -> Iterator[Table]:
    rows = run.results[run.results["split"] == "oric"]
    single = rows[rows[PART].notna()]
    numbers = {str(n): str(n) for n in dict.fromkeys(single[PART]) if str(n).startswith(WORDING)}
    if len(numbers) > 1:
        title = "ORIC's questions by wording, in %"
        yield metric_table(title, "questions", single, numbers, METRICS, key=PART, counts=_COUNTS)


def _figures(run: Scored) -> Iterator[PlannedFigure]:
    analyses, remark = analyses_in(run.source), "Mean over the wordings."
    yield from answer_figures(run, _FIGURE_METRICS, SETS, _LEVEL_METRICS, "oric", remark, LINES)
    footer = f"{run.title}. 95% intervals that resample images."
    context = run.tables.get("context")
    if context is not None:
        sets = {n: words for n, words in LINES.items() if (context["split"] == n).any()}
        draw = partial(context_curves, context, sets, footer)
        yield captioned("context", draw, said=context_words(context))
    if analyses is not None:
        yield from _of_questions(analyses, run.tables.get("tiers"), footer)


def context_words(curve: pd.DataFrame) -> str:
    """What the answers of all sets say of expected and unexpected objects, and how surely.

    Args:
        curve: see :func:`ood_lab.lvlm.benchmarks.oric.question_analyses.curve_of`.
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


def _of_questions(
    found: pd.DataFrame, tiers: pd.DataFrame | None, footer: str
) -> Iterator[PlannedFigure]:
    for analysis, column in TIER_SHARES.items():
        shares = found[found["analysis"] == analysis]
        if not len(shares):
            continue
        recall = shares.iloc[:0].assign(tier="", edges="") if tiers is None else tiers
        of_edges = recall[recall["edges"] == column]
        yield captioned(f"{column}s", partial(tier_bars, shares, of_edges, _SIZED, footer))
    for name, series in _FIGURES.items():
        rows = found[(found["analysis"] == name) & _of_whole_sets(found)]
        if len(rows):
            rows = rows.assign(series=rows[series].replace(_LABELS))
            draw = partial(measure_bars, rows, SETS, title_of(name), footer)
            yield captioned(name, draw)


def _of_whole_sets(found: pd.DataFrame) -> pd.Series:
    """Rows of :func:`analyses_in` that are not of a single class."""
    return (found["analysis"] != "min_distance") | (found["key"] == "mean")


def analyses_in(folder: Path) -> pd.DataFrame | None:
    """What the run that built the questions has found out about them, if anything."""
    file = folder / "analyses.csv"
    found = read_table(file) if file.is_file() else None
    return found if found is not None and len(found) else None


def _of_sets(run: Scored) -> Iterator[Table | Text]:
    """What is known of the sets without an answer, and what is not."""
    found = analyses_in(run.source)
    if found is not None:
        sizes = found["analysis"].isin(TIER_SHARES)
        means = ~sizes & _of_whole_sets(found)
        if sizes.any():
            caption = "Sizes of the objects that are there, % of each set"
            yield _analysis_table(caption, found[sizes])
        if means.any():
            yield _analysis_table("Images and objects, before anyone answers", found[means])
    for each in run.manifest.get("oric", {}).get("unknown", []):
        yield Text(f"Not known: {each}.")


def _analysis_table(caption: str, rows: pd.DataFrame) -> Table:
    """One row per set, and a group of columns for each analysis."""
    splits = [split for split in _SIZED if (rows["split"] == split).any()]
    names = [name_cell(_SIZED[split], place) for place, split in enumerate(splits)]
    columns = [Column(Head("questions", "ascending"), names)]
    for analysis, part in rows.groupby("analysis", sort=False):
        title, by, factor, digits = _GROUPS[str(analysis)]
        group, show = Group(title), f"{{:.{digits}f}}".format
        for key, cells in part.groupby(by, sort=False):
            found = cells.set_index("split")[["value", "ci_low", "ci_high"]] * factor
            each = found.reindex(splits).to_numpy()
            shown = [number_cell(value, low, high, show) for value, low, high in each]
            columns.append(Column(Head(_LABELS.get(str(key), str(key))), shown, group))
    return table_of(caption, columns, spreads=True, split="groups")


RECORD = BenchmarkRecord(
    name="ORIC",
    kind=KIND,
    asks=(TASK,),
    headlines=(
        Headline("oric", "macro_f1", "ORIC F1"),
        *(Headline(f"pope_{name}", "macro_f1", f"POPE {name} F1") for name in SAMPLINGS),
    ),
    told=(MetricSentence("macro_f1", "F1 (the mean of yes and no)"),),
    compared=COMPARED,
    summary=summary,
    details=_details,
    figures=_figures,
    wrong=lambda run: wrong_answers(run.judged["judged"], SETS, run.source),
    definitions=defined("oric"),
    downloads=("oric_bench.json", "oric_train.json", "audit.csv", "analyses.csv"),
    metric_tables={"Answers": METRICS},
    sets=SETS,
    told_as={name: LINES.get(name, "") for name in SETS},
    identity=("split", "category", "prompt"),
    of_building=("annotations", "clip", "judge", "oric"),
)
