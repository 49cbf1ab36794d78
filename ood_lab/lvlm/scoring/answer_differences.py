"""Answers of several models, or in several forms, to the same questions."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Any

import pandas as pd

from ood_lab.common.errors import UserError
from ood_lab.lvlm.answers.answer_locations import model_name
from ood_lab.lvlm.answers.judgements import PARSED, sizes_of
from ood_lab.lvlm.scoring.scored_results import Place
from ood_lab.metrics.resampling.significance import holm
from ood_lab.schema.results import PART, Tables
from ood_lab.schema.run_record import ReadingRecord, RunRecord


def same_questions(judged: Tables, texts: bool = True) -> pd.DataFrame:
    """Answers of several models to the same questions, with a column ``model``.

    Args:
        judged: tables of answers by the name of the model.
        texts: the texts must be the same, too; False for questions of one file.

    Raises:
        UserError: they were not asked the same.
    """
    wanted: set[tuple[str, str, str]] | None = None
    for name, table in judged.items():
        text = table["text"] if texts else [""] * len(table)
        found = set(zip(table["question_id"], text, table["truth"], strict=True))
        if wanted is not None and found != wanted:
            missing = len(wanted ^ found)
            raise UserError(
                f"{name} has other questions ({missing:,} differ): only answers to the same "
                "questions can be compared"
            )
        wanted = found
    return together(judged)


def together(judged: Tables) -> pd.DataFrame:
    """Tables of answers below each other, with their name in a column ``model``."""
    return pd.concat([table.assign(model=name) for name, table in judged.items()])


def runs_by_model(own: str, runs: Iterable[Path]) -> dict[str, Path]:
    """Run folders by the name of their model, none of them that of the ``own`` one."""
    found: dict[str, Path] = {}
    for run in runs:
        name = model_name(RunRecord.read(run).lvlm)
        found[f"{name} ({run.parent.name})" if name in (own, *found) else name] = run
    return found


def read_otherwise(reading: ReadingRecord, model: str, runs: Iterable[Path]) -> dict[str, str]:
    """Models whose replies another parser or language model has read, and the warning of each.

    A test between them would compare parsers, not models.

    Args:
        reading: of the run that compares them.
        model: of that run.
        runs: of the other models.
    """
    found = {}
    for name, run in runs_by_model(model, runs).items():
        theirs = RunRecord.read(run).reading
        here, there = ((each.parser, each.reader) for each in (reading, theirs))
        if here != there:
            found[name] = (
                f"the replies of {name} are read by {there[0]} (reader: {there[1]}), those of "
                f"{model} by {here[0]} (reader: {here[1]}): they are not tested against each "
                "other; score one of them again with the task.parser and reader of the other"
            )
    return found


def contrasts_by(
    places: Iterable[Place], contrast: Callable[[pd.DataFrame], pd.DataFrame]
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
            given: dict[str, Any] = {PART: None, **keys, **sizes_of(rows)}
            tables.append(contrast(rows[read]).assign(**given))
    if not tables:
        return pd.DataFrame(columns=["a", "b", "metric", "split", PART])
    table = pd.concat(tables, ignore_index=True)
    families = table.groupby([table["metric"], table[PART].notna()])["p_value"]
    return table.assign(p_holm=families.transform(lambda p: holm(p.tolist())))
