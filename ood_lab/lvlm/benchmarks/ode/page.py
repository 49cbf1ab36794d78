"""How the results of ODE are shown."""

from __future__ import annotations

from collections.abc import Iterator
from functools import partial
from pathlib import Path

import pandas as pd
from matplotlib.figure import Figure

from ood_lab.common.files import read_table
from ood_lab.common.grouping import with_keys
from ood_lab.lvlm.benchmark.contract import BenchmarkWords
from ood_lab.lvlm.captions.caption_page import (
    CAPTIONS,
    COMPARED,
    OF_NO,
    made_up,
    other_ways,
    scoring_note,
)
from ood_lab.lvlm.captions.caption_scoring import PAIR, caption_kind
from ood_lab.lvlm.captions.hallucination_tendencies import tendency_matrix
from ood_lab.lvlm.image_generation.photographs import feature_clouds
from ood_lab.lvlm.pages.benchmark_page import (
    Headline,
    PageBlocks,
    ScoredRun,
    answer_figures,
    captioned,
    defined,
    difference_table,
    metric_table,
)
from ood_lab.lvlm.pages.result_sentences import CHAIR, MetricSentence
from ood_lab.lvlm.questions.question_files import ACTION, EXISTENCE, GENERATIVE, NUMBER, STATE
from ood_lab.lvlm.scoring.scored_results import POOLED
from ood_lab.report.figures.bars import bar_panels
from ood_lab.report.figures.lines import trend_lines
from ood_lab.report.rendering.blocks import PlannedFigure, Text
from ood_lab.report.rendering.table import Table, plain_table
from ood_lab.schema.results import PART, Names

KIND = caption_kind("ode")
#: Numbers and words by which sets are divided: edges between the two concepts in the graph (0 =
#: not connected), whether both are entities (ee) or the second an environment (ev), and the
#: criterion where the sets are origins.
DISTANCE, PAIR_KIND, CRITERION = "distance", "kind", "criterion"


#: Columns by which each set is divided further.
FINER = (DISTANCE, PAIR_KIND, CRITERION)
ALL = "All yes/no questions"
ANSWERS = {
    title: {f"{group}_{key}": name for key, name in OF_NO.items()}
    for title, group in {"Existence": "existence", "Attributes": "attribute", ALL: "all"}.items()
}
_POPE = "Existence as POPE has it"
POPE = {
    "pope_precision": "P (yes)",
    "pope_recall": "R (yes)",
    "pope_f1": "F1 (yes)",
    "pope_yes_rate": "yes-rate",
}
_KINDS = {"ee": "two entities", "ev": "entity in an environment"}
#: Tables of differences: file, caption.
DIFFERENCES = {
    "differences": "Criteria compared, points",
    "styles": "Covariate levels compared on the same scenes, points",
}
_OF_ORIGINS = "Origins compared on the same pairs, points"
#: Tables of a run that are shown as they are: file, caption.
_PLAIN = {
    "tendencies_groups": "Groups of concepts by hallucinated concepts",
    "change": "Change since the round before",
    "amber": "As AMBER's and ODE's scripts round them, %",
    "effectiveness": "Distance of the made images to natural ones (CLIP features)",
}
_HEADS = {"chair": "CHAIR", "cover": "Cover", "hal": "Hal", "cog": "Cog", "rate": "rate, %"}
_LEVEL_METRICS = {"chair": "CHAIR", "hal": "Hal", "all_accuracy": "Acc"}


def summary(run: ScoredRun) -> Iterator[Table | Text]:
    """Captions, then each sort of yes/no questions."""
    names = names_of(run)
    notes = [scoring_note(run)]
    yield metric_table("Captions, %", sets_of(run), run.whole, names, CAPTIONS, notes=notes)
    for title, metrics in _sorts(run.whole):
        yield metric_table(f"{title}, %", sets_of(run), run.whole, names, metrics)
    unit = "pairs" if sets_of(run) == "origin" else "images"
    yield Text(f"Positive class: no (POPE: yes). 95% intervals from resampling {unit}.", "note")


def _sorts(rows: pd.DataFrame) -> list[tuple[str, dict[str, str]]]:
    """Sorts of yes/no questions with answers; all of them together where there are several."""
    asked = {title: m for title, m in ANSWERS.items() if rows["metric"].isin(m).any()}
    if len(asked) == 2:  # one sort, and the same once more as all
        del asked[ALL]
    return [*asked.items(), *([(_POPE, POPE)] if rows["metric"].isin(POPE).any() else [])]


def named(split: object) -> str:
    """What a criterion, or a level of shift, is called."""
    return str(split).replace("_", "-") if isinstance(split, str) else f"level {split:g}"


def names_of(run: ScoredRun) -> Names:
    """What the sets are called."""
    return {str(split): named(split) for split in dict.fromkeys(run.whole["split"])}


def sets_of(run: ScoredRun) -> str:
    """What the sets of questions are."""
    return "origin" if PAIR in run.judged["captions"] else "criterion"


