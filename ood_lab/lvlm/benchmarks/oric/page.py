"""How the results of ORIC are shown."""

from __future__ import annotations

from collections.abc import Iterator
from functools import partial

import pandas as pd

from ood_lab.common.grouping import with_keys
from ood_lab.common.random_streams import Resampling
from ood_lab.lvlm.benchmark.contract import BenchmarkWords
from ood_lab.lvlm.benchmarks.oric.analysis_page import (
    analyses_in,
    analysis_figures,
    analysis_tables,
    context_curves,
    context_words,
)
from ood_lab.lvlm.benchmarks.oric.pope_sets import POPE_SETS, SAMPLINGS
from ood_lab.lvlm.benchmarks.oric.published_files import TASK
from ood_lab.lvlm.benchmarks.oric.question_sets import SUBSET
from ood_lab.lvlm.pages.benchmark_page import (
    Headline,
    PageBlocks,
    ScoredRun,
    answer_figures,
    captioned,
    defined,
    difference_table,
    metric_table,
    wrong_answers,
)
from ood_lab.lvlm.pages.result_sentences import MetricSentence
from ood_lab.lvlm.scoring.scored_results import question_kind
from ood_lab.lvlm.scoring.wording_scores import METRICS, WORDING, contrasts
from ood_lab.report.rendering.blocks import PlannedFigure, Text
from ood_lab.report.rendering.table import Table
from ood_lab.schema.results import PART

KIND = question_kind("oric", "image", "n_items", "p_holm")
#: Sets of ORIC's construction with random samplers in place of both, one or none of its own.
CONSTRUCTIONS = ("uniform", "pos_only", "neg_only", "oric")


def drops(judgements: pd.DataFrame, resampling: Resampling) -> pd.DataFrame:
    """What ORIC's samplers cost against random ones: ``uniform`` minus each other construction.

    Returns:
        See :func:`ood_lab.lvlm.scoring.wording_scores.contrasts`; empty unless both have answers.
    """
    order = [name for name in CONSTRUCTIONS if (judgements["split"] == name).any()]
    if order[:1] != ["uniform"] or len(order) == 1:
        return pd.DataFrame()
    rows = pd.concat([judgements[judgements["split"] == name] for name in order])
    return contrasts(rows, "split", first="uniform", resampling=resampling)


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
#: Tables of differences: file, caption.
_DIFFERENCES = {
    "differences": "ORIC minus other questions, points",
    "drops": "Random samplers minus ORIC's: the drop, points",
}
_COUNTS = {"n_unparsed": "unmatched", "n_items": "items"}


def summary(run: ScoredRun) -> Iterator[Table | Text]:
    """Metrics of every set, then how other sets differ."""
    notes = ["Mean over the wordings of each question; F1, P, R: mean of yes and no."]
    notes.append("± half of the 95% interval, from resampling images.")
    yield metric_table(
        "Answers, %", "questions", run.whole, SETS, METRICS, counts=_COUNTS, notes=notes
    )
    for name, caption in with_keys(_DIFFERENCES, run.tables).items():
        yield difference_table(caption, run.tables[name], SETS, COMPARED)
    results = analyses_in(run.source)
    if results is not None:
        yield from analysis_tables(results, SETS)
    for item in run.record.oric.get("unknown", []):
        yield Text(f"Not known: {item}.")


def blocks(run: ScoredRun) -> PageBlocks:
    """The parts of the page."""
    wrong, pictures = wrong_answers(run.judged["judged"], SETS, run.source)
    return PageBlocks(summary(run), _wordings(run), figures(run), wrong, pictures)


def _wordings(run: ScoredRun) -> Iterator[Table]:
    """ORIC's questions, one row per wording."""
    rows = run.results[run.results["split"] == "oric"]
    single = rows[rows[PART].notna()]
    numbers = {str(n): str(n) for n in dict.fromkeys(single[PART]) if str(n).startswith(WORDING)}
    if len(numbers) > 1:
        title = "ORIC's questions by wording, in %"
        yield metric_table(title, "questions", single, numbers, METRICS, key=PART, counts=_COUNTS)


def figures(run: ScoredRun) -> Iterator[PlannedFigure]:
    """Results, levels, the curve over the context, and what is known of the sets."""
    analyses, remark = analyses_in(run.source), "Mean over the wordings."
    yield from answer_figures(run, _FIGURE_METRICS, SETS, _LEVEL_METRICS, "oric", remark, LINES)
    footer = f"{run.title}. 95% intervals that resample images."
    context = run.tables.get("context")
    if context is not None:
        shown = with_keys(LINES, set(context["split"]))
        draw = partial(context_curves, context, shown, footer)
        yield captioned("context", draw, said=context_words(context))
    if analyses is not None:
        yield from analysis_figures(analyses, run.tables.get("tiers"), SETS, footer)


WORDS = BenchmarkWords(
    name="ORIC",
    kind=KIND,
    asks=(TASK,),
    headlines=(
        Headline("oric", "macro_f1", "ORIC F1"),
        *(Headline(f"pope_{name}", "macro_f1", f"POPE {name} F1") for name in SAMPLINGS),
    ),
    sentences=(MetricSentence("macro_f1", "F1 (the mean of yes and no)"),),
    compared=COMPARED,
    definitions=defined("oric"),
    metric_tables={"Answers": METRICS},
    sets=SETS,
    told_as={name: LINES.get(name, "") for name in SETS},
    of_building=("annotations", "clip", "judge", "oric"),
)
