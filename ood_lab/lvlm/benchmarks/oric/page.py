"""How the results of ORIC are shown."""

from __future__ import annotations

from collections.abc import Iterator

from ood_lab.lvlm.benchmarks.oric.scoring import KIND
from ood_lab.lvlm.benchmarks.oric.wording import TASK
from ood_lab.lvlm.benchmarks.pope.question_drawing import SAMPLINGS
from ood_lab.lvlm.benchmarks.pope.question_sets import POPE_SETS
from ood_lab.lvlm.object_questions.analysis_page import (
    analyses_in,
    analysis_figures,
    analysis_tables,
    context_figure,
)
from ood_lab.lvlm.object_questions.question_sets import SUBSET
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
from ood_lab.lvlm.pages.result_sentences import MetricSentence
from ood_lab.lvlm.scoring.wording_scores import METRICS, WORDING
from ood_lab.report.rendering.blocks import PlannedFigure, Text
from ood_lab.report.rendering.table import Table
from ood_lab.report.rendering.thumbnails import Thumbnails
from ood_lab.schema.results import PART

#: Set of questions, and what it is called.
SETS = {
    "oric": "ORIC",
    "uniform": "uniform",
    "pos_only": "positives only",
    "neg_only": "negatives only",
    **POPE_SETS,
}
#: What is compared between sets, and between models.
COMPARED = {key: METRICS[key] for key in ("macro_f1", "recall_yes", "recall_no", "yes_rate")}
_FIGURE_METRICS = COMPARED | {key: METRICS[key] for key in ("precision_yes", "precision_no")}
_LEVEL_METRICS = {key: METRICS[key] for key in ("macro_f1", "recall_yes", "recall_no")}
#: Sets that sentences and figures of lines show: without the ablations and subsets.
LINES = {
    name: words
    for name, words in SETS.items()
    if name.startswith(("oric", "pope")) and not name.endswith(SUBSET)
}
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
    found = analyses_in(run.source)
    if found is not None:
        yield from analysis_tables(found, SETS)
    for each in run.record.oric.get("unknown", []):
        yield Text(f"Not known: {each}.")


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
        yield context_figure(context, LINES, footer)
    if analyses is not None:
        yield from analysis_figures(analyses, run.tables.get("tiers"), SETS, footer)


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
    metric_tables={"Answers": METRICS},
    sets=SETS,
    told_as={name: LINES.get(name, "") for name in SETS},
    identity=("split", "category", "prompt"),
    of_building=("annotations", "clip", "judge", "oric"),
)