def _by_kind(run: ScoredRun) -> Iterator[Table]:
    """Pairs of two entities, and of an entity in an environment."""
    rows = run.first_way
    parts = {f"{PAIR_KIND} {kind}": words for kind, words in _KINDS.items()}
    rows = rows[rows[PART].isin(parts)]
    rows = rows.assign(row=rows["split"].astype(str) + "/" + rows[PART].fillna(""))
    names = {
        f"{split}/{part}": f"{name}, {words}"
        for split, name in names_of(run).items()
        for part, words in parts.items()
    }
    for title, metrics in (("Captions", CAPTIONS), (ALL, ANSWERS[ALL])):
        if rows["metric"].isin(metrics).any():
            caption = f"{title} by kind of pair, %"
            yield metric_table(caption, sets_of(run), rows, names, metrics, key="row")


def blocks(run: ScoredRun) -> PageBlocks:
    """The parts of the page."""
    wrong, pictures = made_up(run, names_of(run), sets_of(run))
    return PageBlocks(summary(run), _details(run), figures(run), wrong, pictures)


def _details(run: ScoredRun) -> Iterator[Table]:
    """Other treatments of unparsed answers, kinds of pairs, differences, and tables of files."""
    for words, rows in other_ways(run):
        for title, metrics in _sorts(rows):
            caption = f"{title}, %: {words}"
            yield metric_table(caption, sets_of(run), rows, names_of(run), metrics)
    yield from _by_kind(run)
    for name, caption in DIFFERENCES.items():
        if name == "differences" and sets_of(run) == "origin":
            caption = _OF_ORIGINS
        if name in run.tables:
            table = run.tables[name]
            names = {key: named(key) for key in [*table["a"], *table["b"]]}
            yield difference_table(caption, table, names, COMPARED)
    tables = dict(run.tables)
    if (run.source / "effectiveness.csv").is_file():
        tables["effectiveness"] = read_table(run.source / "effectiveness.csv")
    heads = _HEADS | {"split": sets_of(run)}
    for name, caption in with_keys(_PLAIN, tables).items():
        table = tables[name]
        table = table.assign(rate=100 * table["rate"]) if "rate" in table else table
        yield plain_table(caption, table.to_dict("records"), heads)


def figures(run: ScoredRun) -> Iterator[PlannedFigure]:
    """Results, levels, answers by kind, distances, tendencies and made images."""
    names = names_of(run)
    footer = f"{run.title}."
    shown = {
        key: f"{group}: {name}"
        for group, metrics in ANSWERS.items()
        for key, name in metrics.items()
        if key.endswith(("accuracy", "f1"))
    }
    yield from answer_figures(run, CAPTIONS, names, _LEVEL_METRICS, POOLED, "")
    intervals = f"{footer} 95% intervals."
    yield captioned("answers", partial(bar_panels, run.whole, shown, names, intervals))
    rows = run.first_way
    far = rows[(rows["split"] == POOLED) & rows[PART].fillna("").str.startswith(DISTANCE)]
    far = far.assign(distance=far[PART].str.removeprefix(DISTANCE).astype(float))
    yield captioned("distance", partial(trend_lines, far, "distance", _LEVEL_METRICS, intervals))
    if "tendencies_matrix" in run.tables:
        matrix = run.tables["tendencies_matrix"]
        matrix = matrix.set_index(matrix.columns[0])
        draw = partial(tendency_matrix, matrix, run.tables["tendencies"], footer)
        yield captioned("tendencies", draw)
    if (run.source / "features.parquet").exists():
        words = f"{footer} Distance to natural images, with its 95% interval."
        yield captioned("effectiveness", partial(_clouds, run.source, words))


def _clouds(folder: Path, footer: str) -> Figure | None:
    groups = read_table(folder / "features.parquet").groupby("dataset", sort=False)
    features = {str(name): part.drop(columns="dataset").to_numpy() for name, part in groups}
    return feature_clouds(features, read_table(folder / "effectiveness.csv"), footer)


WORDS = BenchmarkWords(
    name="ODE",
    kind=KIND,
    asks=(GENERATIVE, EXISTENCE, STATE, ACTION, NUMBER),
    headlines=(
        *(Headline(POOLED, metric, CAPTIONS[metric]) for metric in ("chair", "cover", "hal")),
        Headline(POOLED, "existence_f1", "existence F1"),
        Headline("fictional", "chair", "fictional CHAIR"),
    ),
    sentences=(CHAIR, MetricSentence("all_accuracy", "accuracy on yes/no questions")),
    compared=COMPARED,
    definitions=defined("ode_criteria", "captions", "caption_answers", "ode"),
    # As the paper's table 1.
    metric_tables={"Captions": CAPTIONS, **ANSWERS, _POPE: POPE},
    told_as={
        name: f"{named(name)} pairs" for name in ("standard", "long_tail", "random", "fictional")
    },
)
