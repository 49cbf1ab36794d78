"""Answers of several models, or in several forms, to the same questions: tables and tests."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from pathlib import Path

import numpy as np
import pandas as pd

from ood_lab.common.arguments import Fields
from ood_lab.common.errors import UserError
from ood_lab.common.files import read_table
from ood_lab.lvlm.answers.answer_files import model_name
from ood_lab.lvlm.answers.asking_facts import JoinedSets
from ood_lab.lvlm.answers.judgements import PARSED, sizes_of
from ood_lab.lvlm.questions.question_files import YES_NO
from ood_lab.lvlm.questions.question_forms import COT
from ood_lab.lvlm.scoring.scored_results import ResultPlace
from ood_lab.lvlm.scoring.yes_no_scores import COUNTS, Unparsed, pair_table
from ood_lab.metrics.resampling.significance import holm
from ood_lab.schema.arrays import Bools, Ints
from ood_lab.schema.results import PART, Kind, Names, Row, Tables
from ood_lab.schema.run_record import ReadingRecord, RunRecord


def same_questions(judgements: Tables, texts: bool = True) -> pd.DataFrame:
    """Answers of several models to the same questions, with a column ``model``.

    Args:
        judgements: tables of answers by the name of the model.
        texts: the texts must be the same, too; False for questions of one file.

    Raises:
        UserError: they were not asked the same.
    """
    wanted: set[tuple[str, str, str]] | None = None
    for name, table in judgements.items():
        text = table["text"] if texts else [""] * len(table)
        results = set(zip(table["question_id"], text, table["truth"], strict=True))
        if wanted is not None and results != wanted:
            missing = len(wanted ^ results)
            raise UserError(
                f"{name} has other questions ({missing:,} differ): only answers to the same "
                "questions can be compared"
            )
        wanted = results
    return together(judgements)


def together(judgements: Tables) -> pd.DataFrame:
    """Tables of answers below each other, with their name in a column ``model``."""
    return pd.concat([table.assign(model=name) for name, table in judgements.items()])


def of_models(own: Tables, model: str, rest: Sequence[Path]) -> Tables:
    """Answers of several models to the very same questions, with a column ``model``.

    Args:
        own: tables of single answers by the name of their file.
        model: whose they are.
        rest: run folders of other models.

    Raises:
        UserError: they have other questions.
    """
    results = {model: own} | {
        name: {key: read_table(run / f"{key}.parquet") for key in own}
        for name, run in runs_by_model(model, rest).items()
    }
    same = same_questions({name: tables["judged"] for name, tables in results.items()})
    every = {key: together({name: of[key] for name, of in results.items()}) for key in own}
    return every | {"judged": same}


def runs_by_model(own: str, runs: Iterable[Path]) -> dict[str, Path]:
    """Run folders by the name of their model, none of them that of the ``own`` one."""
    results: dict[str, Path] = {}
    for run in runs:
        name, place = model_name(RunRecord.read(run).lvlm), run.parent.name
        names = (name, f"{name} ({place})", f"{name} ({place}/{run.name})")
        results[next((n for n in names if n not in (own, *results)), names[-1])] = run
    return results


def read_otherwise(reading: ReadingRecord, model: str, runs: Iterable[Path]) -> dict[str, str]:
    """Models whose replies another parser or language model has read, and the warning of each.

    A test between them would compare parsers, not models.

    Args:
        reading: of the run that compares them.
        model: of that run.
        runs: of the other models.
    """
    results = {}
    for name, run in runs_by_model(model, runs).items():
        theirs = RunRecord.read(run).reading
        here, there = ((item.parser, item.reader) for item in (reading, theirs))
        if here != there:
            results[name] = (
                f"the replies of {name} are read by {there[0]} (reader: {there[1]}), those of "
                f"{model} by {here[0]} (reader: {here[1]}): they are not tested against each "
                "other; score one of them again with the task.parser and reader of the other"
            )
    return results


def contrasts_by(
    places: Iterable[ResultPlace], contrast: Callable[[pd.DataFrame], pd.DataFrame]
) -> pd.DataFrame:
    """Contrasts between the same groups on several sets of questions, corrected for all of them.

    Groups of which no answer could be read in a set are skipped there. Holm's correction is over
    all pairs of groups and sets of a metric; sets (``part`` is missing) and their parts are two
    families.

    Args:
        places: sets of answers, with a column ``model`` that tells the groups apart.
        contrast: between the groups, see
            :func:`ood_lab.metrics.resampling.clustered_bootstrap.contrast`.

    Returns:
        The columns of ``contrast``, the keys of the places, and how many answers of both groups
        there are (:data:`~ood_lab.lvlm.answers.judgements.SIZES`). Empty where no two groups can be
        compared.
    """
    tables = []
    for keys, rows in places:
        read = (rows["status"] == PARSED).groupby(rows["model"]).transform("any")
        if rows.loc[read, "model"].nunique() > 1:
            given: Fields = {PART: None, **keys, **sizes_of(rows)}
            tables.append(contrast(rows[read]).assign(**given))
    if not tables:
        return pd.DataFrame(columns=["a", "b", "metric", "split", PART])
    table = pd.concat(tables, ignore_index=True)
    families = table.groupby([table["metric"], table[PART].notna()])["p_value"]
    return table.assign(p_holm=families.transform(lambda p: holm(p.tolist())))


#: ``part`` of results that are differences between the two forms.
DIFFERENCE = "cot - plain"


def with_forms(
    kind: Kind, first: pd.DataFrame, second: pd.DataFrame, results: pd.DataFrame
) -> pd.DataFrame:
    """The results of a run with those of its second form, and the differences between the two.

    Args:
        kind: of the results.
        first: results of the first form.
        second: those of the chain of thought.
        results: see :func:`ood_lab.lvlm.scoring.answer_differences.contrasts_by`.
    """
    tables = [first, second.assign(**{PART: _named(COT, second[PART])})]
    if len(results):
        keys = [k for k in ("metric", "ci_low", "ci_high", "n", *kind.keys) if k in results]
        named = {"value": results["difference"], PART: _named(DIFFERENCE, results[PART])}
        one = first.iloc[0]
        rows = results[keys].assign(**named)
        tables.append(kind.table(rows, model=one["model"], seed=one["seed"]))
    return with_whole_counts(tables)


def with_whole_counts(tables: Sequence[pd.DataFrame]) -> pd.DataFrame:
    """Results below each other; counts that some rows lack are whole numbers all the same."""
    table = pd.concat(tables, ignore_index=True)
    lacking = [name for name in table if str(name).startswith("n_") and table[name].isna().any()]
    return table.astype(dict.fromkeys(lacking, "Int64"))


def _named(form: str, part: pd.Series) -> pd.Series:
    """``part`` of rows of a form, or of the differences."""
    return part.map(lambda item: form if pd.isna(item) else f"{form}, {item}").astype(object)


#: Metric: share of the questions to which all samples say the same.
AGREEMENT = "agreement"


def sample_spread(
    results: Sequence[pd.DataFrame],
    judgements: Sequence[pd.DataFrame],
    metrics: Names,
    joined: JoinedSets,
) -> pd.DataFrame:
    """Mean and standard deviation (``ddof`` 1) of every metric over the samples, by set.

    Args:
        results: of whole sets, one table a sample; unparsed answers are treated in one way.
        judgements: single answers, one table a sample, in the same order.
        metrics: those in the table.
        joined: sets that consist of two values of ``split``; the second is in no other set.

    Returns:
        ``split, metric, mean, sd, low, high, samples``; ``low`` and ``high`` are the least and the
        largest value. The rows of :data:`AGREEMENT` have their value as ``mean``.
    """
    every = pd.concat(results)
    values = every[every["metric"].isin(metrics)].groupby(["split", "metric"], sort=False)["value"]
    table = values.agg(mean="mean", sd="std", low="min", high="max").reset_index()
    said = pd.concat(
        [item["parsed"].fillna("").reset_index(drop=True) for item in judgements], axis=1
    )
    same = said.nunique(axis=1) == 1
    rows: list[Row] = [
        {"split": split, "metric": AGREEMENT, "mean": same[part.to_numpy()].mean()}
        for split in dict.fromkeys(table["split"])
        if (part := _of(judgements[0], split, joined)).any()
    ]
    return pd.concat([table, pd.DataFrame(rows)], ignore_index=True).assign(samples=len(results))


def _of(judgements: pd.DataFrame, split: str, joined: JoinedSets) -> pd.Series:
    """The rows of a set; one that no row names is all of them together."""
    if "split" not in judgements:
        return pd.Series(True, judgements.index)
    own = judgements["split"].isin(joined.get(split, (split,)))
    return own if own.any() else ~judgements["split"].isin([rest for _, rest in joined.values()])


def spread_rows(spread: pd.DataFrame) -> Iterator[Row]:
    """Rows of a results table: mean and standard deviation of each set and metric."""
    for row in spread.to_dict("records"):
        known = {k: row[k] for k in ("split", "metric")} | {"n": row["samples"], "unit": "sample"}
        for name in ("mean",) if row["metric"] == AGREEMENT else ("mean", "sd"):
            yield {**known, PART: f"{name} of {row['samples']} samples", "value": row[name]}


def wrong_answers(judgements: Tables, pairs: pd.DataFrame) -> dict[str, Bools]:
    """Which answers of each model to the same questions are wrong.

    Args:
        judgements: tables of answers by the name of the model.
        pairs: that count, see :func:`common_pairs`.
    """
    asked = {
        name: table[(table["task"] == YES_NO) & table["pair_id"].isin(pairs["pair_id"])]
        for name, table in judgements.items()
    }
    first = next(iter(asked.values()))["question_id"]
    return {
        name: ~table.set_index("question_id").loc[first, "correct"].to_numpy(bool)
        for name, table in asked.items()
    }


def common_pairs(judgements: Tables, unparsed: Unparsed) -> tuple[pd.DataFrame, dict[str, Ints]]:
    """The question pairs that count for every model, and their counts.

    Args:
        judgements: tables of answers by the name of the model.
        unparsed: see :func:`~ood_lab.lvlm.scoring.yes_no_scores.pair_table`.

    Returns:
        One row per pair (``pair_id, split, category, image, ...``), and ``[P, 6]`` by model.

    Raises:
        UserError: the models were not asked the same questions, or share no pair.
    """
    tables = {n: pair_table(t, unparsed).set_index("pair_id") for n, t in judgements.items()}
    name, first = next(iter(tables.items()))
    for other, table in tables.items():
        if set(table.index) != set(first.index):
            raise UserError(
                f"{other} and {name} have other questions: give every run the same "
                "task.questions=FILE"
            )
    tables = {model: table.loc[first.index] for model, table in tables.items()}
    kept = np.logical_and.reduce([table["kept"].to_numpy(bool) for table in tables.values()])
    if not kept.any():
        raise UserError("no question pair was answered by all models")
    counts = {model: table.loc[kept, COUNTS].to_numpy(np.int64) for model, table in tables.items()}
    return first[kept].drop(columns=COUNTS).reset_index(), counts
